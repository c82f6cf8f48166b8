"""Commands that a loaded process forks are processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.forks import forked_python

pytestmark = pytest.mark.slow
SAYS_ALL = """
import os, sys
print(sys.argv, os.getcwd(), os.environ["OWN"], sys.stdin.read(), "vicinal" in sys.modules)
sys.exit("that is all")
"""
# No single wait: a signal that comes just before one is noticed after it.
WAITS = """
import time
print("ready", flush=True)
while True:
    time.sleep(0.1)
"""


def test_it_has_the_words_folder_variables_and_streams_that_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "says.py").write_text(SAYS_ALL)
    done = subprocess.run(
        [*forked_python(), "says.py", "a b", ""],
        cwd=tmp_path,
        env={"OWN": "of one"},
        input="sent",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"['says.py', 'a b', ''] {tmp_path} of one sent True\n"
    assert (done.returncode, done.stderr) == (1, "that is all\n")
    assert "OWN" not in os.environ


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(sent: signal.Signals) -> None:
    command = [*forked_python(), "-"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(WAITS.encode())
        process.stdin.close()
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(sent)
        try:
            process.wait(timeout=60)
        finally:
            # One that is still there would be waited for without end.
            process.kill()
    assert process.returncode == 128 + sent


def test_what_is_absent_cannot_be_imported() -> None:
    command = [*forked_python("onnxruntime"), "-"]
    done = subprocess.run(command, input=b"import onnxruntime", capture_output=True, check=False)
    assert (done.returncode, b"ModuleNotFoundError" in done.stderr) == (1, True)

"""The end of a process: its status is that of its work, whatever its threads are at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Threads that come back from Lance all the time, also while the process ends.
WITH_THREADS = """
import sys, threading
import lance, pyarrow as pa
from vicinal.service.process import ends_process

lance.write_dataset(pa.table({"a": [1]}), sys.argv[1])
reads = threading.Event()

def read():
    while True:
        lance.dataset(sys.argv[1]).to_table()
        reads.set()

with ends_process():
    for _ in range(3):
        threading.Thread(target=read, daemon=True).start()
    reads.wait()
    print("done", end="")
    %s
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "status"),
    [("", 0), ("sys.exit(2)", 2), ("sys.exit('why')", 1), ("raise ValueError('why')", 1)],
)
def test_threads_in_native_code_do_not_abort_a_process_that_ends(
    tmp_path: Path, ending: str, status: int
) -> None:
    command = [sys.executable, "-c", WITH_THREADS % ending, str(tmp_path / "table.lance")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (status, "done"), ended.stderr
    assert ("why" in ended.stderr) == ("why" in ending)

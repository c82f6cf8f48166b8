"""A user's type checker sees our types."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("user_program.py").read_text(encoding="utf-8")
MISTAKE = "\nnumber: int = create_app().title\n"


@pytest.mark.slow
def test_a_typed_program_is_accepted_and_a_mistake_in_it_is_found(tmp_path: Path) -> None:
    """As users check theirs: in a folder of their own, over the installed package, without our settings."""
    (tmp_path / "right.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(PROGRAM + MISTAKE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "right.py", "wrong.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    line = len((PROGRAM + MISTAKE).splitlines())
    mistake = 'Incompatible types in assignment (expression has type "str", variable has type "int")'
    assert done.stdout.splitlines()[:-1] == [f"wrong.py:{line}: error: {mistake}  [assignment]"]

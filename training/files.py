"""Files of a run: each replaced in one step, so that a kill leaves the old one or the new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Path to write to; what is written there takes the place of a file when it is on the disk."""
    partial = path.with_name(f"{path.name}.partial")
    yield partial
    with partial.open("rb") as stream:
        os.fsync(stream.fileno())
    partial.replace(path)

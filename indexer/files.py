"""Files that outlive a crash: replaced in one step, and on the disk itself before anyone is told."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync_path", "write_atomically"]


def sync_path(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a small file so that after any crash it is the old one or the new one."""
    staging = path.with_name(path.name + ".partial")
    with staging.open("wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
        stream.flush()
        os.fsync(stream.fileno())
    staging.replace(path)
    sync_path(path.parent)

"""Disks in trouble: small ones that fill up, files that cannot grow, and files that have lost something."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["blank", "cut", "flip", "full", "mounted", "short_files"]


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if refused.returncode:
        pytest.skip(f"a small file system cannot be mounted: {refused.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def full(folder: Path, left: int) -> Iterator[None]:
    """Fill a file system but for some bytes."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as stream:
        stream.write(bytes(max(0, shutil.disk_usage(folder).free - left)))
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def short_files(longest: int) -> Iterator[None]:
    """No file of this process may grow beyond some bytes; Python ignores the signal that would say so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (longest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def flip(path: Path, place: float) -> None:
    """Turn one bit of a file."""
    encoded = bytearray(path.read_bytes())
    encoded[int(place * (len(encoded) - 1))] ^= 0x10
    path.write_bytes(encoded)


def cut(path: Path, place: float) -> None:
    path.write_bytes(path.read_bytes()[: int(place * path.stat().st_size)])


def blank(path: Path, _place: float) -> None:
    path.write_bytes(bytes(path.stat().st_size))

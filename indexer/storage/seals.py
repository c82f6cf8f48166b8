"""Seals: how a derived file is known to be whole, quickly when it is opened and fully when there is doubt.

A full check reads every byte, which takes seconds for the files of a large gallery. At opening, the size and
evenly spread sample blocks are compared; small files are compared in full. The full check of the large ones
is due once after each start of the machine, because what a crash leaves behind is where samples could miss
something; the machine's boot id beside the files says whether it was done.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from vicinal.models.bundle import sha256_of

__all__ = ["FileSeal", "is_checked_since_boot", "is_intact", "is_whole", "note_checked", "seal_of"]

# A file up to this size is always read in full: a few milliseconds.
_SMALL_BYTES = 4 * 2**20
_BLOCK_BYTES = 4096
_N_BLOCKS = 64
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class FileSeal(BaseModel):
    """What a file must look like.

    Attributes:
        n_bytes: Its size.
        sha256: Hexadecimal SHA-256 of all of it.
        sample: Hexadecimal SHA-256 of its sample blocks; of all of it when it is small.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_bytes: int
    sha256: str
    sample: str


def seal_of(path: Path) -> FileSeal:
    """Seal of a finished file."""
    return FileSeal(n_bytes=path.stat().st_size, sha256=sha256_of(path), sample=_sample_of(path))


def is_intact(path: Path, seal: FileSeal) -> bool:
    """Whether size and sample blocks fit; for a small file the same as `is_whole`."""
    return path.is_file() and path.stat().st_size == seal.n_bytes and _sample_of(path) == seal.sample


def is_whole(path: Path, seal: FileSeal) -> bool:
    """Whether every byte fits."""
    return path.is_file() and path.stat().st_size == seal.n_bytes and sha256_of(path) == seal.sha256


def is_checked_since_boot(marker: Path) -> bool:
    """Whether `note_checked` was called for this marker file since the machine started."""
    boot_id = _boot_id()
    try:
        return boot_id is not None and marker.read_text(encoding="utf-8") == boot_id
    except (OSError, UnicodeDecodeError):
        return False


def note_checked(marker: Path) -> None:
    """Remember that every file beside a marker was checked in full."""
    boot_id = _boot_id()
    # On a read-only disk there is no note, and the next process checks again.
    with suppress(OSError):
        if boot_id is not None:
            marker.write_text(boot_id, encoding="utf-8")


def _sample_of(path: Path) -> str:
    n_bytes = path.stat().st_size
    if n_bytes <= _SMALL_BYTES:
        return sha256_of(path)
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for i in range(_N_BLOCKS):
            # The first block starts the file and the last one ends it.
            stream.seek(i * (n_bytes - _BLOCK_BYTES) // (_N_BLOCKS - 1))
            digest.update(stream.read(_BLOCK_BYTES))
    return digest.hexdigest()


def _boot_id() -> str | None:
    try:
        return _BOOT_ID.read_text(encoding="utf-8").strip()
    except OSError:
        # Where the system does not tell, every process checks in full.
        return None

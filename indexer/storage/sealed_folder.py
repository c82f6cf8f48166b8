"""Sealed folders: files that are compared with their seals before anybody reads them.

What is derived of a version's rows, at once and never changed, has a manifest with the seals of its files.
Beside a Lance table lies `<table>.seals`, with a line for each file that a commit has written.

Lance keeps no checksums: a bit that a disk has lost would come back as another embedding.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from vicinal.calibration.arrays import AnyArray
from vicinal.indexer.errors import DamagedGalleryError, StorageError
from vicinal.indexer.storage.files import storing, sync_path, write_atomically
from vicinal.indexer.storage.sealed_file import (
    CachedFile,
    FileSeal,
    OnRead,
    digest_of,
    file_identity,
    read_sealed,
    uncounted,
    write_sealed,
)

logger = logging.getLogger(__name__)
# Tables whose seals are kept as they were read.
_MOST_TABLES = 16
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SealedFolder:
    """Files of one folder; no reader gets a file of it that was not compared with its seal."""

    def __init__(self, path: Path, seals: Mapping[str, FileSeal]) -> None:
        self.path = path
        self.seals = seals

    @property
    def n_bytes(self) -> int:
        """Size of the files together."""
        return sum(seal.n_bytes for seal in self.seals.values())

    def is_whole(self, *names: str) -> bool:
        """Whether some files are what they were, every byte of them."""
        return all(self.seals[name].fits(self.path / name, whole=True) for name in names)

    def check(self, *names: str, whole: bool, on_read: OnRead = uncounted) -> None:
        """Compare some files with their seals, or all, up to the first that does not fit.

        Args:
            whole: Compare every byte, and not only samples of large files.
        """
        for name in names or self.seals:
            path = self.path / name
            if not self.seals[name].fits(path, whole=whole, on_read=on_read):
                raise DamagedGalleryError(f"snapshot file '{path}' is missing or damaged", path)

    def array(self, name: str) -> AnyArray:
        """Memory map of `<name>.npy`."""
        array: AnyArray = np.load(self.path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return array

    def table(self, name: str) -> pa.Table:
        """Memory map of an Arrow table, every byte of which is compared first."""
        self.check(name, whole=True)
        return pa.ipc.open_file(pa.memory_map(str(self.path / name))).read_all()


class TableSeals:
    """Seals of the files of a Lance table, one a line in a file beside it.

    Every file that a commit writes gets a line before the commit is answered for. A commit that never came
    into force may leave lines behind, and a crash half a line; neither matters. Each line has a checksum of
    its own: a file whose line is damaged cannot be compared, which is no reason to refuse it; it gets another
    line with the next commit.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder.with_suffix(".seals")

    def add(self, files: Iterable[Path]) -> None:
        """Bring finished files to the disk itself and seal them, those that have a seal left out."""
        known = self._known()
        new = {name: path for path in files if (name := self._name(path)) not in known}
        if not new:
            return
        with storing(f"'{self.path}'"):
            for path in [*new.values(), *{path.parent for path in new.values()}]:
                sync_path(path)
            lines = [_line(name, FileSeal.of(path)) for name, path in new.items()]
            is_new = not self.path.exists()
            with self.path.open("a", encoding="utf-8") as stream:
                # A crash may have left half a line.
                stream.write("\n" + "\n".join(lines) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            if is_new:
                sync_path(self.path.parent)

    def damaged(self, files: Iterable[Path], *, whole: bool, on_read: OnRead = uncounted) -> Path | None:
        """The first file that is missing or is not what it was; files without a seal are passed over."""
        known = self._known()
        for path in files:
            seal = known.get(self._name(path))
            if seal is None:
                continue
            if not (seal.fits(path, whole=True, on_read=on_read) if whole else seal.fits_still(path)):
                return path
        return None

    def forget_removed(self) -> None:
        """Give up the seals of files that are gone."""
        left = {name: seal for name, seal in self._known().items() if (self.folder / name).exists()}
        write_atomically(self.path, "".join(f"{_line(name, seal)}\n" for name, seal in left.items()))

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _known(self) -> dict[str, FileSeal]:
        try:
            return _lines_of(self.path).read()
        except FileNotFoundError:
            return {}


@lru_cache(maxsize=_MOST_TABLES)
def _lines_of(path: Path) -> CachedFile[dict[str, FileSeal]]:
    """Seals of a table, which grow with each change: nothing older is kept."""
    return CachedFile(path, partial(_seals_in, path))


def _line(name: str, seal: FileSeal) -> str:
    line = json.dumps([name, seal.model_dump()])
    return f"{digest_of(line.encode())} {line}"


def _seals_in(path: Path, lines: bytes) -> dict[str, FileSeal]:
    known: dict[str, FileSeal] = {}
    n_damaged = 0
    for line in filter(None, lines.split(b"\n")):
        digest, _, sealed = line.partition(b" ")
        if digest == digest_of(sealed).encode():
            name, seal = json.loads(sealed)
            known[name] = FileSeal.model_validate(seal)
        else:
            n_damaged += 1
    if n_damaged:
        logger.warning("%s lines of '%s' are damaged: what they were for is not compared", n_damaged, path)
    return known


class _Checked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    boot: str
    began: int


class Damage(BaseModel):
    """Damage that a check found."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    problem: str
    file: Path
    identity: tuple[int, ...]

    @classmethod
    def of(cls, error: DamagedGalleryError, problem: str | None = None) -> Self:
        """Damage that an error tells of, in its words or in others."""
        return cls(problem=problem or str(error), file=error.file, identity=file_identity(error.file))

    @property
    def error(self) -> DamagedGalleryError:
        """The error for whoever wants to search."""
        return DamagedGalleryError(self.problem, self.file)

    @property
    def may_be_mended(self) -> bool:
        """Whether another file lies there by now, or the same one was written again."""
        return file_identity(self.file) != self.identity


@dataclass(frozen=True)
class CheckNotes:
    """Notes beside the files of a version, of checks that compared every byte.

    checked.json   when the last one began, on which start of which machine
    damaged.json   what was found, until the files are whole again or are made again with their folder

    What is mapped is shared by all processes of a machine, and so is a check of it: one that began after a
    process opened the files counts for that process too. Nobody searches a version that one of them found
    damaged, also not after a restart.
    """

    folder: Path

    def note_whole(self, began: int) -> None:
        """Remember a check that found nothing."""
        self.forget()
        boot = _boot_id()
        # On a read-only disk there is no note, and every process checks for itself.
        with suppress(StorageError):
            if boot is not None:
                checked = _Checked(boot=boot, began=began).model_dump_json()
                write_sealed(self._checked, checked, durable=False)

    def forget(self) -> None:
        """Give up what was found: it is to be looked for again."""
        with suppress(OSError):
            self._damaged.unlink(missing_ok=True)

    def is_checked_since(self, moment: int) -> bool:
        """Whether a check that found nothing began after a moment of this machine, `time.monotonic_ns`."""
        try:
            found = _Checked.model_validate_json(read_sealed(self._checked))
        except (OSError, ValueError):
            return False
        return found.boot == _boot_id() and moment <= found.began <= time.monotonic_ns()

    def note_damage(self, damage: Damage) -> None:
        """Remember what was found."""
        with suppress(StorageError):
            write_sealed(self._damaged, damage.model_dump_json())

    def damage(self) -> Damage | None:
        """Damage that was found; None where none was. Cheap enough for every search."""
        path = self._damaged
        if not path.exists():
            return None
        try:
            return Damage.model_validate_json(read_sealed(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return Damage(problem=f"'{path}' is damaged", file=path, identity=())

    @property
    def _checked(self) -> Path:
        return self.folder / "checked.json"

    @property
    def _damaged(self) -> Path:
        return self.folder / "damaged.json"


def _boot_id() -> str | None:
    try:
        return _BOOT_ID.read_text(encoding="utf-8").strip()
    except OSError:
        # Where the system does not tell, every process checks for itself.
        return None

"""Notes beside the files of a version: when every byte of them was last compared, and which is damaged.

checked.json   when the last check began, on which start of which machine
damaged.json   what was found, until the files are whole again or are made again with their folder

What is mapped is shared by all processes of a machine, and so is a check of it: one that began after a
process opened the files counts for that process too. Nobody searches a version that one of them found
damaged, also not after a restart.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from vicinal.indexer.errors import DamagedGalleryError, StorageError
from vicinal.indexer.storage.files import read_sealed, write_sealed

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class _Checked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    boot: str
    began: int


class Damage(BaseModel):
    """What a check found.

    Attributes:
        problem: In one sentence, with what to do.
        file: The file.
        identity: Its identity when it was found damaged.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    problem: str
    file: Path
    identity: tuple[int, ...]

    @classmethod
    def of(cls, error: DamagedGalleryError, problem: str | None = None) -> Self:
        """What an error tells, or more than that."""
        return cls(problem=problem or str(error), file=error.file, identity=_identity(error.file))

    @property
    def error(self) -> DamagedGalleryError:
        """What whoever wants to search is told."""
        return DamagedGalleryError(self.problem, self.file)

    @property
    def may_be_mended(self) -> bool:
        """Whether another file lies there by now, or the same one was written again."""
        return _identity(self.file) != self.identity


@dataclass(frozen=True)
class CheckNotes:
    """Notes of one version.

    Attributes:
        folder: Folder of its files.
    """

    folder: Path

    def note_whole(self, began: int) -> None:
        """Remember a check that found nothing."""
        boot = _boot_id()
        # On a read-only disk there is no note, and every process checks for itself.
        self.forget()
        with suppress(StorageError):
            if boot is not None:
                write_sealed(
                    self._checked_path, _Checked(boot=boot, began=began).model_dump_json(), durable=False
                )

    def forget(self) -> None:
        """Give up what was found: it is to be looked for again."""
        with suppress(OSError):
            self._damaged_path.unlink(missing_ok=True)

    def is_checked_since(self, moment: int) -> bool:
        """Whether a check that found nothing began after a moment of this machine, `time.monotonic_ns`."""
        try:
            found = _Checked.model_validate_json(read_sealed(self._checked_path))
        except (OSError, ValueError):
            return False
        return found.boot == _boot_id() and moment <= found.began <= time.monotonic_ns()

    def note_damage(self, damage: Damage) -> None:
        """Remember what was found."""
        with suppress(StorageError):
            write_sealed(self._damaged_path, damage.model_dump_json())

    def damage(self) -> Damage | None:
        """What was found; None where nothing was. Cheap enough for every search."""
        if not self._damaged_path.exists():
            return None
        try:
            return Damage.model_validate_json(read_sealed(self._damaged_path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            path = self._damaged_path
            return Damage(problem=f"'{path}' is damaged", file=path, identity=())

    @property
    def _checked_path(self) -> Path:
        return self.folder / "checked.json"

    @property
    def _damaged_path(self) -> Path:
        return self.folder / "damaged.json"


def _identity(path: Path) -> tuple[int, ...]:
    """What another file of the same name does not share, nor the same one written again; () for none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _boot_id() -> str | None:
    try:
        return _BOOT_ID.read_text(encoding="utf-8").strip()
    except OSError:
        # Where the system does not tell, every process checks for itself.
        return None

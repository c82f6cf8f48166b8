"""Reserve: room on the disk that a removal may take when there is no other.

To remove an item writes a little. On a full disk that would be refused as well, and what helps there would be
the only thing that cannot be done. So a file holds some room beside the galleries; a removal that finds none
gives it up and tries once more, and the next change that finds room takes it back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vicinal.indexer.errors import StorageError

# Many times what Lance writes to remove items of a large table.
_N_BYTES = 4 * 2**20
Done = TypeVar("Done")


@dataclass(frozen=True)
class Reserve:
    """Room for all galleries of a folder."""

    folder: Path

    def keep(self) -> None:
        """Take the room, unless it is held or there is none to spare."""
        if self._path.exists():
            return
        try:
            with self._path.open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, _N_BYTES)
        except (AttributeError, OSError):
            # Full, read-only, or a system that promises no room.
            self._give_up()

    def used_if_full(self, remove: Callable[[], Done]) -> Done:
        """Remove something, with the room that is held where there is no other."""
        try:
            return remove()
        except StorageError:
            if not self._give_up():
                raise
            return remove()
        finally:
            self.keep()

    def _give_up(self) -> bool:
        with suppress(OSError):
            self._path.unlink()
            return True
        return False

    @property
    def _path(self) -> Path:
        return self.folder / ".reserve"

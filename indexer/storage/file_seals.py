"""File seals: what the files of an item table must look like, beside the table.

Lance keeps no checksums of what it stores: a bit that a disk has lost would come back as another embedding.
So every file that a commit writes gets a line here before the commit is answered for. A commit that never
came into force may leave lines behind, and a crash half a line; neither matters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from vicinal.indexer.storage.files import storing, sync_path, write_atomically
from vicinal.indexer.storage.seals import FileSeal, is_intact, is_whole, seal_of

__all__ = ["FileSeals"]


class FileSeals:
    """Seals of the files below a folder.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder.with_suffix(".seals")

    def add(self, files: Iterable[Path]) -> None:
        """Seal finished files, those that have a seal left out; on the disk when this returns.

        Raises:
            StorageError: The disk refuses.
        """
        known = self._known()
        new = {name: path for path in files if (name := self._name(path)) not in known}
        lines = [json.dumps([name, seal_of(path).model_dump()]) for name, path in new.items()]
        if not lines:
            return
        with storing(f"'{self.path}'"):
            is_new = not self.path.exists()
            with self.path.open("a", encoding="utf-8") as stream:
                # A crash may have left half a line.
                stream.write("\n" + "\n".join(lines) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            if is_new:
                sync_path(self.path.parent)

    def damaged(self, files: Iterable[Path], *, whole: bool) -> Path | None:
        """The first file that is missing or is not what it was; files without a seal are passed over.

        Args:
            files: What to compare.
            whole: Every byte, also of large files, of which else only samples are compared.
        """
        known, fits = self._known(), is_whole if whole else is_intact
        for path in files:
            seal = known.get(self._name(path))
            if seal is not None and not fits(path, seal):
                return path
        return None

    def forget_removed(self) -> None:
        """Give up the seals of files that are gone.

        Raises:
            StorageError: The disk refuses.
        """
        left = {name: seal for name, seal in self._known().items() if (self.folder / name).exists()}
        lines = [json.dumps([name, seal.model_dump()]) + "\n" for name, seal in left.items()]
        write_atomically(self.path, "".join(lines))

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _known(self) -> dict[str, FileSeal]:
        known: dict[str, FileSeal] = {}
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return known
        for line in lines:
            try:
                name, seal = json.loads(line)
                known[name] = FileSeal.model_validate(seal)
            except (ValueError, ValidationError):
                # Half a line, or an empty one.
                continue
        return known

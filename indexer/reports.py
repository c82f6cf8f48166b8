"""Reports of a gallery: what was found when a version was made, and what it was compared with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from vicinal.indexer.errors import GalleryError
from vicinal.indexer.storage.files import make_folder, write_atomically

__all__ = ["Reports"]

# Of names such as 20261121-182954-a3aecaa8.
_SECOND_LENGTH = len("20261121-182954")


class Reports:
    """Reports of the versions of one gallery.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, version: int) -> dict[str, Any]:
        """What the index job found when it made a version; empty when it left no report."""
        path = self._path(version)
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}

    def save(self, version: int, report: dict[str, Any]) -> None:
        """Keep what was found when a version was made."""
        make_folder(self.folder)
        write_atomically(self._path(version), json.dumps(report, indent=2) + "\n")

    def comparisons(self, version: int) -> dict[str, Path]:
        """Files of the comparisons of a version by name, oldest first.

        Names begin with the second; two of one second are told apart by the files, which never change.
        """
        files = sorted(
            self._comparisons_path(version).glob("*.json"),
            key=lambda path: (path.stem[:_SECOND_LENGTH], path.stat().st_mtime_ns),
        )
        return {path.stem: path for path in files}

    def save_comparison(self, version: int, name: str, text: str) -> None:
        """Keep what a version was compared with; it is never changed.

        Raises:
            GalleryError: There is a comparison of this name.
        """
        path = self._comparisons_path(version) / f"{name}.json"
        make_folder(path.parent)
        if path.exists():
            raise GalleryError(
                f"comparison '{name}' of version {version} exists: comparisons are not changed"
            )
        write_atomically(path, text)

    def remove(self, versions: set[int]) -> None:
        """Remove the reports and comparisons of versions that are gone."""
        for version in versions:
            self._path(version).unlink(missing_ok=True)
            shutil.rmtree(self._comparisons_path(version), ignore_errors=True)

    def _path(self, version: int) -> Path:
        return self.folder / f"{version}.json"

    def _comparisons_path(self, version: int) -> Path:
        return self.folder / f"{version}.comparisons"

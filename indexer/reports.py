"""Reports of a gallery: what was found when a version was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vicinal.indexer.storage.files import make_folder, read_sealed_or_refuse, write_sealed

_REMEDY = "bring it back from a backup; without it the gallery is searched as before, and not pruned by age"


class Reports:
    """Reports of the versions of one gallery."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, version: int) -> dict[str, Any]:
        """Findings of the index job when it made a version; empty when it left no report."""
        try:
            return dict(json.loads(read_sealed_or_refuse(self._path(version), _REMEDY)))
        except FileNotFoundError:
            return {}

    def save(self, version: int, report: dict[str, Any]) -> None:
        """Keep what was found when a version was made."""
        make_folder(self.folder)
        write_sealed(self._path(version), json.dumps(report, indent=2))

    def remove(self, versions: set[int]) -> None:
        """Remove the reports of versions that are gone."""
        for version in versions:
            self._path(version).unlink(missing_ok=True)

    def _path(self, version: int) -> Path:
        return self.folder / f"{version}.json"

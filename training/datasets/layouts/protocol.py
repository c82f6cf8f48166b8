"""Protocol folders: `protocol.csv` beside zip archives of images.

The CSV is a manifest with the columns `path,label,split,role`. An image lies in the archive named by its
split, or in the one named by the first folder of its path; its name inside is the path.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from vicinal.models.errors import DatasetError
from vicinal.training.datasets.files import ImageFolder, LabelledFile
from vicinal.training.datasets.layouts.manifest import ManifestConfig

_FILE = Path("protocol.csv")


class ProtocolConfig(ImageFolder):
    """A folder with `protocol.csv` and zip archives; see `training.datasets.layouts.protocol`."""

    kind: Literal["protocol"]
    split: str = "train"
    roles: tuple[str, ...] = ("train",)

    def rows(self) -> list[LabelledFile]:
        """Rows of one split with the given roles, in file order."""
        if not (self.root / _FILE).is_file():
            raise DatasetError(f"'{self.root}' is no protocol folder: it has no {_FILE}")
        listed = ManifestConfig(
            kind="manifest", root=self.root, file=_FILE, split=self.split, roles=self.roles
        ).rows()
        archive_of = cache(self._archive_of)
        return [replace(row, archive=archive_of(row.path.partition("/")[0])) for row in listed]

    def _archive_of(self, folder: str) -> str:
        names = [f"{self.split}.zip", f"{folder}.zip"]
        for name in names:
            if (self.root / name).is_file():
                return name
        raise DatasetError(f"images of '{folder}' are in neither {names[0]} nor {names[1]} of '{self.root}'")

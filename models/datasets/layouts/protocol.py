"""Protocol folders: `protocol.csv` beside zip archives of images.

The CSV has the columns `path,label,split,role`. An image lies in the archive named by its split, or in
the one named by the first folder of its path; its name inside is the path.
"""

from __future__ import annotations

from typing import Literal

from vicinal.models.datasets.files import ImageFolder, LabelledFile
from vicinal.models.datasets.layouts.annotations import read_csv
from vicinal.models.errors import DatasetError

__all__ = ["ProtocolConfig"]

_COLUMNS = ["path", "label", "split", "role"]


class ProtocolConfig(ImageFolder):
    """A folder with `protocol.csv` and zip archives; see `models.datasets.layouts.protocol`."""

    kind: Literal["protocol"]
    split: str = "train"
    roles: tuple[str, ...] = ("train",)

    def rows(self) -> list[LabelledFile]:
        """Rows of one split with the given roles, in file order.

        Raises:
            DatasetError: There is no protocol, a row is malformed, none is wanted, or an archive is missing.
        """
        path = self.root / "protocol.csv"
        if not path.is_file():
            raise DatasetError(f"'{self.root}' is no protocol folder: it has no protocol.csv")
        lines = read_csv(path, _COLUMNS)
        chosen = [line for line in lines if line["split"] == self.split and line["role"] in self.roles]
        if not chosen:
            roles = " or ".join(self.roles)
            raise DatasetError(f"'{path}' has no images of split '{self.split}' with role {roles}")
        archives: dict[str, str] = {}
        rows = []
        for line in chosen:
            folder = line["path"].partition("/")[0]
            if folder not in archives:
                archives[folder] = self._archive_of(line["path"], folder)
            rows.append(LabelledFile(line["path"], line["label"], line["role"], archive=archives[folder]))
        return rows

    def _archive_of(self, path: str, folder: str) -> str:
        names = [f"{self.split}.zip", f"{folder}.zip"]
        for name in names:
            if (self.root / name).is_file():
                return name
        raise DatasetError(f"'{path}' is in neither {names[0]} nor {names[1]} of '{self.root}'")

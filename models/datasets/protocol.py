"""Protocol folders: `protocol.csv` beside zip archives of images.

The CSV has the columns `path,label,split,role`. An image lies in the archive named by its split, or in
the one named by the first folder of its path; its name inside is the path.
"""

from __future__ import annotations

from pathlib import Path

from vicinal.models.datasets.annotations import read_csv
from vicinal.models.datasets.files import LabelledFile, open_archives
from vicinal.models.errors import DatasetError

__all__ = ["open_archives", "read_protocol"]

_COLUMNS = ["path", "label", "split", "role"]


def read_protocol(root: Path, *, split: str, roles: tuple[str, ...]) -> list[LabelledFile]:
    """Rows of one split with the given roles, in file order.

    Raises:
        DatasetError: There is no protocol, a row is malformed, none is wanted, or an archive is missing.
    """
    path = root / "protocol.csv"
    if not path.is_file():
        raise DatasetError(f"'{root}' is no protocol folder: it has no protocol.csv")
    lines = read_csv(path, _COLUMNS)
    chosen = [line for line in lines if line["split"] == split and line["role"] in roles]
    if not chosen:
        raise DatasetError(f"'{path}' has no images of split '{split}' with role {' or '.join(roles)}")
    archives: dict[str, str] = {}
    rows = []
    for line in chosen:
        folder = line["path"].partition("/")[0]
        if folder not in archives:
            archives[folder] = _archive_of(root, split, line["path"])
        rows.append(LabelledFile(line["path"], line["label"], line["role"], archive=archives[folder]))
    return rows


def _archive_of(root: Path, split: str, path: str) -> str:
    names = [f"{split}.zip", f"{path.partition('/')[0]}.zip"]
    for name in names:
        if (root / name).is_file():
            return name
    raise DatasetError(f"'{path}' is in neither {names[0]} nor {names[1]} of '{root}'")

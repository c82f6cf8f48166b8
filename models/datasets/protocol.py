"""Protocol folders: `protocol.csv` beside zip archives of images.

The CSV has the columns `path,label,split,role`. An image lies in the archive named by its split, or in
the one named by the first folder of its path; its name inside is the path.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from models.errors import DatasetError

__all__ = ["ProtocolRow", "open_archives", "read_protocol"]

_COLUMNS = ["path", "label", "split", "role"]


@dataclass(frozen=True)
class ProtocolRow:
    """One image of a protocol.

    Attributes:
        role: `train`, `gallery`, `query` (its label is in the gallery), `absent` (it is not) or `unused`.
    """

    path: str
    label: str
    split: str
    role: str


def read_protocol(root: Path, *, split: str, roles: tuple[str, ...]) -> list[ProtocolRow]:
    """Rows of one split with the given roles, in file order.

    Raises:
        DatasetError: There is no protocol, or it has no such rows.
    """
    path = root / "protocol.csv"
    if not path.is_file():
        raise DatasetError(f"'{root}' is no protocol folder: it has no protocol.csv")
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        if list(reader.fieldnames or ()) != _COLUMNS:
            raise DatasetError(f"'{path}' has columns {reader.fieldnames}, expected {_COLUMNS}")
        rows = [ProtocolRow(**row) for row in reader]
    chosen = [row for row in rows if row.split == split and row.role in roles]
    if not chosen:
        raise DatasetError(f"'{path}' has no images of split '{split}' with role {' or '.join(roles)}")
    return chosen


@contextmanager
def open_archives(root: Path) -> Iterator[Callable[[ProtocolRow], bytes]]:
    """Open the archives of a protocol folder as they are needed.

    Yields:
        A function from a row to the bytes of its image.
    """
    with ExitStack() as stack:
        archives: dict[Path, zipfile.ZipFile] = {}

        def read(row: ProtocolRow) -> bytes:
            path = _archive_of(root, row)
            if path not in archives:
                archives[path] = stack.enter_context(zipfile.ZipFile(path))
            try:
                return archives[path].read(row.path)
            except KeyError as error:
                raise DatasetError(f"archive '{path}' holds no '{row.path}'") from error

        yield read


def _archive_of(root: Path, row: ProtocolRow) -> Path:
    candidates = [root / f"{row.split}.zip", root / f"{row.path.partition('/')[0]}.zip"]
    for path in candidates:
        if path.is_file():
            return path
    raise DatasetError(
        f"'{row.path}' is in neither {candidates[0].name} nor {candidates[1].name} of '{root}'"
    )

"""Manifest: a CSV or Parquet table with the columns `path` and `label`.

It may have the columns `split`, `role` and `super_label`. Paths start from the manifest's folder unless they
are absolute; other columns are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet

from vicinal.models.configs.value_texts import label_in_one_form, value_as_text
from vicinal.models.errors import DatasetError
from vicinal.training.datasets.files import ImageFolder, LabelledFile
from vicinal.training.datasets.layouts.annotations import Line, read_csv

_REQUIRED = ("path", "label")
_OPTIONAL = ("split", "role", "super_label")
_ROLES = ("train", "test", "gallery", "query", "absent", "unused")


class ManifestConfig(ImageFolder):
    """A table of images beside them; see `training.datasets.layouts.manifest`.

    Attributes:
        file: Name of the `.csv` or `.parquet` file in the folder.
        split: Rows whose column `split` says so; None takes every row.
        roles: Rows whose column `role` says one of these; None takes every row that is not `unused`.
    """

    kind: Literal["manifest"]
    file: Path = Path("manifest.csv")
    split: str | None = None
    roles: tuple[str, ...] | None = None

    def rows(self) -> list[LabelledFile]:
        """Rows of the wanted split and roles, in file order; a row without a role has the role `train`."""
        path = self.root / self.file
        lines = list(_lines(path))
        if self.split is not None and any("split" not in line.fields for line in lines):
            raise DatasetError(f"'{path}' has no column 'split' to take '{self.split}' from")
        wanted = self.roles or tuple(role for role in _ROLES if role != "unused")
        rows = [_row(line) for line in lines if self.split in (None, line.fields.get("split"))]
        chosen = [row for row in rows if row.role in wanted]
        if not chosen:
            split = "" if self.split is None else f" of split '{self.split}'"
            raise DatasetError(f"'{path}' has no images{split} with role {' or '.join(wanted)}")
        return chosen


def _lines(path: Path) -> Iterator[Line]:
    if not path.is_file():
        raise DatasetError(f"there is no manifest '{path}'")
    match path.suffix.lower():
        case ".csv":
            return read_csv(path, _REQUIRED)
        case ".parquet":
            return _parquet_lines(path)
        case _:
            raise DatasetError(f"'{path}' is neither a .csv nor a .parquet manifest")


def _parquet_lines(path: Path) -> Iterator[Line]:
    try:
        table = pa.parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"manifest '{path}' cannot be read: {error}") from error
    for column in _REQUIRED:
        if column not in table.column_names:
            raise DatasetError(f"'{path}' has no column '{column}', only {', '.join(table.column_names)}")
    kept = [column for column in (*_REQUIRED, *_OPTIONAL) if column in table.column_names]
    # Numpy's float32 0.1 is 0.1, and Python's is not.
    columns = [
        one.to_numpy() if pa.types.is_floating(one.type) else one.to_pylist()
        for one in table.select(kept).columns
    ]
    for number, row in enumerate(zip(*columns, strict=True), start=1):
        line = Line(path, number, dict.fromkeys(kept, ""))
        try:
            texts = [value_as_text(value) or "" for value in row]
        except ValueError as error:
            raise line.error(f"it holds {error}: expected text, a whole number, or true or false") from error
        yield Line(path, number, dict(zip(kept, texts, strict=True)))


def _row(line: Line) -> LabelledFile:
    label = label_in_one_form(line["label"])
    for column, text in (("path", line["path"]), ("label", label)):
        if not text:
            raise line.error(f"it has no {column}")
    role = line.fields.get("role") or "train"
    if role not in _ROLES:
        raise line.error(f"role '{role}', expected one of {', '.join(_ROLES)}")
    super_label = label_in_one_form(line.fields.get("super_label", ""))
    return LabelledFile(line["path"], label, role, super_label=super_label)

"""Manifest: a CSV or Parquet table with the columns `path` and `label`.

It may have the columns `split`, `role` and `super_label`. Paths start from the manifest's folder unless they
are absolute; other columns are passed over.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet

from vicinal.models.configs.value_texts import label_in_one_form, value_as_text
from vicinal.models.errors import DatasetError
from vicinal.training.datasets.files import ImageFolder, LabelledFile

_REQUIRED = ("path", "label")
_OPTIONAL = ("split", "role", "super_label")
_ROLES = ("train", "test", "gallery", "query", "absent", "unused")


@dataclass(frozen=True)
class _Line:
    """Row of a manifest, counted from 1, with its text by column."""

    path: Path
    number: int
    fields: Mapping[str, str]

    def error(self, reason: str) -> DatasetError:
        """The error that names this row."""
        return DatasetError(f"'{self.path}' line {self.number}: {reason}")


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


def _lines(path: Path) -> Iterator[_Line]:
    if not path.is_file():
        raise DatasetError(f"there is no manifest '{path}'")
    match path.suffix.lower():
        case ".csv":
            return _csv_lines(path)
        case ".parquet":
            return _parquet_lines(path)
        case _:
            raise DatasetError(f"'{path}' is neither a .csv nor a .parquet manifest")


def _csv_lines(path: Path) -> Iterator[_Line]:
    try:
        # Some editors begin a file with a byte order mark.
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"'{path}' is not UTF-8 text") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = list(reader.fieldnames or ())
        missing = [column for column in _REQUIRED if column not in header]
        if missing:
            raise DatasetError(f"'{path}' has no column '{missing[0]}', only {', '.join(header) or 'none'}")
        for row in reader:
            line = _Line(path, reader.line_num, row)
            # What is too much stands under the key None, what is too little is None.
            if None in row or None in row.values():
                raise line.error(f"the header row has {len(header)} fields, this one has not")
            yield line
    except csv.Error as error:
        raise DatasetError(f"'{path}' line {reader.reader.line_num}: {error}") from error


def _parquet_lines(path: Path) -> Iterator[_Line]:
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
        line = _Line(path, number, dict.fromkeys(kept, ""))
        try:
            texts = [value_as_text(value) or "" for value in row]
        except ValueError as error:
            raise line.error(f"it holds {error}: expected text, a whole number, or true or false") from error
        yield _Line(path, number, dict(zip(kept, texts, strict=True)))


def _row(line: _Line) -> LabelledFile:
    label = label_in_one_form(line.fields["label"])
    for column, text in (("path", line.fields["path"]), ("label", label)):
        if not text:
            raise line.error(f"it has no {column}")
    role = line.fields.get("role") or "train"
    if role not in _ROLES:
        raise line.error(f"role '{role}', expected one of {', '.join(_ROLES)}")
    super_label = label_in_one_form(line.fields.get("super_label", ""))
    return LabelledFile(line.fields["path"], label, role, super_label=super_label)

"""Annotation files of a data set, read with their line numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vicinal.models.errors import DatasetError


@dataclass(frozen=True)
class Line:
    """Line of an annotation file, counted from 1, with its text by column."""

    path: Path
    number: int
    fields: Mapping[str, str]

    def __getitem__(self, column: str) -> str:
        return self.fields[column]

    def error(self, reason: str) -> DatasetError:
        """The error that names this line."""
        return DatasetError(f"'{self.path}' line {self.number}: {reason}")


def read_csv(path: Path, columns: Sequence[str]) -> Iterator[Line]:
    """Rows of a CSV file with a header row, which has these columns among others."""
    reader = csv.DictReader(io.StringIO(_text(path), newline=""), strict=True)
    try:
        header = list(reader.fieldnames or ())
        missing = [column for column in columns if column not in header]
        if missing:
            raise DatasetError(f"'{path}' has no column '{missing[0]}', only {', '.join(header) or 'none'}")
        for row in reader:
            line = Line(path, reader.line_num, row)
            # What is too much stands under the key None, what is too little is None.
            if None in row or None in row.values():
                raise line.error(f"the header row has {len(header)} fields, this one has not")
            yield line
    except csv.Error as error:
        raise DatasetError(f"'{path}' line {reader.reader.line_num}: {error}") from error


def _text(path: Path) -> str:
    try:
        # Some editors begin a file with a byte order mark.
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"'{path}' is not UTF-8 text") from error

"""Tables of text, as spreadsheets and programs write them: CSV files with a line that names the columns.

A column is read as numbers or as true and false only where the text of each value comes back exactly. All
else stays text as it was written, dates too. A row that cannot be read takes no other with it.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from vicinal.indexer.errors import SourceError

_DELIMITERS = ",;\t|"
# Excel's first line where the sign between columns is not the one of the country.
_SEPARATOR = re.compile(r'"?sep=(.)"?[;,\t|]*', re.IGNORECASE)
_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LOOKED_AT = 20
_MOST_BYTES = 2**30
_LONGEST_VALUE = 2**30
# Each may have been looked for until the end of the file.
_MOST_OPEN_QUOTES = 100
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_WHOLE = re.compile("0|-?[1-9][0-9]{0,15}")
_DECIMAL = re.compile("-?[0-9]+[.][0-9]+")
# As people write numbers by the custom of a country, some of them.
_LOCAL, _LOCAL_SIGN = re.compile("-?[0-9][0-9.,']*(?: ?%)?"), re.compile("[,%]")
# Larger ones lose digits wherever JSON is read with floats, as in browsers.
_LARGEST = 2**53
# As programs write a missing number.
_NAN = frozenset({"nan", "NaN"})
_SPELLINGS = (("true", "false"), ("True", "False"), ("TRUE", "FALSE"))


@dataclass(frozen=True)
class CsvTable:
    """Rows of a CSV file by number from 1, why others are bad, and text columns such as `12,50` or `5 %`."""

    table: pa.Table
    numbers: list[int]
    bad_rows: dict[int, str]
    local: dict[str, str]


def read_csv(path: Path, wanted: Collection[str], texts: Collection[str] = ()) -> CsvTable:
    """Read a table with commas, semicolons, tabs or upright lines in UTF-8, or UTF-16 or 32 with a mark."""
    lines = list(io.StringIO(_decoded(path), newline=""))
    delimiters = _DELIMITERS
    if lines and (said := _SEPARATOR.fullmatch(lines[0].rstrip("\r\n"))):
        delimiters, lines[0] = said[1], "\n"
    csv.field_size_limit(_LONGEST_VALUE)
    names, start, dialect = _header(path, lines, delimiters, wanted)
    rows: list[list[str]] = []
    numbers: list[int] = []
    bad: dict[int, str] = {}
    for number, (row, problem) in enumerate(_rows(lines, start, len(names), dialect), start=1):
        if problem is None:
            rows.append(row)
            numbers.append(number)
        else:
            bad[number] = problem
    if bad and not rows:
        raise SourceError(f"'{path}' cannot be read: none of its rows can, the first because {bad[1]}")
    columns = {
        name: [row[place] or None for row in rows] if name in texts else _typed([row[place] for row in rows])
        for place, name in enumerate(names)
    }
    local = {name: one for name, values in columns.items() if name not in wanted and (one := _local(values))}
    return CsvTable(pa.table({name: _array(one) for name, one in columns.items()}), numbers, bad, local)


def _decoded(path: Path) -> str:
    """The text; bytes of single lines that are not UTF-8 come as halves of characters."""
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise SourceError(
            f"'{path}' cannot be read: it has {size:,} bytes, and tables of text are read up to "
            f"{_MOST_BYTES:,}: give it in parts, or as Parquet"
        )
    encoded = path.read_bytes()
    found = next((name for mark, name in _ENCODINGS if encoded.startswith(mark)), None)
    if found is None and len(encoded) > 3 and not encoded[0] * encoded[1]:
        # Without a mark: the other half of each simple letter is zero.
        found = "utf-16-be" if encoded[0] == 0 else "utf-16-le"
    try:
        return encoded.decode(found or "utf-8")
    except UnicodeDecodeError as error:
        line = encoded.count(b"\n", 0, error.start) + 1
        text = encoded.decode("utf-8", "surrogateescape")
        if found in (None, "utf-8-sig") and not _NOT_UTF8.sub("", text).isascii():
            return text.removeprefix("\ufeff")
        raise SourceError(
            f"'{path}' cannot be read: line {line:,} is not {(found or 'utf-8').upper()}; save it as UTF-8"
        ) from error


def _header(
    path: Path, lines: Sequence[str], delimiters: str, wanted: Collection[str]
) -> tuple[list[str], int, dict[str, Any]]:
    """Names of the columns, where the rows begin, and how they are written."""
    filled = [*islice((i for i, line in enumerate(lines) if line.strip()), _LOOKED_AT)]
    if not filled:
        raise SourceError(f"'{path}' cannot be read: it is empty")
    heads = (
        max((_head(lines, first, one, wanted) for one in delimiters), key=itemgetter(0)) for first in filled
    )
    head = next(heads)
    # Titles and comments may stand above the names.
    if not head[0][0]:
        head = next((one for one in heads if one[0][0]), head)
    _, names, width, start, dialect = head
    # Rows may end with the sign too.
    while len(names) > max(1, width) and not names[-1]:
        names.pop()
    if _NOT_UTF8.search("".join(names)):
        raise SourceError(f"'{path}' cannot be read: the names of its columns are not UTF-8")
    require_single(names, path)
    return [name or f"column {place}" for place, name in enumerate(names, start=1)], start, dialect


def require_single(names: Sequence[str], path: Path) -> None:
    """Refuse a table that has a column twice."""
    if twins := [name for name, n in Counter(filter(None, names)).items() if n > 1]:
        raise SourceError(f"'{path}' has the column '{twins[0]}' twice: rename one, or leave it out")


def _head(
    lines: Sequence[str], first: int, delimiter: str, wanted: Collection[str]
) -> tuple[tuple[int, int, int], list[str], int, int, dict[str, Any]]:
    """Fit of a sign, the names, how many of them have values, where rows begin, and their dialect."""
    has_blanks = f"{delimiter} " in lines[first]
    dialect: dict[str, Any] = {"delimiter": delimiter, "strict": True, "skipinitialspace": has_blanks}
    reader = csv.reader(lines[first : first + _LOOKED_AT], **dialect)
    names, start = [lines[first].strip()], first + 1
    rows: list[list[str]] = []
    # What is wrong with quotes in the rows is said of the row.
    with suppress(csv.Error):
        names = [name.strip().strip("\u200b\ufeff").strip() for name in next(reader)]
        start = first + reader.line_num
        rows.extend(reader)
    n_alike = sum(len(row) == len(names) for row in rows)
    filled = (place for row in rows for place, one in enumerate(row, start=1) if one)
    width = max(filled, default=0) if n_alike == len(rows) else 0
    return (len({*names} & {*wanted}), min(len(names), 2) * n_alike, len(names)), names, width, start, dialect


def _rows(
    lines: Sequence[str], start: int, width: int, dialect: Mapping[str, Any]
) -> Iterator[tuple[list[str], str | None]]:
    """The values of each row, or why it cannot be read; after such a one the next line begins another."""
    n_open = 0
    may_be_odd = any(_NOT_UTF8.search(one) for one in lines if not one.isascii())
    while start < len(lines):
        reader = csv.reader((lines[i] for i in range(start, len(lines))), **dialect)
        line = start
        try:
            for row in reader:
                if len(row) > width and not any(row[width:]):
                    row = row[:width]
                if len(row) != width and any(row):
                    yield [], f"line {line + 1:,} has {len(row):,} values for {width:,} columns"
                    break
                if any(row):
                    is_odd = may_be_odd and _NOT_UTF8.search("".join(row)) is not None
                    yield row, f"line {line + 1:,} is not UTF-8" if is_odd else None
                line = start + reader.line_num
        except csv.Error as error:
            yield (
                [],
                f"line {line + 1:,} has quotes that are not closed, or not written twice inside of others",
            )
            n_open += "unexpected end" in str(error)
            if n_open > _MOST_OPEN_QUOTES:
                return
        start = line + 1


def _typed(values: Sequence[str]) -> list[Any]:
    """Values as numbers or booleans where all come back as they were written, otherwise as text."""
    known = {*values} - {""}
    for yes, no in _SPELLINGS:
        if known and known <= {yes, no}:
            return [one == yes if one else None for one in values]
    numbers: dict[str, int | float] = {}
    for one in () if known <= _NAN else known:
        if (number := _number(one)) is None:
            break
        numbers[one] = number
    return (
        [numbers.get(one) for one in values]
        if len(numbers) == len(known)
        else [one or None for one in values]
    )


def _number(text: str) -> int | float | None:
    """The number that is written exactly so."""
    if _WHOLE.fullmatch(text):
        return int(text) if abs(int(text)) <= _LARGEST else None
    if text in _NAN:
        return math.nan
    return float(text) if _DECIMAL.fullmatch(text) and repr(float(text)) == text else None


def _local(values: Sequence[Any]) -> str | None:
    """The first of a column of numbers that only people read as one."""
    known = [one for one in values if one is not None]
    if not all(isinstance(one, str) and _LOCAL.fullmatch(one) for one in known):
        return None
    return next(filter(_LOCAL_SIGN.search, known), None)


def _array(values: Sequence[Any]) -> pa.Array:
    kinds = {type(one) for one in values} - {type(None)}
    if kinds == {int, float}:
        return pa.array([None if one is None else float(one) for one in values])
    return pa.array(values, None if kinds else pa.string())

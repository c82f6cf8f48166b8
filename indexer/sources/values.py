"""Values of tables: images, named classes as Hugging Face notes them, texts of ids and labels, metadata."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Self
from zipfile import BadZipFile

import pyarrow as pa
import pyarrow.compute as pc

from vicinal.indexer.errors import ItemRefusedError, SourceError
from vicinal.models.configs.value_texts import value_as_text

# Column of JSON objects whose values are further columns, other ones in each row; named as Milvus does.
UNNAMED = "$meta"
# Negative numbers, of which Hugging Face takes -1, stand for no class.
_NO_CLASS = re.compile("-[0-9]+")


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Say what it is that a library cannot read."""
    try:
        yield
    except (ItemRefusedError, SourceError):
        raise
    except (pa.ArrowException, BadZipFile, EOFError, KeyError, OSError, RuntimeError, ValueError) as error:
        raise SourceError(f"{what} cannot be read: {error}") from error


class Features:
    """The columns of a data set; numbers of named classes are read as these names.

    Columns that hold images are those that Hugging Face notes; else structs with `bytes`; else plain bytes
    that are named `image` or are the only ones, where no column `path` says that images lie elsewhere.
    """

    def __init__(self, schema: pa.Schema, noted: Mapping[str, Any]) -> None:
        kinds = {
            name: noted[name].get("_type") if isinstance(noted[name], dict) else ""
            for name in schema.names
            if name in noted
        }
        # By their numbers, and by their names where no number is written so.
        self._classes = {
            name: {one: one for one in noted[name]["names"]}
            | {str(number): one for number, one in enumerate(noted[name]["names"])}
            for name, kind in kinds.items()
            if kind == "ClassLabel" and noted[name].get("names")
        }
        self.class_columns = list(self._classes)
        self.image_columns = [name for name, kind in kinds.items() if kind == "Image"]
        if not self.image_columns:
            # Sounds and videos are stored in the same way, and noted.
            bare = [one for one in schema if kinds.get(one.name, "Value") == "Value"]
            self.image_columns = _unnoted(bare, has_paths="path" in schema.names)
        self.schema = self.named(schema.empty_table()).schema

    @classmethod
    def of(cls, schema: pa.Schema) -> Self:
        """Features that are noted in the schema of a Parquet file."""
        note = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        for key in ("info", "features"):
            note = note.get(key) if isinstance(note, dict) else None
        return cls(schema, note if isinstance(note, dict) else {})

    def named(self, table: pa.Table, first: int = 0) -> pa.Table:
        """Rows with the names of their classes; `first` is the number of the first row, from 0.

        Raises:
            ValueError: A row has a class that is not noted, or none that can be told.
        """
        for name in set(self._classes) & set(table.column_names):
            names, texts = self._classes[name], column_texts(table[name], name, "a data set", first)
            coded = texts.dictionary_encode()
            said = coded.dictionary.to_pylist()
            unknown = [one for one in said if one not in names and not _NO_CLASS.fullmatch(one)]
            for one in unknown[:1]:
                row = first + pc.index(texts, one).as_py() + 1
                raise ValueError(
                    f"row {row:,} of column '{name}' has class {one}, and there are names of "
                    f"{len(set(names.values())):,} classes"
                )
            found = pa.array([names.get(one) for one in said], pa.string()).take(coded.indices)
            table = table.set_column(table.column_names.index(name), name, found)
        return table.replace_schema_metadata(None)


def _unnoted(columns: list[pa.Field], *, has_paths: bool) -> list[str]:
    structs = [one.name for one in columns if _bytes_field(one.type) is not None]
    plain = [one.name for one in columns if _is_bytes(one.type)]
    if structs or has_paths:
        return structs
    return ["image"] if "image" in plain else plain if len(plain) == 1 else []


def image_parts(images: Any) -> tuple[Any, Any]:
    """Bytes and paths of a column of images, structs or plain bytes; None where there are no paths."""
    if _is_bytes(images.type):
        return images, None
    if _bytes_field(images.type) is None:
        raise ValueError(f"a column of images holds {images.type}, expected bytes")
    has_paths = images.type.get_field_index("path") >= 0
    return pc.struct_field(images, "bytes"), pc.struct_field(images, "path") if has_paths else None


def holds_bytes(kind: pa.DataType) -> bool:
    """Tell whether values of a column are bytes, or hold some, such as those of a picture."""
    if pa.types.is_struct(kind):
        return any(holds_bytes(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return holds_bytes(kind.value_type)
    return _is_bytes(kind)


def _bytes_field(kind: pa.DataType) -> pa.Field | None:
    """The field `bytes` of a struct that has one."""
    place = kind.get_field_index("bytes") if pa.types.is_struct(kind) else -1
    return kind.field(place) if place >= 0 and _is_bytes(kind.field(place).type) else None


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def column_texts(column: pa.ChunkedArray, name: str, place: str, first: int = 0) -> pa.Array:
    """Ids or labels of a column, by `value_as_text`; null for missing ones. Rows count from `first`."""
    column = _plain(column)
    kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if is_text or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        texts = column.cast(pa.string()).combine_chunks()
        return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    # Numpy's float32 0.1 is 0.1, and Python's is not.
    values = column.to_numpy() if pa.types.is_floating(kind) else _values(column)
    return values_as_texts(values, f"'{name}' of '{place}' holds {kind}", first)


def table_texts(table: pa.Table, name: str, place: str) -> list[str | None]:
    """Ids or labels of a column of a table; None where there is none."""
    if name not in table.column_names:
        return [None] * len(table)
    texts: list[str | None] = column_texts(table[name], name, place).to_pylist()
    return texts


def values_as_texts(values: Iterable[Any], what: str, first: int = 0) -> pa.Array:
    """Ids or labels by `value_as_text`, null for missing ones."""
    found: list[str | None] = []
    for row, value in enumerate(values, start=first + 1):
        try:
            found.append(value_as_text(value))
        except ValueError as error:
            raise SourceError(
                f"{what}, in row {row:,} {error}: expected text, a whole number, or true or false"
            ) from error
    return pa.array(found, pa.string())


def metadata_rows(table: pa.Table, taken: Collection[str | None]) -> list[dict[str, Any]]:
    """Metadata of the rows of a table, as JSON can hold them: all columns but `taken` and those of bytes."""
    names = [one.name for one in table.schema if one.name not in taken and not holds_bytes(one.type)]
    # Without columns a table of Arrow gives no rows at all.
    if not names:
        return [{} for _ in range(len(table))]
    columns = [_values(_plain(table[name])) for name in names]
    rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    return [known_values(_with_unnamed(row)) for row in rows]


def _with_unnamed(row: dict[str, Any]) -> dict[str, Any]:
    others = row.get(UNNAMED)
    return {key: row[key] for key in row if key != UNNAMED} | others if isinstance(others, dict) else row


def other_spelling(name: str, names: Sequence[str]) -> str | None:
    """A name that is the same but for case and blanks; None where there is none."""
    return next((one for one in names if one.strip().casefold() == name.casefold()), None)


def known_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON can hold them, without missing and empty ones; NaN is null."""
    return {key: _as_json(value) for key, value in row.items() if value is not None and value != ""}


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_float16(column.type) or pa.types.is_float32(column.type):
        # With the digits that were written: float32 0.1 is 0.1 and not 0.10000000149011612.
        return [float(str(one)) for one in column.to_numpy()]
    values: list[Any] = column.to_pylist()
    return [json.loads(one) if one else one for one in values] if column.type == pa.json_() else values


def _as_json(value: Any) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    # JSON has no form for times and decimals, and knows no NaN.
    return json.loads(json.dumps(value, default=_written), parse_constant=lambda _: None)


def _written(value: Any) -> str | None:
    if type(value).__name__ == "NaTType":
        return None
    if isinstance(value, Decimal):
        # Never as 0E-9.
        return f"{value:f}"
    # In the form of ISO 8601, with its zone, by whose beginning filters find days and hours.
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without a dictionary, and with times in a unit that Python has."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column

"""Features: which columns of a data set hold images and which named classes, as Hugging Face notes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Features", "holds_bytes", "image_parts"]


class Features:
    """The columns of a data set; numbers of named classes are read as these names.

    Args:
        schema: Its columns as they are stored.
        noted: What Hugging Face notes of them, by name; may be empty.

    Attributes:
        schema: Its columns as they are read.
        image_columns: Those that hold images: as is noted; else structs with `bytes`; else plain bytes that
            are named `image` or are the only ones, where no column `path` says that images lie elsewhere.
        class_columns: Those that hold named classes.
    """

    def __init__(self, schema: pa.Schema, noted: Mapping[str, Any]) -> None:
        kinds = {
            name: noted[name].get("_type") if isinstance(noted[name], dict) else ""
            for name in schema.names
            if name in noted
        }
        self._classes = {
            name: pa.array(noted[name]["names"], pa.string())
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
        """Those that are noted in the schema of a Parquet file.

        Raises:
            ValueError: The note is damaged.
        """
        note = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        for key in ("info", "features"):
            note = note.get(key) if isinstance(note, dict) else None
        return cls(schema, note if isinstance(note, dict) else {})

    def named(self, table: pa.Table) -> pa.Table:
        """Rows with the names of their classes.

        Raises:
            ArrowException: A number stands for no class.
        """
        for name in set(self._classes) & set(table.column_names):
            # -1 stands for no class.
            numbers = pc.if_else(pc.less(table[name], 0), None, table[name])
            texts = self._classes[name].take(numbers.combine_chunks())
            table = table.set_column(table.column_names.index(name), name, texts)
        return table.replace_schema_metadata(None)


def _unnoted(columns: list[pa.Field], *, has_paths: bool) -> list[str]:
    structs = [one.name for one in columns if _bytes_field(one.type) is not None]
    plain = [one.name for one in columns if _is_bytes(one.type)]
    if structs or has_paths:
        return structs
    return ["image"] if "image" in plain else plain if len(plain) == 1 else []


def image_parts(images: Any) -> tuple[Any, Any]:
    """What a column of images has of each: its bytes, and its path, or None where there are no paths.

    Args:
        images: Array or chunked array of n structs with `bytes` and maybe `path`, or of n values of bytes.

    Raises:
        ValueError: They are neither.
    """
    if _is_bytes(images.type):
        return images, None
    if _bytes_field(images.type) is None:
        raise ValueError(f"a column of images holds {images.type}, expected bytes")
    has_paths = images.type.get_field_index("path") >= 0
    return pc.struct_field(images, "bytes"), pc.struct_field(images, "path") if has_paths else None


def holds_bytes(kind: pa.DataType) -> bool:
    """Whether values of a column are bytes, or hold some, such as those of a picture."""
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

"""Sources of a gallery: a folder of images, or a CSV or Parquet manifest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from vicinal.indexer.errors import SourceError
from vicinal.models.decoding import IMAGE_SUFFIXES

__all__ = ["SourceItem", "as_json", "read_source"]

# Left to guess, Arrow would read the id 007 as the number 7, and text that is not UTF-8 as bytes.
_CSV_TEXT = pa.csv.ConvertOptions(column_types=dict.fromkeys(("path", "id", "label"), pa.string()))
_MANIFEST_READERS = {
    ".csv": partial(pa.csv.read_csv, convert_options=_CSV_TEXT),
    ".parquet": pa.parquet.read_table,
}


@dataclass(frozen=True)
class SourceItem:
    """One image to index.

    Attributes:
        id: Id within the gallery.
        path: File to read; absolute, so that it can be embedded again by a process in another folder.
        label: Class, or None when unlabelled.
        metadata: Further values, as JSON can hold them.
    """

    id: str
    path: Path
    label: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def read_source(path: Path) -> list[SourceItem]:
    """List the images of a source, in a fixed order.

    A folder gives every image below it, with its path inside the folder as id; images in a subfolder
    carry the name of the topmost one as label. A manifest is a `.csv` or `.parquet` file with a column
    `path` (taken from the manifest's folder when relative) and optionally `id`, `label` and any others,
    which become metadata.

    Raises:
        SourceError: The source is missing, empty, or of another kind; a manifest lacks `path`.
    """
    if path.is_dir():
        items = list(_folder_items(path.absolute()))
    elif path.suffix.lower() in _MANIFEST_READERS and path.is_file():
        items = list(_manifest_items(path))
    elif path.exists():
        raise SourceError(f"'{path}' is neither a folder nor a .csv or .parquet manifest")
    else:
        raise SourceError(f"there is no source '{path}'")
    if not items:
        raise SourceError(f"'{path}' holds no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
    return items


def _folder_items(root: Path) -> Iterator[SourceItem]:
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file():
            inside = path.relative_to(root)
            label = inside.parts[0] if len(inside.parts) > 1 else None
            yield SourceItem(inside.as_posix(), path, label)


def _manifest_items(manifest: Path) -> Iterator[SourceItem]:
    table = _read_table(manifest)
    if "path" not in table.column_names:
        hint = "; name a column of ready embeddings by --embedding-column" if _has_lists(table) else ""
        raise SourceError(
            f"manifest '{manifest}' has no column 'path', only {', '.join(table.column_names)}{hint}"
        )
    for line, row in enumerate(table.to_pylist(), start=1):
        location = row.pop("path")
        if not location:
            raise SourceError(f"row {line} of manifest '{manifest}' has an empty path")
        item_id, label = row.pop("id", None), row.pop("label", None)
        yield SourceItem(
            id=str(location if item_id in (None, "") else item_id),
            path=manifest.absolute().parent / str(location),
            label=None if label in (None, "") else str(label),
            metadata={key: as_json(value) for key, value in row.items() if value is not None},
        )


def _has_lists(table: pa.Table) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(field.type) for field in table.schema for is_kind in kinds)


def _read_table(manifest: Path) -> pa.Table:
    try:
        return _MANIFEST_READERS[manifest.suffix.lower()](manifest)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"manifest '{manifest}' cannot be read: {error}") from error


def as_json(value: Any) -> Any:
    """A value of a table as JSON can hold it; NaN becomes None."""
    # Dates and decimals of a Parquet file have no JSON form of their own, and JSON knows no NaN.
    return json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)

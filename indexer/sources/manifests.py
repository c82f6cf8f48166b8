"""Manifests: CSV and Parquet files with a row for each image."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources.items import SourceItem, SourceOptions, as_json
from vicinal.indexer.sources.parquet_datasets import PARQUET, open_parquet
from vicinal.indexer.sources.remote import file_of_row

__all__ = ["MANIFEST_SUFFIXES", "manifest_items", "read_csv"]

_LONGEST_HEAD = 2**16
MANIFEST_SUFFIXES = frozenset({".csv", PARQUET})


def manifest_items(manifest: Path, options: SourceOptions) -> list[SourceItem]:
    """The rows of a manifest.

    Raises:
        SourceError: It cannot be read, lacks a column, or has an id twice.
    """
    return _Manifest(manifest, options).items()


class _Manifest:
    def __init__(self, path: Path, options: SourceOptions) -> None:
        self._path, self._options, self._rule = path, options, options.label_rule
        self._names = {
            "path": options.path_column or "path",
            "label": options.label_column or "label",
            "id": options.id_column or "id",
        }
        self._table = self._read()
        self._check_columns()

    def items(self) -> list[SourceItem]:
        folder, prefix = self._path.absolute().parent, self._options.prefix_of("")
        rows = self._table.to_pylist()
        paths = [_text(row[self._names["path"]]) or "" for row in rows]
        taken = {self._names["path"], self._names["id"]}
        if self._rule.kind in ("given", "auto", "column"):
            labels = [_text(row.get(self._names["label"])) for row in rows]
            taken.add(self._names["label"])
        else:
            labels = self._rule.of_paths(paths)
            if self._rule.kind == "folder" and not any(labels):
                raise SourceError(
                    f"no path of manifest '{self._path}' begins with a folder, such as '{paths[0]}': take "
                    "labels from column or regex:PATTERN"
                )
        items = []
        for path, item_id, label, row in zip(paths, self._ids(rows, paths), labels, rows, strict=True):
            file, problem = file_of_row(path, self._options.access, folder, self._path)
            items.append(SourceItem(f"{prefix}{item_id}", file, label, _metadata(row, taken), problem))
        return items

    def _ids(self, rows: list[dict[str, Any]], paths: list[str]) -> list[str]:
        """Ids, each there once; the path where there is none, or the number of the row."""
        ids = [
            _text(row.get(self._names["id"])) or path or f"row {line}"
            for line, (row, path) in enumerate(zip(rows, paths, strict=True), start=1)
        ]
        earlier: dict[str, int] = {}
        for line, item_id in enumerate(ids, start=1):
            if earlier.setdefault(item_id, line) != line:
                raise SourceError(
                    f"rows {earlier[item_id]:,} and {line:,} of manifest '{self._path}' have one id, "
                    f"'{item_id}': leave one of them out, or name a column of ids by --id-column"
                )
        return ids

    def _check_columns(self) -> None:
        needed = {"path": True, "label": self._rule.kind == "column", "id": False}
        for name, is_needed in needed.items():
            column, chosen = self._names[name], getattr(self._options, f"{name}_column")
            if column in self._table.column_names or not (is_needed or chosen):
                continue
            what, hint = f"{name}s", ""
            if name == "path" and self._path.suffix.lower() == PARQUET:
                what = "paths, or of the images themselves,"
            if name == "path" and _has_lists(self._table):
                hint = "; if it holds ready embeddings, name their column by --embedding-column"
            raise SourceError(
                f"manifest '{self._path}' has no column '{column}', only "
                f"{', '.join(self._table.column_names)}: name the one of the {what} by --{name}-column{hint}"
            )

    def _read(self) -> pa.Table:
        try:
            if self._path.suffix.lower() == PARQUET:
                return open_parquet(self._path).read()
            return read_csv(self._path, self._names.values())
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"manifest '{self._path}' cannot be read: {error}") from error


def read_csv(path: Path, texts: Iterable[str]) -> pa.Table:
    """A table of text, with commas, semicolons or tabs between its columns.

    Args:
        path: The file, whose first line names the columns.
        texts: Columns that hold text. Left to guess, Arrow would read the id 007 as the number 7, and text
            that is not UTF-8 as bytes.

    Raises:
        ArrowException: It is no such table.
        OSError: It cannot be read.
    """
    return pa.csv.read_csv(
        path,
        # One thread: with several, Arrow's reader now and then waits for itself, for ever.
        read_options=pa.csv.ReadOptions(use_threads=False),
        parse_options=pa.csv.ParseOptions(delimiter=_delimiter(path)),
        convert_options=pa.csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.string())),
    )


def _delimiter(path: Path) -> str:
    """What stands between the names of the columns: tables are also written with semicolons or tabs."""
    with path.open("rb") as stream:
        head = stream.readline(_LONGEST_HEAD).decode("utf-8", "replace")
    return next((one for one in ",;\t" if one in head), ",")


def _text(value: Any) -> str | None:
    return None if value in (None, "") else str(value)


def _metadata(row: dict[str, Any], taken: set[str]) -> dict[str, Any]:
    return {key: as_json(value) for key, value in row.items() if value is not None and key not in taken}


def _has_lists(table: pa.Table) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(field.type) for field in table.schema for is_kind in kinds)

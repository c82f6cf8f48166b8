"""Dataset rows: the images of a saved dataset of Hugging Face, with ids and labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources.datasets import DatasetImage, SavedDataset, holds_bytes
from vicinal.indexer.sources.items import SourceItem, SourceOptions, as_json
from vicinal.indexer.sources.remote import ImageFile, file_at

__all__ = ["dataset_items"]


def dataset_items(folder: Path, options: SourceOptions) -> list[SourceItem]:
    """The rows of a dataset that have an image.

    Args:
        folder: What `save_to_disk` wrote; absolute.
        options: How ids and labels are found.

    Raises:
        SourceError: It cannot be read, lacks a column, has an id twice, or labels cannot be taken from where
            the options say.
    """
    try:
        return _Rows(folder, options).items()
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"dataset '{folder.name}' cannot be read: {error}") from error


class _Rows:
    def __init__(self, folder: Path, options: SourceOptions) -> None:
        self._folder, self._options, self._saved = folder, options, SavedDataset(folder)
        if options.label_rule.kind in ("folder", "regex"):
            raise SourceError(f"labels of dataset '{folder.name}' come from column or none: it has no paths")
        self._image = self._column(options.path_column, self._saved.image_columns, "image", "path")
        classes = self._saved.class_columns
        self._label = self._column(options.label_column, ["label", *classes], "label", "label")
        self._id = self._column(options.id_column, ["id"], "id", "id")

    def items(self) -> list[SourceItem]:
        table = self._table()
        ids, files = self._ids(table), self._files(table)
        is_label = self._label is not None and self._options.label_rule.kind != "none"
        labels = table[self._label].to_pylist() if is_label else [None] * len(table)
        taken = {self._image, self._id, self._label if is_label else None}
        others = [one.name for one in table.schema if one.name not in taken and not holds_bytes(one.type)]
        rows = table.select(others).to_pylist() if others else [{}] * len(table)
        return [
            SourceItem(item_id, file, None if label in (None, "") else str(label), _metadata(row))
            for item_id, file, label, row in zip(ids, files, labels, rows, strict=True)
            if file is not None
        ]

    def _column(self, chosen: str | None, usual: Sequence[str], what: str, option: str) -> str | None:
        names = self._saved.schema.names
        found = [name for name in ([chosen] if chosen else usual) if name in names]
        is_needed = chosen or what == "image" or (what == "label" and self._rule == "column")
        if not found and is_needed:
            raise SourceError(
                f"dataset '{self._folder.name}' has no column '{chosen or what}', only {', '.join(names)}: "
                f"name the one of the {what}s by --{option}-column"
            )
        return found[0] if found else None

    @property
    def _rule(self) -> str:
        return self._options.label_rule.kind

    def _table(self) -> pa.Table:
        """All of it but the bytes, which may be more than the memory holds."""
        tables = []
        for table in self._saved.batches(1024):
            images = table[self._image]
            is_struct = pa.types.is_struct(images.type)
            stored = pc.struct_field(images, "bytes") if is_struct else images
            paths = pc.struct_field(images, "path") if is_struct else pa.nulls(len(table), pa.string())
            other = pc.if_else(pc.is_valid(stored), pa.scalar("", pa.string()), paths)
            keep = [one.name for one in table.schema if not holds_bytes(one.type)]
            tables.append(table.select(keep).append_column(str(self._image), other))
        return pa.concat_tables(tables) if tables else self._saved.schema.empty_table()

    def _files(self, table: pa.Table) -> list[ImageFile | None]:
        """Where the images are: in the dataset, or in files that it names; None where there is none."""
        return [
            None
            if path is None
            else file_at(path, self._options.access, self._folder)
            if path
            else DatasetImage(self._folder, str(self._image), row)
            for row, path in enumerate(table[self._image].to_pylist())
        ]

    def _ids(self, table: pa.Table) -> list[str]:
        prefix = self._options.prefix_of(self._folder.resolve().name)
        said: list[Any] = table[self._id].to_pylist() if self._id else [None] * len(table)
        earlier: dict[str, int] = {}
        for row, value in enumerate(said):
            item_id = f"{prefix}{row if value in (None, '') else value}"
            if earlier.setdefault(item_id, row) != row:
                raise SourceError(
                    f"rows {earlier[item_id] + 1:,} and {row + 1:,} of dataset '{self._folder.name}' have "
                    f"one id, '{item_id}': name a column of ids by --id-column"
                )
        return list(earlier)


def _metadata(row: dict[str, Any]) -> dict[str, Any]:
    return {key: as_json(value) for key, value in row.items() if value is not None}

"""Dataset rows: the images of datasets of Hugging Face, with ids and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from vicinal.calibration.advice import advise
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources.datasets import DatasetImage, SavedDataset
from vicinal.indexer.sources.items import SourceItem, SourceOptions
from vicinal.indexer.sources.parquet_datasets import ParquetDataset
from vicinal.indexer.sources.remote import ImageFile, file_of_row
from vicinal.indexer.sources.values import holds_bytes, metadata_rows, reading, table_texts


def dataset_items(
    place: Path, options: SourceOptions, name: str = "", files: Mapping[str, Path] | None = None
) -> list[SourceItem]:
    """Rows of a dataset that `save_to_disk` wrote, or of Parquet files with images inside, in order.

    `name` stands before their ids where the options say so, and the names of files before their rows'.
    """
    with reading(f"dataset '{place.name}'"):
        dataset = SavedDataset(place) if files is None else ParquetDataset(files)
        return _Rows(place, options, dataset).items(name)


class _Rows:
    def __init__(self, place: Path, options: SourceOptions, dataset: SavedDataset | ParquetDataset) -> None:
        self._place, self._options, self._dataset = place, options, dataset
        self._rule = options.label_rule.kind
        if self._rule in ("folder", "regex"):
            raise SourceError(f"labels of dataset '{place.name}' come from column or none: it has no paths")
        features = dataset.features
        self._image = str(self._column(options.path_column, features.image_columns, "image", "path"))
        label = self._column(options.label_column, ["label", *features.class_columns], "label", "label")
        self._label = None if self._rule == "none" else label
        self._id = self._column(options.id_column, ["id"], "id", "id")

    def items(self, name: str) -> list[SourceItem]:
        paths, is_here = self._dataset.images(self._image)
        schema = self._dataset.schema
        table = self._dataset.table([one.name for one in schema if not holds_bytes(one.type)])
        ids, files = self._ids(name, table, paths), self._files(paths, is_here)
        labels = self._texts(table, self._label, len(ids))
        # Without columns a table has no rows.
        rows = metadata_rows(table, {self._id, self._label}) if table.num_columns else [{} for _ in ids]
        return [
            SourceItem(item_id, file, label, row, problem)
            for item_id, (file, problem), label, row in zip(ids, files, labels, rows, strict=True)
        ]

    def _texts(self, table: pa.Table, column: str | None, n: int) -> list[str | None]:
        if column is None:
            return [None] * n
        if column not in table.column_names:
            table = self._dataset.table([column])
        return table_texts(table, column, self._place.name)

    def _column(self, chosen: str | None, usual: Sequence[str], what: str, option: str) -> str | None:
        names = self._dataset.schema.names
        found = [name for name in ([chosen] if chosen else usual) if name in names]
        is_needed = chosen or what == "image" or (what == "label" and self._rule == "column")
        if not found and is_needed:
            named = f"'{chosen}'" if chosen else f"of {what}s"
            raise SourceError(
                f"dataset '{self._place.name}' has no column {named}, only {', '.join(names)}: ",
                advise(f"name the one of the {what}s by {{{option}_column}}"),
            )
        return found[0] if found else None

    def _files(
        self, paths: Sequence[str | None], is_here: Sequence[bool]
    ) -> list[tuple[ImageFile, str | None]]:
        """Places of the images: in the dataset, or in files that it names; and why a row has none."""
        is_file = isinstance(self._dataset, ParquetDataset)
        return [
            file_of_row(path, self._options.access, file.parent if is_file else file, file)
            if path and not stored
            else (DatasetImage(file, self._image, inside), None)
            for row, (path, stored) in enumerate(zip(paths, is_here, strict=True))
            for file, inside, _ in [self._dataset.place(row)]
        ]

    def _ids(self, name: str, table: pa.Table, paths: Sequence[str | None]) -> list[str]:
        """Ids, each there once: those that a column has, else paths that are there once, else rows."""
        prefix, times = self._options.prefix_of(name), Counter(paths)
        said = self._texts(table, self._id, len(paths))
        earlier: dict[str, int] = {}
        for row, (value, path) in enumerate(zip(said, paths, strict=True)):
            own = path if path and times[path] == 1 else self._dataset.place(row)[2]
            item_id = f"{prefix}{value or own}"
            if earlier.setdefault(item_id, row) != row:
                raise SourceError(
                    f"rows {earlier[item_id] + 1:,} and {row + 1:,} of dataset '{self._place.name}' have "
                    f"one id, '{item_id}': ",
                    advise("name a column of ids by {id_column}"),
                )
        return list(earlier)

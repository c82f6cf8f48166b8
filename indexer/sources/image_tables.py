"""Image tables: manifests with a row for each image, and datasets of Hugging Face with images inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from vicinal.calibration.advice import advise
from vicinal.indexer.csv_tables import CsvTable, read_csv, require_single
from vicinal.indexer.errors import SourceError
from vicinal.indexer.item_rules import id_of_path
from vicinal.indexer.sources.datasets import DatasetImage, SavedDataset
from vicinal.indexer.sources.items import SourceItem, SourceOptions
from vicinal.indexer.sources.parquet_datasets import PARQUET, ParquetDataset, open_parquet
from vicinal.indexer.sources.remote import ImageFile, file_of_row
from vicinal.indexer.sources.values import (
    Features,
    holds_bytes,
    metadata_rows,
    other_spelling,
    reading,
    table_texts,
)

MANIFEST_SUFFIXES = (".csv", ".tsv", PARQUET)


def manifest_items(manifest: Path, options: SourceOptions) -> tuple[list[SourceItem], str | None]:
    """The rows of a manifest, and what is to be said of its columns."""
    opened = _Manifest(manifest, options)
    return opened.items(), opened.remark()


class _Manifest:
    def __init__(self, path: Path, options: SourceOptions) -> None:
        self._path, self._options, self._rule = path, options, options.label_rule
        self._names = {
            "path": options.path_column or "path",
            "label": options.label_column or "label",
            "id": options.id_column or "id",
        }
        self._read_as = self._read()
        self._table = self._read_as.table
        self._check_columns()
        if not len(self._table) and not self._read_as.bad_rows:
            names = ", ".join(self._table.column_names)
            raise SourceError(f"manifest '{path}' has no rows, only the columns {names}")

    def items(self) -> list[SourceItem]:
        folder, prefix = self._path.absolute().parent, self._options.prefix_of("")
        numbers, bad_rows = self._read_as.numbers, self._read_as.bad_rows
        paths = [one or "" for one in self._texts("path")]
        taken = {self._names["path"], self._names["id"]}
        if self._rule.kind in ("given", "auto", "column"):
            labels = self._texts("label")
            taken.add(self._names["label"])
        else:
            labels = self._rule.of_paths(paths)
            if self._rule.kind == "folder" and not any(labels):
                raise SourceError(
                    f"no path of manifest '{self._path}' begins with a folder, such as '{paths[0]}': take "
                    "labels from column or regex:PATTERN"
                )
        found = {
            number: SourceItem(f"row {number}", self._path, problem=reason)
            for number, reason in bad_rows.items()
        }
        rows = zip(numbers, paths, self._ids(paths), labels, metadata_rows(self._table, taken), strict=True)
        for number, path, item_id, label, metadata in rows:
            file, problem = file_of_row(path, self._options.access, folder, self._path)
            found[number] = SourceItem(f"{prefix}{item_id}", file, label, metadata, problem)
        return [found[number] for number in sorted(found)]

    def _texts(self, name: str) -> list[str | None]:
        return table_texts(self._table, self._names[name], self._path.name)

    def remark(self) -> str | None:
        """Remark on what a user may have meant otherwise."""
        said = []
        for name, what in (("label", "labels"), ("id", "ids")):
            if self._names[name] not in self._table.column_names and (
                other := other_spelling(self._names[name], self._table.column_names)
            ):
                said.append(f"column '{other}' gives no {what}: name it by --{name}-column, if it holds them")
        if local := self._read_as.local:
            column, value = next(iter(local.items()))
            said.append(
                f"filters do not compare column '{column}' with numbers, as '{value}' is a text: write it as "
                "in 12.50"
            )
        return "; ".join(said) or None

    def _ids(self, paths: Sequence[str]) -> list[str]:
        """Ids, each there once; the path where there is none, or the number of the row."""
        numbers = self._read_as.numbers
        ids = [
            said or id_of_path(path) or f"row {number}"
            for number, said, path in zip(numbers, self._texts("id"), paths, strict=True)
        ]
        hint = "leave one of them out, or name a column of ids by {id_column}"
        return _single(ids, numbers, f"manifest '{self._path}'", hint)

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
                hint = "; if it holds ready embeddings, name their column by {embedding_column}"
            if other := other_spelling(column, self._table.column_names):
                hint = f", as in {{{name}_column}} '{{other}}'"
            raise SourceError(
                f"manifest '{self._path}' has no column '{column}', only "
                f"{', '.join(self._table.column_names)}: ",
                advise(f"name the one of the {what} by {{{name}_column}}{hint}", other=other),
            )

    def _read(self) -> CsvTable:
        with reading(f"manifest '{self._path}'"):
            if self._path.suffix.lower() != PARQUET:
                return read_csv(self._path, self._names.values(), texts=[self._names["path"]])
            table = open_parquet(self._path).read()
            require_single(table.column_names, self._path)
            named = Features.of(table.schema).named(table)
            return CsvTable(named, list(range(1, len(named) + 1)), {}, {})


def _has_lists(table: pa.Table) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(field.type) for field in table.schema for is_kind in kinds)


def dataset_items(
    place: Path, options: SourceOptions, name: str = "", files: Mapping[str, Path] | None = None
) -> list[SourceItem]:
    """Rows of a dataset that `save_to_disk` wrote, or of Parquet files with images inside, in order.

    `name` stands before their ids where the options say so, and the names of files before their rows'.
    """
    with reading(f"dataset '{place.name}'"):
        dataset = SavedDataset(place) if files is None else ParquetDataset(files)
        return _Dataset(place, options, dataset).items(name)


class _Dataset:
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
        ids = [
            f"{prefix}{value or (path if path and times[path] == 1 else self._dataset.place(row)[2])}"
            for row, (value, path) in enumerate(zip(said, paths, strict=True))
        ]
        what, numbers = f"dataset '{self._place.name}'", range(1, len(ids) + 1)
        return _single(ids, numbers, what, "name a column of ids by {id_column}")


def _single(ids: list[str], numbers: Sequence[int], what: str, hint: str) -> list[str]:
    """Ids of numbered rows, each there once."""
    earlier: dict[str, int] = {}
    for number, item_id in zip(numbers, ids, strict=True):
        if earlier.setdefault(item_id, number) != number:
            rows = f"rows {earlier[item_id]:,} and {number:,} of {what}"
            raise SourceError(f"{rows} have one id, '{item_id}': ", advise(hint))
    return ids

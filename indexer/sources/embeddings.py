"""Sources of ready embeddings: tables with a column of them, or arrays of numpy.

.parquet         a column `embedding` of lists of numbers, a column `id`, and maybe `label`, `path` and others
x.lance/         a Lance dataset with the same columns
x/state.json     a dataset of Hugging Face that `save_to_disk` wrote, with the same columns
.npz             the arrays `embeddings` (n, d) and `ids` (n,), and maybe `labels` (n,) and others of n values
.npy and .csv    the array (n, d), and beside it a CSV file of the same name with a column `id`, a line a row

A compressed `.npz` file is held as a whole, all others some thousand rows at a time. A row that cannot be
used takes no other with it; a missing column or an id that is there twice refuses all of the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import AnyArray, Ints
from vicinal.indexer.errors import ItemRefusedError, SourceError
from vicinal.indexer.item_rules import checked_id, checked_label, checked_metadata, checked_uri, readable
from vicinal.indexer.sources.datasets import PARTS, STATE, SavedDataset
from vicinal.indexer.sources.embedding_files import (
    LANCE,
    ArrayRows,
    EmbeddingRows,
    ReadyRows,
    open_rows,
)
from vicinal.indexer.sources.items import SourceItem, SourceLook, SourceOptions, mended_labels
from vicinal.indexer.sources.remote import Refuse, refuse_none, refuse_table
from vicinal.indexer.sources.values import column_texts, metadata_rows, reading, values_as_texts
from vicinal.models.errors import NoDirectionError
from vicinal.models.similarity import normalize

_ROWS_A_DIGEST = 65_536
_FILES = (".parquet", ".npy", ".npz")
_KINDS = (
    ".parquet file, .lance folder or saved dataset of Hugging Face with a column of lists, .npz file, or "
    ".npy file with a .csv file of the same name"
)
# What the arrays of an .npz file are called that are columns of other files.
_PLURAL = {"id": "ids", "label": "labels", "path": "paths", "embedding": "embeddings"}


class EmbeddingSource:
    """Ready embeddings of a file or arrays whose ids are checked; unusable rows are left out and named.

    `name` is None where a program opened it by itself. With `is_strict` one bad row refuses all.
    `SourceError` where an id is there twice, or none can be used.
    """

    def __init__(
        self,
        path: Path,
        rows: EmbeddingRows,
        columns: Mapping[str, str],
        prefix: str = "",
        *,
        needs_ids: bool = True,
        is_strict: bool = False,
    ) -> None:
        self.path = path
        self.name: str | None = None
        self.unread: Mapping[str, str] = {}
        self._rows = rows
        self._columns = columns
        self._prefix = prefix
        self._problems: dict[int, str] = {}
        self._is_strict = is_strict
        self._note_unread()
        id_column = columns["id"]
        numbered = None if needs_ids else pa.array([f"{path.name} {row}" for row in range(len(rows))])
        if numbered is not None and id_column not in rows.names:
            self.ids = self._ids = numbered
            return
        if id_column not in rows.names:
            raise SourceError(
                f"'{path.name}' has no ids: it has no '{id_column}', only "
                f"{', '.join(rows.names) or 'embeddings'}; ",
                advise("name what holds them by {id_column}"),
            )
        ids = column_texts(rows.column(id_column), id_column, path.name)
        self._check_twins(ids)
        ids = pc.binary_join_element_wise(pa.scalar(prefix), ids, "") if prefix else ids
        ids = ids if numbered is None else pc.coalesce(ids, numbered)
        # Ids of rows by their numbers; null where there is none that can be used.
        self._ids = pa.array(
            [self._checked_id(row, one) for row, one in enumerate(ids.to_pylist())], pa.string()
        )
        self.ids = self._ids.drop_null()
        if not len(self.ids):
            first = self.problems[0].problem
            raise SourceError(
                f"none of the {len(self):,} rows of '{path.name}' can be used, the first because {first}"
            )

    @classmethod
    def open(cls, path: Path | str, options: SourceOptions | None = None, *, needs_ids: bool = True) -> Self:
        """Open a file with the columns, or arrays of an `.npz` file, that the options name; see
        the module.

        Rows of a file without ids are numbered, or with `needs_ids` refused. `SourceError` where it is
        missing, empty, damaged or of another kind, or has an id twice.
        """
        options = options or SourceOptions()
        path = Path(path)
        kind = kind_of(path)
        if not path.exists():
            raise SourceError(f"there is no source '{path}'")
        if not kind:
            raise SourceError(f"'{path}' holds no ready embeddings: give a {_KINDS}")
        columns = {
            name: getattr(options, f"{name}_column") or (_PLURAL[name] if kind == ".npz" else name)
            for name in _PLURAL
        }
        with reading(f"'{path.name}'"):
            rows = open_rows(path, kind, columns)
            _check_columns(path, rows, options)
            if options.label_rule.kind == "none":
                del columns["label"]
            return cls(path, rows, columns, options.prefix_of(""), needs_ids=needs_ids)

    @classmethod
    def of_arrays(
        cls,
        embeddings: npt.ArrayLike,
        ids: Sequence[str],
        *,
        labels: Sequence[str | None] | None = None,
        uris: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Any]] | None = None,
    ) -> Self:
        """Ready embeddings that a program holds; all of them, or none where one cannot be used.

        Args:
            embeddings: (n, d) numbers, normalized or not.
            uris: n paths or addresses of what was embedded.
            metadata: n further values, as JSON can hold them.

        Raises:
            SourceError: The lengths differ, or an id is missing or there twice.
        """
        path = Path("<arrays>")
        try:
            vectors = np.asarray(embeddings)
        except ValueError as error:
            lengths = [np.size(one) for one in np.array(embeddings, dtype=object)]
            row = next((place for place, one in enumerate(lengths) if one != lengths[0]), 0)
            raise SourceError(
                f"embeddings are of different lengths: row {row + 1:,} has {lengths[row]:,} numbers, the "
                f"first one {lengths[0]:,}; expected numbers (n, d)"
            ) from error
        if vectors.ndim != 2:
            raise SourceError(f"embeddings have the shape {vectors.shape}, expected numbers (n, d)")
        given = {"id": ids, "label": labels, "path": uris, "metadata": metadata}
        for name, values in given.items():
            if isinstance(values, str | bytes) or not (values is None or isinstance(values, Iterable)):
                raise SourceError(
                    f"{name} is one {type(values).__name__}, expected a value for each embedding"
                )
        if ids is None:
            raise SourceError("embeddings have no ids: give a list with one for each")
        listed: dict[str, list[Any]] = {name: [*one] for name, one in given.items() if one is not None}
        for row in listed.get("metadata", ()):
            if not isinstance(row, Mapping):
                raise SourceError(f"metadata of an embedding are {row!r}, expected values by their names")
        for name, values in listed.items():
            if (n := len(values)) != len(vectors):
                raise SourceError(f"{n:,} values of {name} for {len(vectors):,} embeddings: give one each")
        rows = listed.pop("metadata", [])
        keys = {key: None for row in rows for key in row}
        taken = [key for key in keys if key in _PLURAL]
        if taken:
            raise SourceError(f"metadata has the key '{taken[0]}', which an item has beside its metadata")
        columns = {
            name: values_as_texts(values, f"'{name}' holds values of Python")
            for name, values in listed.items()
        }
        try:
            # Missing values of pandas are none.
            columns |= {key: pa.array([row.get(key) for row in rows], from_pandas=True) for key in keys}
        except pa.ArrowException as error:
            raise SourceError(f"metadata are of mixed kinds: {error}") from error
        array = ArrayRows(path, vectors, pa.table(columns))
        return cls(path, array, {name: name for name in _PLURAL}, is_strict=True)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def problems(self) -> list[SourceItem]:
        """Rows that cannot be used, as far as it was read, each with its problem."""
        return [
            SourceItem(self._name(row), self.path, problem=self._problems[row])
            for row in sorted(self._problems)
        ]

    def require_whole(self) -> Self:
        """The source, where it is known what it no longer lists."""
        if self._ids.null_count:
            first = int(pc.index(self._ids.is_null(), True).as_py())
            raise SourceError(f"{self._problems[first]}; nobody knows what is gone, and nothing was deleted")
        return self

    @property
    def dim(self) -> int:
        """Length d of the embeddings."""
        return self._rows.dim

    def identity(self) -> list[Any]:
        """Text that changes with the file, or with the arrays, and with what is read of it."""
        if not self.path.exists():
            digest = hashlib.sha256(json.dumps(self._ids.to_pylist()).encode())
            for _, vectors in self._rows.batches(_ROWS_A_DIGEST):
                digest.update(np.ascontiguousarray(vectors).tobytes())
            return [digest.hexdigest(), self.dim, self._rows.names, self._columns]
        files = [(one.absolute(), one.stat()) for one in files_of(self.path)]
        written = [(str(file), found.st_size, found.st_mtime_ns) for file, found in files]
        return [written, self.dim, self._rows.names, self._columns, self._prefix]

    def batches(self, n_rows: int) -> Iterator[ReadyRows]:
        """Usable rows in order, at most some at a time; the others are then among the `problems`.

        `SourceError` where an embedding has another length, or one of arrays is zero or not finite, or the
        file is damaged; `ItemRefusedError` where a label or metadata of arrays cannot be kept.
        """
        first = 0
        with reading(f"'{self.path.name}'"):
            for table, vectors in self._rows.batches(n_rows):
                self._note_unread()
                if len((ready := self._ready(table, vectors, first)).ids):
                    yield ready
                first += len(table)

    def look(self, _refuse: Refuse = refuse_none) -> SourceLook:
        """Count the labels, and the rows that are known to be of no use; see `Source.look`."""
        name, n_mended = self._columns.get("label", ""), 0
        labels = texts = pa.nulls(len(self), pa.string())
        if name in self._rows.names:
            with reading(f"'{self.path.name}'"):
                texts = column_texts(self._rows.column(name), name, self.path.name)
                labels = self._checked_labels(texts, 0)
        usable = self._usable(0, len(self))
        labels, texts = labels.take(usable), texts.take(usable)
        if len(texts):
            n_mended = len(texts) - pc.sum(pc.equal(texts, labels).fill_null(pc.is_null(texts))).as_py()
        problems = [f"'{readable(one.id)}': {one.problem}" for one in self.problems]
        return SourceLook.at(labels.to_pylist(), problems=problems, remark=mended_labels(n_mended))

    def _ready(self, table: pa.Table, vectors: AnyArray, first: int) -> ReadyRows:
        ids = self._ids[first : first + len(table)]
        labels, uris = (
            column_texts(table[column], column, self.path.name)
            if column in table.column_names
            else pa.nulls(len(table), pa.string())
            for column in (self._columns.get("label", ""), self._columns["path"])
        )
        labels, uris = self._checked_labels(labels, first), pc.fill_null(uris, "")
        rows = metadata_rows(table, self._columns.values())
        metadata: list[str | None] = [None] * len(table)
        for place, (item_id, uri) in enumerate(zip(ids.to_pylist(), uris.to_pylist(), strict=True)):
            if (row := first + place) not in self._problems:
                self._checked(row, checked_uri, uri, item_id)
                metadata[place] = self._checked(row, checked_metadata, rows[place], item_id)
        usable = self._usable(first, len(table))
        try:
            embeddings = normalize(vectors[usable])
        except NoDirectionError as error:
            for place, what in error.found.items():
                row = first + int(usable[place])
                advice = "embed it again, or leave the row out"
                self._fail(row, self._error(row, f"has an embedding that {what}: {advice}"), error)
            usable = self._usable(first, len(table))
            embeddings = normalize(vectors[usable])
        where = pa.array(usable)
        kept = pa.array(metadata, pa.string()).take(where)
        return ReadyRows(ids.take(where), labels.take(where), uris.take(where), kept, embeddings)

    def _checked_labels(self, texts: pa.Array, first: int) -> pa.Array:
        """Labels of some rows in one form, each looked at once."""
        encoded, found = texts.dictionary_encode(), []
        for number, label in enumerate(encoded.dictionary.to_pylist()):
            try:
                found.append(checked_label(label, ""))
            except ItemRefusedError:
                found.append(None)
                for row in (first + np.flatnonzero(pc.equal(encoded.indices, number))).tolist():
                    self._checked(row, checked_label, label, self._name(row))
        return pa.array(found, pa.string()).take(encoded.indices)

    def _checked_id(self, row: int, item_id: str | None) -> str | None:
        """The id of a row; None where it cannot be used."""
        if item_id is not None:
            return self._checked(row, checked_id, item_id)
        self._fail(row, self._error(row, "has no id: give every row one, each another"))
        return None

    def _checked(self, row: int, check: Callable[..., str | None], *values: Any) -> str | None:
        """A value that can be kept; where it cannot, the row is left out."""
        try:
            return check(*values)
        except ItemRefusedError as error:
            self._fail(row, error)
            return None

    def _name(self, row: int) -> str:
        return self._ids[row].as_py() or f"row {row + 1}"

    def _check_twins(self, ids: pa.Array) -> None:
        if not len(ids):
            raise SourceError(f"'{self.path.name}' holds no rows")
        known = np.flatnonzero(ids.is_valid())
        # Numbered in the order of their first appearance, so that a repeated one is below what came before.
        numbers = ids.drop_null().dictionary_encode().indices.to_numpy()
        repeated = numbers[1:] <= np.maximum.accumulate(numbers)[:-1]
        if repeated.any():
            later = int(repeated.argmax()) + 1
            earlier = int((numbers == numbers[later]).argmax())
            later, earlier = int(known[later]), int(known[earlier])
            raise self._error(later, f"has the id '{ids[later]}' of row {earlier + 1}: leave one of them out")

    def _usable(self, first: int, n: int) -> Ints:
        """Places of the rows that can be used, among some rows."""
        found = [place for place in range(n) if first + place not in self._problems]
        return np.array(found, dtype=np.int64)

    def _note_unread(self) -> None:
        """Take over what was noticed of rows while they were read."""
        for row in self._rows.problems.keys() - self._problems.keys():
            self._fail(row, self._error(row, self._rows.problems[row]))

    def _fail(self, row: int, error: ItemRefusedError | SourceError, cause: Exception | None = None) -> None:
        """Leave a row out."""
        if self._is_strict:
            raise error from cause
        said = error if isinstance(error, SourceError) else self._error(row, f"cannot be kept: {error}")
        self._problems.setdefault(row, str(said))

    def _error(self, row: int, what: str) -> SourceError:
        return SourceError(f"row {row + 1} of '{self.path.name}' {what}")


def holds_embeddings(
    place: Path | str,
    options: SourceOptions | None = None,
    *,
    expected: bool = False,
    refuse: Refuse = refuse_none,
) -> bool:
    """Tell whether a source has embeddings, and names no images or is `expected` to be read for those."""
    if isinstance(place, str):
        refuse_table(place)
        return False
    options, kind = options or SourceOptions(), kind_of(place)
    for file in files_of(place) if kind else ():
        if reason := refuse(file):
            raise SourceError(f"'{file.name}': {reason}")
    if options.embedding_column or (expected and kind):
        return True
    if kind not in (".parquet", STATE):
        return bool(kind)
    with reading(f"'{place.name}'"):
        if kind == STATE:
            saved = SavedDataset(place)
            return not saved.features.image_columns or "embedding" in saved.schema.names
        names = pa.parquet.read_schema(place).names
    return "embedding" in names and (options.path_column or "path") not in names


def kind_of(path: Path) -> str:
    """Kind of a place: its suffix, `.lance`, `state.json` for a dataset of Hugging Face, '' for others."""
    suffix = path.suffix.lower()
    if path.is_dir():
        return LANCE if suffix == LANCE else STATE if is_saved(path) else ""
    return suffix if suffix in _FILES and path.is_file() else ""


def files_of(path: Path) -> list[Path]:
    """All files that are read of what lies at a path, in a fixed order."""
    beside = (path, path.with_suffix(".csv"), *sorted(path.rglob("*")))
    return [one for one in beside if one.is_file()]


def is_saved(path: Path) -> bool:
    """Tell whether `save_to_disk` wrote a folder."""
    return any((path / name).is_file() for name in (STATE, PARTS))


def _check_columns(path: Path, rows: EmbeddingRows, options: SourceOptions) -> None:
    """Refuse to take labels or paths from where there are none."""
    if options.label_rule.kind in ("folder", "regex"):
        raise SourceError(f"labels of the ready embeddings in '{path.name}' come from column or none")
    for name, column in (("label", options.label_column), ("path", options.path_column)):
        if column and column not in rows.names:
            raise SourceError(
                f"'{path.name}' has no '{column}', only {', '.join(rows.names)}: ",
                advise(f"name what holds the {name}s by {{{name}_column}}"),
            )

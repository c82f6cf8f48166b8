"""Candidates and vectors of a gallery over a team's table: read there when they are asked for, never kept.

The gallery knows each item's place by its id. Rows that came since it was indexed are no candidates; the
vector of a row that went is zero, so that it is near to nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import pyarrow as pa
from cachetools import TTLCache

from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import AnyArray, AnyInts, FloatArray, Ints, Mask
from vicinal.indexer.engines.engine import Engines, TeamReader, TeamRows
from vicinal.indexer.engines.measured import in_blocks, measured_candidates
from vicinal.indexer.engines.source import MeasuredSource, SourceFile, read_source_file, until_found
from vicinal.indexer.errors import (
    EngineAwayError,
    EngineTableError,
    ItemRefusedError,
    TeamTableError,
)
from vicinal.indexer.filters import Filter
from vicinal.indexer.graph.vector_index import Candidates
from vicinal.indexer.item_rules import checked_label, checked_metadata, checked_uri
from vicinal.indexer.sources.team_table import TeamTable
from vicinal.indexer.sources.values import column_texts, metadata_rows
from vicinal.indexer.storage.files import FileSeal, storing
from vicinal.indexer.storage.item_table import mapped_matrix
from vicinal.models.errors import NoDirectionError
from vicinal.models.similarity import normalize

# Rows that are asked for at a time, and among which candidates are found by comparing all of them there.
_BLOCK, _FEW_AMONG = 4096, 20_000
# A search asks again and again for the vectors that came with its candidates: for so long, and so many.
_REMEMBERED_SECONDS, _MOST_REMEMBERED = 2.0, 8192
# Rows that the gallery does not know are left out of what is found.
_SPARE = 8
_LEAST_RECALL = 0.95


class TeamVectors:
    """(n, d) float32 vectors of a gallery's items, L2-normalized, as an array that is read in parts; and what
    the table says of items now.

    Attributes:
        n_gone: Number of items whose rows were asked for and are not in the table.
    """

    dtype, ndim = np.dtype(np.float32), 2

    def __init__(self, table: TeamTable, ids: pa.ChunkedArray, dim: int, engines: Engines) -> None:
        self.table = table
        self.shape = (len(ids), dim)
        self._engines = engines
        self._ids = ids.combine_chunks()
        # Of a dictionary of texts a million would take some 130 MB.
        parts = (self._ids.slice(start, _BLOCK).to_pylist() for start in range(0, len(ids), _BLOCK))
        hashes = np.fromiter((hash(one) for part in parts for one in part), np.int64, len(ids))
        self._order = np.argsort(hashes)
        self._hashes = hashes[self._order]
        self._holding, self._n_holders = threading.Lock(), 0
        self._held: FloatArray | None = None
        self.n_gone, self._is_gone = 0, np.zeros(len(ids), bool)
        self._lock = threading.Lock()
        self._recent: TTLCache[int, tuple[FloatArray, Sequence[Any]]] = TTLCache(
            _MOST_REMEMBERED, _REMEMBERED_SECONDS
        )

    def __len__(self) -> int:
        return self.shape[0]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Read from a temporary file meanwhile, which is made by one pass over the table."""
        with self._holding:
            self._n_holders += 1
            if self._n_holders == 1:
                try:
                    self._held = self._copied()
                except BaseException:
                    self._n_holders = 0
                    raise
        try:
            yield
        finally:
            with self._holding:
                self._n_holders -= 1
                if not self._n_holders:
                    self._held = None

    def _copied(self) -> FloatArray:
        starts = range(0, len(self), _BLOCK)
        parts = (self.take(np.arange(one, min(one + _BLOCK, len(self)))) for one in starts)
        # What is mapped stays when its name goes.
        with TemporaryDirectory(prefix="vicinal-") as folder, storing("vectors of a table"):
            return mapped_matrix(Path(folder) / "vectors.npy", self.shape, parts)

    def take(self, positions: Ints, axis: int = 0) -> FloatArray:
        """(..., d) vectors at (...) positions, zero where there is none or the row is gone."""
        del axis
        vectors = np.zeros((*positions.shape, self.shape[1]), np.float32)
        wanted, rows = self._read(np.unique(positions[positions >= 0]))
        if len(wanted):
            places = np.minimum(np.searchsorted(wanted, positions), len(wanted) - 1)
            is_there = wanted[places] == positions
            vectors[is_there] = rows[places[is_there]]
        return vectors

    def __getitem__(self, key: Any) -> FloatArray:
        positions = np.arange(len(self))[key]
        vectors = self.take(np.atleast_1d(positions))
        n_gone = int((~vectors.any(axis=-1)).sum())
        if n_gone:
            raise EngineTableError(
                f"{n_gone:,} of the items are no longer in table '{self.table.name}': run vicinal index again"
            )
        return vectors.reshape((*np.shape(positions), self.shape[1]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        del copy
        whole = np.empty(self.shape, np.float32)
        for start in range(0, len(self), _BLOCK):
            whole[start : start + _BLOCK] = self[start : start + _BLOCK]
        return whole if dtype is None else whole.astype(dtype)

    def products(self, queries: FloatArray, positions: Ints) -> FloatArray:
        """(B, w) inner products of (B, d) queries with items at (B, w) positions; -inf at -1."""
        products = np.einsum("bd,bwd->bw", queries, self.take(positions)).astype(np.float32)
        products[positions < 0] = -np.inf
        return products

    def ids(self, positions: Ints) -> list[str]:
        """Ids of items as the table has them."""
        n = len(self.table.prefix)
        return [one[n:] for one in self._ids.take(pa.array(positions, pa.int64())).to_pylist()]

    def remember(self, rows: TeamRows) -> tuple[Ints, FloatArray]:
        """Positions of rows that were just read, and their vectors, without those that nobody knows."""
        if rows.ids and rows.vectors.shape[1] != self.shape[1]:
            raise EngineTableError(
                f"table '{self.table.name}' holds vectors of {rows.vectors.shape[1]} numbers now, it was "
                f"read with {self.shape[1]}: index it into another gallery"
            )
        positions = self._positions(rows.ids)
        vectors, is_usable = _unit(rows.vectors)
        known = np.flatnonzero((positions >= 0) & is_usable)
        with self._lock:
            for place in known.tolist():
                self._recent[int(positions[place])] = vectors[place], rows.values[place]
        if self.n_gone:
            self._note_gone(positions[known], False)
        # Where no row came at all, nothing says how long its vectors are.
        return positions[known], vectors[known].reshape(-1, self.shape[1])

    def find(self, queries: FloatArray, n: int, looked_at: int) -> Ints:
        """(B, n) positions of those items among the n nearest rows, where it looks at some."""
        try:
            rows = self.ask(queries, n, looked_at)
        except EngineAwayError as error:
            if not error.is_slow:
                raise
            # So much together is more than a busy database does in time.
            rows = [row for one in queries for row in self.ask(one[None], n, looked_at)]
        return self.in_order(queries, n, rows)

    def ask(
        self, queries: FloatArray, n: int, looked_at: int, ids: Sequence[str] | None = None
    ) -> list[TeamRows]:
        """Rows of each of (B, d) queries; see `TeamReader.search`."""
        with self.reader() as reader:
            found: list[TeamRows] = reader.search(
                np.ascontiguousarray(queries, np.float32), n, looked_at, ids
            )
        return found

    def in_order(
        self, queries: FloatArray, n: int, rows: Sequence[TeamRows], among: Mask | None = None
    ) -> Ints:
        """(B, n) positions of rows in the order of their similarity."""
        found = np.full((len(queries), n), -1, np.int64)
        for place, (query, one) in enumerate(zip(queries, rows, strict=True)):
            positions, vectors = self.remember(one)
            # An engine may order by another distance than the cosine.
            order = np.argsort(-(vectors @ query), kind="stable")
            kept = positions[order]
            kept = (kept if among is None else kept[among[kept]])[:n]
            found[place, : len(kept)] = kept
        return found

    def is_gone(self, positions: Ints) -> Mask:
        """Tell whether rows at (...) positions have gone, as far as somebody asked for them; not at -1."""
        return np.asarray(self._is_gone[positions] & (positions >= 0)) if self.n_gone else positions < -1

    def _note_gone(self, positions: Ints, is_gone: bool) -> None:
        with self._lock:
            n_changed = int(np.count_nonzero(self._is_gone[positions] != is_gone))
            self._is_gone[positions] = is_gone
            self.n_gone += n_changed if is_gone else -n_changed

    def items(self, positions: Sequence[int] | AnyInts) -> list[dict[str, Any] | None]:
        """Label, uri and metadata of items, as the table says now; None where gone, or no item may be so."""
        asked = np.array(positions, np.int64)
        self._read_there(np.unique(asked[asked >= 0]))
        with self.reader() as reader:
            schema = reader.schema
        with self._lock:
            known = [self._recent.get(int(one)) for one in asked]
        return [None if one is None else described(self.table, schema, one[1]) for one in known]

    def look(self) -> None:
        """Read one row: `EngineError` where no search would be answered."""
        with self.reader() as reader:
            reader.fetch(self.ids(np.arange(min(1, len(self)))))

    def reader(self) -> AbstractContextManager[TeamReader]:
        """The reader of the table, for one question."""
        return self._engines.reading(self.table)

    def _positions(self, ids: Sequence[str]) -> Ints:
        """Positions of items by their ids in the table; -1 where there is none."""
        wanted = np.fromiter((hash(self.table.prefix + one) for one in ids), np.int64, len(ids))
        if not len(self._hashes) or not len(ids):
            return np.full(len(ids), -1, np.int64)
        places = np.minimum(np.searchsorted(self._hashes, wanted), len(self._hashes) - 1)
        found = np.where(self._hashes[places] == wanted, self._order[places], -1)
        there = found >= 0
        # Two texts can have one hash.
        is_same = np.array(self.ids(found[there]), dtype=object) == np.array(ids, dtype=object)[there]
        found[np.flatnonzero(there)[~is_same]] = -1
        return found

    def _read(self, positions: Ints) -> tuple[Ints, FloatArray]:
        """Ascending positions, of some, whose rows are there, and their vectors."""
        held = self._held
        if held is not None:
            rows = held[positions]
            is_there = rows.any(axis=1)
            return positions[is_there], rows[is_there]
        return self._read_there(positions)

    def _read_there(self, positions: Ints) -> tuple[Ints, FloatArray]:
        with self._lock:
            known = {one: row[0] for one in positions.tolist() if (row := self._recent.get(one)) is not None}
        missing = np.array([one for one in positions.tolist() if one not in known], np.int64)
        parts = [
            (np.array([*known], np.int64), np.array([*known.values()], np.float32).reshape(-1, self.shape[1]))
        ]
        for start in range(0, len(missing), _BLOCK):
            asked = missing[start : start + _BLOCK]
            with self.reader() as reader:
                rows = reader.fetch(self.ids(asked))
            parts.append(self.remember(rows))
            self._note_gone(np.setdiff1d(asked, parts[-1][0]), True)
        found = np.concatenate([one for one, _ in parts])
        order = np.argsort(found)
        return found[order], np.concatenate([vectors for _, vectors in parts])[order]


def described(table: TeamTable, schema: pa.Schema, values: Sequence[Any]) -> dict[str, Any] | None:
    """Label, uri and metadata (JSON) of a row, as a source gives them; None where that refuses them."""
    row = pa.table(
        [pa.array([one], kind.type) for one, kind in zip(values, schema, strict=True)], schema=schema
    )
    label, uri = (
        column_texts(row[name], name, table.name)[0].as_py()
        if (name := table.columns.get(one, "")) in row.column_names
        else None
        for one in ("label", "path")
    )
    metadata = metadata_rows(row, table.columns.values())[0]
    try:
        return {
            "label": checked_label(label, ""),
            "uri": checked_uri(uri or "", ""),
            "metadata": checked_metadata(metadata, ""),
        }
    except ItemRefusedError:
        return None


def _unit(vectors: FloatArray) -> tuple[FloatArray, Mask]:
    """Vectors of length 1, and which of them have a direction; the others are zero."""
    is_usable = np.ones(len(vectors), bool)
    try:
        return normalize(vectors), is_usable
    except NoDirectionError as error:
        is_usable[[*error.found]] = False
    unit = np.zeros(vectors.shape, np.float32)
    unit[is_usable] = normalize(vectors[is_usable])
    return unit, is_usable


class TeamFile(SourceFile):
    """File of a team's table, and of the index that was measured there."""

    searched_by: str


class TeamSource(MeasuredSource[TeamFile]):
    """Candidates from a team's table; their vectors come with them."""

    needs_filter = False

    def __init__(self, file: TeamFile, candidates: Candidates, vectors: TeamVectors) -> None:
        super().__init__(file, candidates)
        self._vectors = vectors

    @classmethod
    def build(cls, vectors: TeamVectors, embeddings: FloatArray) -> Self:
        """Measure with (n, d) copies of the vectors how much a search has to look at; nothing is made."""
        with vectors.reader() as reader:
            searched_by, most = reader.searched_by, reader.most_looked_at
        looked_at, (few, many) = (1, 1), (1.0, 1.0)
        if searched_by:
            looked_at, (few, many) = measured_candidates(vectors.find, most, embeddings)
        if few < _LEAST_RECALL:
            raise TeamTableError(
                f"the index of column '{vectors.table.columns['embedding']}', {searched_by}, finds {few:.2f} "
                "of the ten items nearest by the cosine: ",
                advise("give it one by the cosine, or take {copy_vectors}"),
            )
        file = TeamFile(
            engine=vectors.table.engine,
            n_items=len(embeddings),
            searched_by=searched_by,
            recall_of_few=few,
            recall_of_many=many,
        )
        return cls(file, Candidates(*looked_at), vectors)

    @classmethod
    def open(cls, path: Path, candidates: Candidates, seal: FileSeal, vectors: TeamVectors) -> Self:
        """Open what `save` wrote; the engine is asked when it is searched."""
        return cls(read_source_file(path, TeamFile, seal), candidates, vectors)

    @property
    def spec(self) -> str:
        """Name of what finds candidates."""
        return self._vectors.table.index

    def search(
        self, queries: FloatArray, n: int, among: Mask | None = None, filter: Filter | None = None
    ) -> Ints:
        """(B, n) positions of the nearest items; see `CandidateSource.search`."""
        del filter  # Its labels and metadata are those that were read.
        if among is None or among.sum() > _FEW_AMONG:
            return in_blocks(lambda block: self._found(block, n, among), queries, n)
        ids = self._vectors.ids(np.flatnonzero(among))
        ask, in_order = self._vectors.ask, self._vectors.in_order
        return in_blocks(lambda block: in_order(block, n, ask(block, n, n, ids)), queries, n)

    def _found(self, queries: FloatArray, n: int, among: Mask | None) -> Ints:
        """See `search`: the engine knows rows that the gallery does not, and no filter."""
        share = 1.0 if among is None else max(1.0, float(among.sum())) / len(among)

        def find(chosen: Ints, n_asked: int) -> tuple[Ints, Mask]:
            looked_at = max(n_asked, round(self.candidates.fetched(n) / share))
            rows = self._vectors.ask(queries[chosen], n_asked, looked_at)
            # Where fewer came than were asked for, the table has no more to give.
            is_whole = np.array([len(one.ids) == n_asked for one in rows])
            has_more = is_whole & (n_asked < 2 * len(self._vectors) + _BLOCK)
            return self._vectors.in_order(queries[chosen], n, rows, among), has_more

        return until_found(find, len(queries), n, n + _SPARE if among is None else 2 * n + 4 * _SPARE)

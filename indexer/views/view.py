"""View: all that one request sees of a gallery, a built version and the live changes since then.

A built version is never changed. Later items stand in a segment that is searched exactly beside the version's
index; removed or replaced items are dead, in either part; patched ones keep their place. A view is immutable.

Positions count the version's rows first and the segment's rows after them, dead ones included, and so ascend
in gallery order. They mean nothing outside of the view.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vicinal.calibration.arrays import AnyArray, AnyInts, FloatArray, Ints, Mask
from vicinal.indexer.engines.vectors import rows_at
from vicinal.indexer.filters import Filter
from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS
from vicinal.indexer.graph.vector_index import nearest_rows, products_at
from vicinal.indexer.views.metadata_keys import MetadataKey, metadata_keys
from vicinal.indexer.views.selection import Selection, nearest_among
from vicinal.indexer.views.snapshot import ITEM_COLUMNS, Snapshot, items_at, places_of

_Number = TypeVar("_Number", bound=np.generic)
# Many small Arrow tables are slow to take rows from; from here on they are made one.
_MOST_CHUNKS = 32
_ITEMS = pa.schema([(name, pa.string()) for name in ITEM_COLUMNS])
_NOBODY: Ints = np.empty(0, np.int64)
# Dead rows are few and seldom near; where these spares do not do, twice as many are fetched.
_SPARE = 32
# Of rows that are fetched beyond the spares one of so many is to be live.
_SHARE_LIVE = 8
# Up to this many selected rows are compared one by one, which misses nothing.
_FEW_SELECTED = 20_000
# Items whose metadata are looked at for their keys: half a second.
_MOST_METADATA = 100_000


@dataclass(frozen=True)
class Segment:
    """Added rows in order of addition, removed ones too; neighbors are positions in the view, -1 for none."""

    sequences: Ints
    embeddings: FloatArray
    neighbor_positions: Ints
    neighbor_similarities: FloatArray
    items: pa.Table

    def __len__(self) -> int:
        return len(self.sequences)


class SegmentBuilder:
    """Grows a segment; segments that were given out before stay as they are."""

    def __init__(self, dim: int) -> None:
        self._arrays: dict[str, _Growing[Any]] = {
            "sequences": _Growing(np.empty(0, np.int64)),
            "embeddings": _Growing(np.empty((0, dim), np.float32)),
            "neighbor_positions": _Growing(np.empty((0, N_NEIGHBORS), np.int64)),
            "neighbor_similarities": _Growing(np.empty((0, N_NEIGHBORS), np.float32)),
        }
        self._items = _ITEMS.empty_table()

    def extend(self, added: Segment) -> None:
        """Append rows."""
        for name, array in self._arrays.items():
            array.extend(getattr(added, name))
        items = pa.concat_tables([self._items, added.items.cast(_ITEMS)])
        crowded = items["id"].num_chunks > _MOST_CHUNKS
        self._items = items.combine_chunks() if crowded else items

    def segment(self) -> Segment:
        """The rows so far."""
        return Segment(**{name: array.rows for name, array in self._arrays.items()}, items=self._items)


class _Growing(Generic[_Number]):
    """An array that grows in amortized constant time a row; only rows beyond the last are ever written."""

    def __init__(self, rows: npt.NDArray[_Number]) -> None:
        self._buffer = rows
        self._n = len(rows)

    @property
    def rows(self) -> npt.NDArray[_Number]:
        return self._buffer[: self._n]

    def extend(self, rows: AnyArray) -> None:
        n = self._n + len(rows)
        if n > len(self._buffer):
            grown = np.empty((max(n, 2 * self._n), *rows.shape[1:]), self._buffer.dtype)
            grown[: self._n] = self.rows
            self._buffer = grown
        self._buffer[self._n : n] = rows
        self._n = n


@dataclass(frozen=True)
class Patches:
    """Items whose label or metadata changed since the version was built."""

    positions: Ints
    items: pa.Table


@dataclass(frozen=True)
class GalleryView:
    """State of a gallery at a revision: the built version, and items added, `dead` (removed or replaced), or
    patched since. Its calibrations are those of version `calibrated_as`, 0 for the gallery's.
    """

    snapshot: Snapshot
    segment: Segment
    dead: Ints
    patches: Patches
    revision: int
    next_number: int
    calibrated_as: int = 0

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """A version as it was built."""
        return cls(
            snapshot=snapshot,
            segment=SegmentBuilder(snapshot.manifest.dim).segment(),
            dead=_NOBODY,
            patches=Patches(_NOBODY, _ITEMS.empty_table()),
            revision=snapshot.manifest.revision,
            next_number=snapshot.manifest.next_number,
        )

    def __len__(self) -> int:
        return self.n_positions - len(self.dead)

    @cached_property
    def n_added(self) -> int:
        """Rows of the segment, dead ones included."""
        return len(self.segment)

    @property
    def n_positions(self) -> int:
        """Number of positions, dead ones included."""
        return len(self.snapshot) + self.n_added

    @property
    def n_kept(self) -> int:
        """Items of the built version that are still there, patched or not."""
        return len(self.snapshot) - int(np.searchsorted(self.dead, len(self.snapshot)))

    @property
    def n_changes(self) -> int:
        """Number of added, dead and patched rows that searches carry along because of live changes."""
        return self.n_added + len(self.dead) + len(self.patches.positions)

    @property
    def graph_staleness(self) -> float:
        """Share of the items added, removed or replaced since the neighbor lists of all were made, in [0, 1];
        stale are older items' lists, without those added after them, and their refined vectors.
        """
        largest = max(len(self.snapshot), len(self))
        return 1.0 - self.n_kept / largest if largest else 0.0

    @cached_property
    def n_labels(self) -> int:
        """Number of different labels."""
        if not self.n_changes:
            return self.snapshot.manifest.n_labels
        label_parts = [self.snapshot.item_table["label"], self.segment.items["label"]]
        labels = pa.chunked_array([chunk for part in label_parts for chunk in part.chunks], pa.string())
        counts = np.ones(self.n_positions, dtype=bool)
        counts[self.dead] = False
        counts[self.patches.positions] = False
        patched_live = ~self.is_dead(self.patches.positions)
        present = [*labels.filter(pa.array(counts)).chunks]
        present += self.patches.items["label"].filter(pa.array(patched_live)).chunks
        return int(pc.count_distinct(pa.chunked_array(present, pa.string())).as_py())

    @property
    def live(self) -> Ints:
        """Positions of the items that are there, ascending."""
        return np.delete(np.arange(self.n_positions), self.dead)

    def is_dead(self, positions: Ints) -> Mask:
        """Tell whether rows were removed or replaced."""
        return places_of(self.dead, positions) >= 0 if len(self.dead) else np.zeros(np.shape(positions), bool)

    def vectors(self, positions: Ints) -> FloatArray:
        """(..., d) embeddings at (...) positions; any values at -1."""
        return self._rows(positions, self.snapshot.embeddings, self.segment.embeddings)

    def products(self, queries: FloatArray, positions: Ints) -> FloatArray:
        """(B, w) inner products of (B, d) queries with items at (B, w) positions, in float32; -inf at -1."""
        n_built = len(self.snapshot)
        is_added = positions >= n_built
        products = products_at(queries, self.snapshot.embeddings, np.where(is_added, -1, positions))
        for row in np.flatnonzero(is_added.any(axis=1)):
            added = self.segment.embeddings[positions[row, is_added[row]] - n_built]
            products[row, is_added[row]] = added @ queries[row]
        return products

    def neighbor_similarities(self, positions: Ints) -> FloatArray:
        """(..., K) similarities to the neighbors in each item's list, descending, -inf for padding."""
        built, added = self.snapshot.neighbor_similarities, self.segment.neighbor_similarities
        return self._rows(positions, built, added)

    def neighbor_positions(self, positions: Ints) -> Ints:
        """(..., K) positions of the neighbors in each item's list, -1 for those that are out, and padding."""
        listed = self._rows(positions, self.snapshot.neighbor_ids, self.segment.neighbor_positions)
        return np.where(self.is_dead(listed.astype(np.int64)), -1, listed)

    def _rows(self, positions: Ints, built: Any, added: Any) -> Any:
        """Rows of the version's and the segment's arrays at (...) positions; -1 at -1."""
        n_built = len(self.snapshot)
        if n_built and not self.n_added:
            return rows_at(built, positions)
        rows = np.full((*positions.shape, *added.shape[1:]), -1, built.dtype)
        is_built, is_added = (positions >= 0) & (positions < n_built), positions >= n_built
        rows[is_built] = built[positions[is_built]]
        rows[is_added] = added[positions[is_added] - n_built]
        return rows

    def nearest(self, queries: FloatArray, n: int, selection: Selection | None = None) -> Ints:
        """(B, w) live items that hold the n nearest to each query, in no order, -1 for padding; but for those
        that the version's index misses, and up to the rounding of float32 products.
        """
        if selection is None:
            rows = self._nearest(queries, n)
        else:
            rows = self._nearest_selected(queries, n, selection)
        width = max((len(row) for row in rows), default=0)
        found = np.full((len(rows), width), -1, dtype=np.int64)
        for filled, row in zip(found, rows, strict=True):
            filled[: len(row)] = row
        return found

    def _nearest(self, queries: FloatArray, n: int) -> list[Ints]:
        index, n_built = self.snapshot.index, len(self.snapshot)
        n_dead_added = len(self.dead) - int(np.searchsorted(self.dead, n_built))

        def search(queries: FloatArray, n: int, reach: int) -> Ints:
            return (index if reach == 1 else index.wider(reach)).search(queries, n)

        built = self._live(search, queries, index.n_fetched(n), n_built, first=0)
        if self.n_added == n_dead_added:
            return built
        added = self._live(self._nearest_added, queries, n, self.n_added, first=n_built)
        return [np.concatenate(pair) for pair in zip(built, added, strict=True)]

    def _nearest_added(self, queries: FloatArray, n: int, _reach: int) -> Ints:
        # One by one, as an index is searched: many together are multiplied, which rounds differently.
        return np.concatenate([nearest_rows(one[None], self.segment.embeddings, n)[1] for one in queries])

    def _live(
        self,
        search: Callable[[FloatArray, int, int], Ints],
        queries: FloatArray,
        n: int,
        n_rows: int,
        *,
        first: int,
    ) -> list[Ints]:
        """The n nearest live rows of one part, whose first row stands at `first`, to each query; where many
        dead ones are nearer, an index looks further by as much as it is asked for, and more rows are given:
        far away they differ less.
        """
        live, short = [_NOBODY] * len(queries), np.arange(len(queries))
        reach, n_enough = 1, n
        n_fetched = n + min(len(self.dead), _SPARE)
        while n_rows and len(short):
            n_fetched = min(n_fetched, n_rows)
            has_more = np.zeros(len(short), dtype=bool)
            for place, found in enumerate(search(queries[short], n_fetched, reach)):
                found = found[found >= 0] + first
                alive = found[~self.is_dead(found)]
                live[short[place]] = alive[:n] if reach == 1 else alive
                # Where fewer came than were asked for, and all live, the index has no more to give.
                may_give = len(found) == n_fetched or len(alive) < len(found)
                has_more[place] = len(alive) < n_enough and n_fetched < n_rows and may_give
            short = short[has_more]
            n_fetched, reach = 2 * n_fetched, 2 * reach
            n_enough = max(n, n_fetched // _SHARE_LIVE)
        return live

    def _nearest_selected(self, queries: FloatArray, n: int, selection: Selection) -> list[Ints]:
        index, n_built = self.snapshot.index, len(self.snapshot)
        can_select = index.can_select and not (index.needs_filter and selection.filter is None)
        if not can_select or len(selection) <= _FEW_SELECTED:
            return nearest_among(self.vectors, queries, n, selection.positions)
        alone = selection.positions >= n_built
        if index.needs_filter:
            # It knows labels and metadata as they were built.
            alone |= places_of(self.patches.positions, selection.positions) >= 0
        others = nearest_among(self.vectors, queries, n, selection.positions[alone])
        n_wanted = min(index.n_fetched(n), n_built)
        among = Selection(selection.positions[~alone]).mask(n_built)
        built = list(index.search(queries, n_wanted, among, selection.filter))
        n_there = min(n_wanted, len(selection) - int(alone.sum()))
        for place in np.flatnonzero([index.needs_filter and (row >= 0).sum() < n_there for row in built]):
            # Among what else its filter finds, or without a filter: an engine does not give so many.
            built[place] = nearest_among(self.vectors, queries[[place]], n, selection.positions[~alone])[0]
        return [np.concatenate([one[one >= 0], other]) for one, other in zip(built, others, strict=True)]

    def nearest_compared(self, queries: FloatArray, n: int) -> list[Ints]:
        """At most n live positions for each query, of all items, each compared: whoever finds candidates."""
        positions = np.arange(self.n_positions)
        return nearest_among(self.vectors, queries, n, positions[~self.is_dead(positions)])

    def select(self, sequences: Ints, filter: Filter | None = None) -> Selection:
        """The live items with some sequences, which a filter selects where one is given."""
        positions = self.positions_of_sequences(sequences)
        return Selection(positions[(positions >= 0) & ~self.is_dead(positions)], filter)

    def sequences(self, positions: Ints) -> Ints:
        """Sequences at positions."""
        return self._rows(positions, self.snapshot.sequences, self.segment.sequences)

    def positions_of_sequences(self, sequences: Ints) -> Ints:
        """Positions of rows, dead or not, -1 where there is none; of the shape of the sequences."""
        built = places_of(self.snapshot.sequences, sequences)
        added = places_of(self.segment.sequences, sequences)
        return np.where(built >= 0, built, np.where(added >= 0, added + len(self.snapshot), -1))

    def position(self, item_id: str) -> int:
        """Position of an item."""
        position = int(self.positions([item_id])[0])
        if position < 0:
            raise KeyError(item_id)
        return position

    def positions(self, item_ids: Sequence[str]) -> Ints:
        """Positions of items, -1 where there is none."""
        try:
            wanted = pa.array(item_ids, pa.string())
        except UnicodeEncodeError:
            # Half of a surrogate pair, as in a file name that is not UTF-8, is in no id.
            texts = (None if re.search("[\ud800-\udfff]", one) else one for one in item_ids)
            wanted = pa.array(list(texts), pa.string())
        positions = np.full(len(item_ids), -1, dtype=np.int64)
        for table, first in ((self.snapshot.item_table, 0), (self.segment.items, len(self.snapshot))):
            found = np.flatnonzero(pc.is_in(table["id"], value_set=wanted)) + first
            found = found[~self.is_dead(found)]
            ids = table["id"].take(pa.array(found - first))
            places = pc.index_in(wanted, value_set=ids.combine_chunks()).fill_null(-1).to_numpy()
            positions[places >= 0] = found[places[places >= 0]]
        return positions

    def items(self, positions: Sequence[int] | AnyInts) -> list[dict[str, Any]]:
        """Id, label, uri and metadata of some items, in the given order."""
        if not self.n_changes:
            return self.snapshot.items(positions)
        asked = np.asarray(positions, dtype=np.int64)
        rows: list[dict[str, Any]] = [{}] * len(asked)
        for table, local, places in self._parts(asked):
            for place, row in zip(places, items_at(table, local), strict=True):
                rows[place] = row
        return rows

    def _parts(self, positions: Ints) -> Iterator[tuple[pa.Table, Ints, Ints]]:
        """Tables that hold items, the rows of these in each, and their places among the positions."""
        n_built, patched = len(self.snapshot), places_of(self.patches.positions, positions)
        for table, local, inside in (
            (self.patches.items, patched, patched >= 0),
            (self.snapshot.item_table, positions, (patched < 0) & (positions < n_built)),
            (self.segment.items, positions - n_built, (patched < 0) & (positions >= n_built)),
        ):
            places = np.flatnonzero(inside)
            yield table, local[places], places

    @cached_property
    def metadata(self) -> tuple[list[MetadataKey], int]:
        """Keys of the items' metadata, and how many items were looked at: all, or some from everywhere."""
        live = self.live
        if len(live) > _MOST_METADATA:
            live = live[np.linspace(0, len(live) - 1, _MOST_METADATA).astype(np.int64)]
        texts: Counter[str] = Counter()
        for table, local, _ in self._parts(live):
            for one in pc.value_counts(table["metadata"].take(pa.array(local))).to_pylist():
                texts[one["values"] or "{}"] += one["counts"]
        return metadata_keys(texts), len(live)

    def positions_from(self, number: int, size: int) -> Ints:
        """Positions of live items from the number-th on, from 0, in gallery order."""
        # So many live ones stand before each dead one.
        before = self.dead - np.arange(len(self.dead))
        wanted = np.arange(min(number, len(self)), min(number + size, len(self)))
        return wanted + np.searchsorted(before, wanted, side="right")

    def page(self, after: int | None, size: int) -> list[tuple[int, dict[str, Any]]]:
        """The next items in gallery order, each with its sequence."""
        positions = self.positions_after(after, size)
        return list(zip(self.sequences(positions).tolist(), self.items(positions), strict=True))

    def positions_after(self, after: int | None, size: int) -> Ints:
        """Positions of the next live items in gallery order, after the one with a sequence."""
        start = 0 if after is None else self._first_after(after)
        positions = _NOBODY
        while len(positions) < size and start < self.n_positions:
            stop = min(start + size, self.n_positions)
            further = np.arange(start, stop)
            positions = np.concatenate([positions, further[~self.is_dead(further)]])
            start = stop
        return positions[:size]

    def _first_after(self, sequence: int) -> int:
        first = int(np.searchsorted(self.snapshot.sequences, sequence, side="right"))
        if first < len(self.snapshot):
            return first
        return first + int(np.searchsorted(self.segment.sequences, sequence, side="right"))

"""Item groups: items of a gallery that are decided as one, by label or metadata key; without one, alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import Floats, Ints, Mask
from vicinal.indexer.views.selection import Selection
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.configs.value_texts import value_as_text
from vicinal.service.errors import RequestError
from vicinal.service.search.group_scores import GroupedCandidates, group_scores
from vicinal.service.search.pipeline import Group
from vicinal.service.search.scorer import N_DECIDED_CANDIDATES, ScoredCandidates, stack_rows


@dataclass(frozen=True)
class GroupTable:
    """Candidates of some queries as their groups are scored from them, best first."""

    positions: Ints  # (B, n) position of each item, -1 for padding
    scores: Floats  # (B, n) its final score, -inf for padding
    codes: Ints  # (B, n) number of its group, -1 for padding
    sizes: Ints  # (B, n) items of that group that the search sees

    @classmethod
    def joined(cls, parts: Sequence[GroupTable]) -> Self:
        """The queries of all parts, in order."""
        return cls(
            stack_rows([one.positions for one in parts], np.int64(-1)),
            stack_rows([one.scores for one in parts], np.float64(-np.inf)),
            stack_rows([one.codes for one in parts], np.int64(-1)),
            stack_rows([one.sizes for one in parts], np.int64(1)),
        )

    def take(self, rows: Ints) -> GroupTable:
        """Some of the queries."""
        return GroupTable(*(values[rows] for values in vars(self).values()))

    def without(self, is_out: Mask, sizes: Ints) -> GroupTable:
        """The same queries without some candidates; `sizes` are those of their groups that are left."""
        codes, scores = np.where(is_out, -1, self.codes), np.where(is_out, -np.inf, self.scores)
        return GroupTable(np.where(is_out, -1, self.positions), scores, codes, np.maximum(sizes, 1))

    def scored(self, group: Group, weights: Floats | None = None) -> GroupedCandidates:
        """Score the groups; `weights`, (B, F + 1), are for each query in place of those of `learned`."""
        return group_scores(self.scores, self.codes, self.sizes, group, weights=weights)


@dataclass(frozen=True)
class BuiltGroups:
    """Groups of a built version, which every state of it starts from."""

    by: str  # `label` or the metadata key
    codes: Ints  # (n,) number of each item's group, -1 for an item alone
    names: tuple[str, ...]  # Name of each group

    @classmethod
    def of(cls, snapshot: Snapshot, by: str) -> Self:
        """Groups of a version's items."""
        encoded = _texts(snapshot.item_table, by).dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(by, codes, tuple(encoded.dictionary.to_pylist()))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Number of each name."""
        return {name: number for number, name in enumerate(self.names)}


class ItemGroups:
    """Groups of the items of one state of a gallery; numbers beyond those of `names` are items alone."""

    def __init__(self, view: GalleryView, built: BuiltGroups) -> None:
        self.view = view
        self.by = built.by
        codes, names = built.codes, list(built.names)
        if view.n_changes:
            codes = np.concatenate([codes, np.full(view.n_added, -1, dtype=np.int64)])
            added = np.arange(len(view.snapshot), view.n_positions)
            known: dict[str, int] = {}
            for positions, items in (
                (added, view.segment.items),
                (view.patches.positions, view.patches.items),
            ):
                found = _texts(items, built.by).to_pylist()
                for position, name in zip(positions.tolist(), found, strict=True):
                    number = -1 if name is None else built.numbers.get(name, known.get(name))
                    if number is None:
                        number = known[name] = len(names)
                        names.append(name)
                    codes[position] = number
        if not names and len(view):
            raise RequestError(_nothing_to_group(view, built.by))
        self.names = names
        # An item alone has the number of its place beyond those of the names.
        self.codes = np.where(codes >= 0, codes, len(names) + np.arange(len(codes)))

    @cached_property
    def sizes(self) -> Ints:
        """(n_names,) live items of each group with a name."""
        is_live = np.ones(len(self.codes), dtype=bool)
        is_live[self.view.dead] = False
        return self._counted(self.codes[is_live])

    def name(self, code: int) -> str | None:
        """Name of a group; None for an item alone."""
        return self.names[code] if code < len(self.names) else None

    def of_items(self, positions: Ints) -> Ints:
        """(...) number of the group of each item, -1 at -1."""
        return np.where(positions >= 0, self.codes[positions], -1) if len(self.codes) else positions

    def table(
        self,
        scored: ScoredCandidates,
        *,
        excluded: Sequence[Ints] | None = None,
        selection: Selection | None = None,
    ) -> GroupTable:
        """The candidates that a search decides among; with a filter a group is its items that fulfil it."""
        positions = scored.positions[:, :N_DECIDED_CANDIDATES]
        codes = self.of_items(positions)
        counts = self.sizes if selection is None else self._counted(self.codes[selection.positions])
        is_named = (codes >= 0) & (codes < len(counts))
        sizes = np.where(is_named, counts[np.where(is_named, codes, 0)], 1) if len(counts) else codes * 0 + 1
        for row, gone in enumerate([] if excluded is None else excluded):
            seen = gone if selection is None else gone[selection.holds(gone)]
            if len(seen):
                out = np.sort(self.codes[seen])
                left, right = (np.searchsorted(out, codes[row], side) for side in ("left", "right"))
                sizes[row] -= np.where(is_named[row], right - left, 0)
        return GroupTable(positions, scored.scores[:, :N_DECIDED_CANDIDATES], codes, sizes)

    def _counted(self, codes: Ints) -> Ints:
        n = len(self.names)
        return np.bincount(codes[codes < n], minlength=n).astype(np.int64)


def _texts(items: pa.Table, by: str) -> pa.Array:
    """Name of each item's group, null for an item alone."""
    if by == "label":
        return items["label"].cast(pa.string()).combine_chunks()
    rows = (json.loads(text or "{}") for text in items["metadata"].to_pylist())
    return pa.array([value_text(row.get(by)) for row in rows], pa.string())


def _nothing_to_group(view: GalleryView, by: str) -> str:
    if by == "label":
        return "no item has a label to group by: name a metadata key, or label the items"
    texts = view.snapshot.item_table["metadata"].to_pylist() + view.segment.items["metadata"].to_pylist()
    known = sorted({key for text in texts for key in json.loads(text or "{}")})
    return (
        f"no item has a value of the metadata key '{by}' to group by; there are: "
        f"{', '.join(['label', *known])}"
    )


def value_text(value: Any) -> str | None:
    """Text for equal values of metadata, `3` or `3.0` alike; None for a missing, empty or NaN one."""
    try:
        return value_as_text(value)
    except ValueError:
        # Lists, objects and vast floats may name a group, though no item.
        return json.dumps(value, sort_keys=True)

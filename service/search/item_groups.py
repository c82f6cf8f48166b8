"""Item groups: items of a gallery that are decided as one, by label or metadata key; without one, alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import FloatArray, Floats, Ints, Mask
from vicinal.calibration.lda import LabelMetric, blocks_of, label_sums
from vicinal.indexer.views.selection import Selection
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.configs.value_texts import value_as_text
from vicinal.service.errors import RequestError
from vicinal.service.search.group_scores import GroupedCandidates, group_scores
from vicinal.service.search.label_scores import LabelScores, metric_of
from vicinal.service.search.pipeline import Group
from vicinal.service.search.scorer import N_DECIDED_CANDIDATES, ScoredCandidates, stack_rows


@dataclass(frozen=True)
class GroupTable:
    """Candidates of some queries as their groups are scored from them, best first."""

    positions: Ints  # (B, n) position of each item, -1 for padding
    scores: Floats  # (B, n) its final score, -inf for padding
    codes: Ints  # (B, n) number of its group, -1 for padding
    sizes: Ints  # (B, n) items of that group that the search sees
    by_label: Floats | None = None  # (B, n) score of its whole label, where a metric scores labels

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
        by_label = None if self.by_label is None else self.by_label[rows]
        return GroupTable(
            self.positions[rows], self.scores[rows], self.codes[rows], self.sizes[rows], by_label
        )

    def without(self, is_out: Mask) -> GroupTable:
        """The same queries without some candidates."""
        codes, scores = np.where(is_out, -1, self.codes), np.where(is_out, -np.inf, self.scores)
        positions = np.where(is_out, -1, self.positions)
        return GroupTable(positions, scores, codes, self.sizes, self.by_label)

    def scored(self) -> GroupedCandidates:
        """The groups, best first."""
        return group_scores(self.scores, self.codes, self.sizes, self.by_label)


@dataclass(frozen=True)
class BuiltGroups:
    """Groups of a built version, which every state of it starts from."""

    by: str  # `label` or the metadata key
    codes: Ints  # (n,) number of each item's group, -1 for an item alone
    names: tuple[str, ...]  # Name of each group
    snapshot: Snapshot

    @classmethod
    def of(cls, snapshot: Snapshot, by: str) -> Self:
        """Groups of a version's items."""
        encoded = _texts(snapshot.item_table, by).dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(by, codes, tuple(encoded.dictionary.to_pylist()), snapshot)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Number of each name."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def sums(self) -> tuple[Floats, Ints]:
        """(names, d) sums of the initial embeddings of each group, and (names,) how many they are."""
        view = GalleryView.of(self.snapshot)
        blocks = blocks_of(np.arange(len(self.codes)), self.codes, view.vectors)
        return label_sums(blocks, len(self.names), self.snapshot.manifest.dim)


class ItemGroups:
    """Groups of the items of one state of a gallery; numbers beyond those of `names` are items alone."""

    def __init__(self, view: GalleryView, built: BuiltGroups) -> None:
        self.view = view
        self.by = built.by
        self._built = built
        self._scores: dict[str, LabelScores] = {}
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

    @cached_property
    def sums(self) -> tuple[Floats, Ints]:
        """(names, d) sums of the initial embeddings of each group's live items, and (names,) their number."""
        sums, counts = self._built.sums
        if not self.view.n_changes:
            return sums, counts
        n, dim = len(self.names), sums.shape[1]
        before, now = np.full(len(self.codes), -1), np.where(self.codes < n, self.codes, -1)
        before[: len(self._built.codes)] = self._built.codes
        now[self.view.dead] = -1
        changed = np.flatnonzero(before != now)
        (gone, n_gone), (come, n_come) = (
            label_sums(blocks_of(changed, codes, self.view.vectors), n, dim) for codes in (before, now)
        )
        more = n - len(counts)
        return np.pad(sums, ((0, more), (0, 0))) - gone + come, np.pad(counts, (0, more)) - n_gone + n_come

    def label_scores(self, metric: LabelMetric) -> LabelScores:
        """Scores of the labels by a metric."""
        return LabelScores(metric, self.view, self.codes, *self.sums)

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
        group: Group | None = None,
        queries: FloatArray | None = None,
    ) -> GroupTable:
        """The candidates that a search decides among; with a filter a group is its items that fulfil it, but
        a metric scores labels by all of their items. Where `group` has a metric, (B, d) initial embeddings
        of the `queries` are needed.
        """
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
        table = GroupTable(positions, scored.scores[:, :N_DECIDED_CANDIDATES], codes, sizes)
        if group is None or not group.metric or queries is None:
            return table
        if group.metric not in self._scores:
            gallery = self.view.snapshot.path.parent.parent
            self._scores[group.metric] = self.label_scores(metric_of(gallery, group.metric))
        by_label = self._scores[group.metric].of_candidates(codes, queries, excluded)
        return replace(table, by_label=by_label)

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

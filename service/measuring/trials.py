"""Trial scoring: the scores that the matcher gives to labelled queries, with the labels behind them.

What counts: every pair of a query and a labelled item, but for the query's own item and, with visits, the
items of its visit (`service.measuring.pairs`); among all items as neighbors and candidates, those without a
label included. In leave-one-out a pair counts once in each direction, because its scores differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from vicinal.calibration import Margins, TrialLabels, Trials, implied_margins
from vicinal.calibration.arrays import Codes, Floats, Ints, Mask, Objects
from vicinal.calibration.trials import ListedPairs
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.progress import OnProgress
from vicinal.service.measuring.pairs import (
    GalleryLabels,
    PairScores,
    PairScoring,
    QueryMates,
)
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.visits import Visits
from vicinal.service.search.block_products import block_products
from vicinal.service.search.item_groups import BuiltGroups, GroupTable, ItemGroups
from vicinal.service.search.item_spaces import InitialSpace, SearchSpace
from vicinal.service.search.scorer import N_DECIDED_CANDIDATES, ScoredCandidates, Scorer, stack_rows

_CHUNK = 512
_MOST_CANDIDATES = 1024


@dataclass(frozen=True)
class Impostors:
    """Candidates of the queries without a mate.

    Attributes:
        scores: (Q, w) final scores, -inf for padding.
        groups: (Q, w) number of each candidate's label; items without a label have a number of their own.
        n_groups: Labels that each query could reach, items without a label counted like labels.
        best_items: (Q,) position of the best candidate, -1 without candidates.
        queries: (Q,) row of each query.
    """

    scores: Floats
    groups: Ints
    n_groups: int
    best_items: Ints
    queries: Ints

    def n_reached(self, threshold: float) -> Ints:
        """(Q,) labels with a candidate that reaches the threshold."""
        reached = np.sort(np.where(self.scores >= threshold, self.groups, -1), axis=1)
        is_new = np.diff(reached, axis=1, prepend=-1) > 0
        return np.asarray(np.minimum(is_new.sum(axis=1), self.n_groups))


@dataclass(frozen=True)
class GroupTables:
    """What decisions by group are made from (`service.measuring.group_trials`).

    Attributes:
        groups: Groups of the items.
        item_labels: (n_items,) number of each item's label; beyond those of the labels for one without.
        with_label: The queries' candidates, their own labels in the gallery where it has them.
        without_label: Candidates of the queries without a mate, as in `Measurement.impostors`.
        is_taken_out: Whether these were searched for a second time, with their label taken out.
    """

    groups: ItemGroups
    item_labels: Ints
    with_label: GroupTable
    without_label: GroupTable
    is_taken_out: bool


@dataclass(frozen=True)
class Measurement:
    """What a calibration is made from.

    Attributes:
        trials: All scores, with labels.
        hit_rate_1: Share of queries with a mate whose best candidate is one; None without such queries.
        top_scores: (n,) best score of each query, its own label in the gallery where it has one.
        best_items: (n,) position of the best candidate of each query, -1 without candidates.
        impostors: Candidates of the queries without a mate.
        pairs: Scores of all pairs, in every space.
        query_codes: (n,) label of each query, as in `trials.labels`.
        query_images: (n,) number of each query's image: its position, or one beyond those of the items.
        mates: Best mate of each query.
        first_labels: (n,) number of the label of the best candidate, item or group; -1 without candidates.
        ranked_labels: (n, w) number of the label of each query's candidates, best first, with its own label
            in the gallery; items without a label have a number of their own, -1 for padding.
        tables: What decisions by group are made from; None where every item is decided by itself.
    """

    trials: Trials
    hit_rate_1: float | None
    top_scores: Floats
    best_items: Ints
    impostors: Impostors
    pairs: PairScores
    query_codes: Codes
    query_images: Ints
    mates: QueryMates
    first_labels: Ints
    ranked_labels: Ints
    tables: GroupTables | None = None

    @property
    def labels_without_mate(self) -> Objects:
        """(Q,) label of each query without a mate."""
        labels = self.trials.labels
        return np.empty(0, dtype=object) if labels is None else labels.names[labels.without_mate]

    @property
    def margins(self) -> Margins | None:
        """Margins on the cosine similarity that the negative pairs imply; None without such pairs."""
        *_, last_space = (space for space in self.pairs.non_mates if space != "final")
        return implied_margins(self.trials_in(last_space))

    def trials_in(self, space: str) -> Trials:
        """The pairs alone, scored in one space; see `PairScores`."""
        return self.trials if space == "final" else self._trials_by_space[space]

    @cached_property
    def _trials_by_space(self) -> dict[str, Trials]:
        return {space: self._trials_in(space) for space in self.pairs.non_mates if space != "final"}

    def _trials_in(self, space: str) -> Trials:
        none, no_codes = np.empty(0), self.query_codes[:0]
        labels, listed = self.trials.labels, self.pairs.non_mates[space]
        if labels is None:
            return self.trials
        return Trials(
            mate_scores=self.pairs.mate_scores[space],
            non_mate_scores=listed.scores,
            best_mate_scores=none,
            best_scores_without_mate=none,
            labels=TrialLabels(
                names=labels.names,
                mates=self.query_codes[self.pairs.mate_queries],
                non_mate_queries=self.query_codes[listed.queries],
                non_mate_items=listed.item_labels,
                best_mates=no_codes,
                without_mate=no_codes,
                answers=no_codes,
            ),
            low_pairs=listed.low,
        )


@dataclass(frozen=True)
class _Candidates:
    """Candidates of some queries, and what of them is an answer with a known label."""

    scores: Floats
    groups: Ints
    best_items: Ints
    answer_scores: Floats
    answer_is_mate: Mask
    answer_codes: Codes
    answer_rows: Ints

    @classmethod
    def joined(cls, parts: Sequence[_Candidates]) -> _Candidates:
        """Those of all queries, in order."""
        before = np.cumsum([0, *(len(one.best_items) for one in parts)])
        return cls(
            stack_rows([one.scores for one in parts], np.float64(-np.inf)),
            stack_rows([one.groups for one in parts], np.int64(-1)),
            np.concatenate([one.best_items for one in parts]),
            np.concatenate([one.answer_scores for one in parts]),
            np.concatenate([one.answer_is_mate for one in parts]),
            np.concatenate([one.answer_codes for one in parts]),
            np.concatenate([n + one.answer_rows for n, one in zip(before, parts, strict=False)]),
        )


class TrialScoring:
    """Scores labelled queries against one snapshot, by the code that serves queries.

    Args:
        snapshot: The gallery version.
        scorer: Scorer of the pipeline on it.
        names: Sorted labels of the gallery and of all queries.
        visits: Visits of the items, when queries name theirs.
        device: Where products are made, see `service.search.block_products`.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        scorer: Scorer,
        names: Sequence[str],
        *,
        visits: Visits | None = None,
        device: str = "cpu",
    ) -> None:
        self.snapshot = snapshot
        self.scorer = scorer
        self.visits = visits
        self.device = device
        self._names = np.array(names, dtype=object)
        self._numbers = {name: number for number, name in enumerate(names)}
        labels = snapshot.labels
        is_labelled = np.array([label is not None for label in labels], dtype=bool)
        # Each item without a label gets a number beyond those of the labels.
        spare = len(names) + np.cumsum(~is_labelled) - 1
        numbers = [self._numbers.get(label, own) for label, own in zip(labels, spare, strict=True)]
        self._labels = GalleryLabels(np.array(numbers, dtype=np.int64), len(names))
        self._of_label = _positions_by_value(self._labels.groups, len(names))
        group, self._groups = scorer.pipeline.group, None
        if group is not None:
            self._groups = ItemGroups(scorer.view, BuiltGroups.of(snapshot, group.by))

    def measure(self, queries: LabelledQueries, on_progress: OnProgress) -> Measurement:
        """Score every query, once with its label in the gallery and, where all have mates, once without."""
        n, codes = len(queries.labels), self._codes(queries.labels)
        spaces = self._spaces()
        pairs = self._pair_scoring(queries, codes, spaces)
        found, found_without, parts, tables, tables_without = [], [], [], [], []
        for rows in _chunks(n):
            part = queries.take(np.arange(rows.start, rows.stop))
            own = self._own(part)
            if queries.positions is None:
                scored = self._score(part, own)
            else:
                scored, scored_without = self._score_twice(part, own, codes[rows])
                found_without.append(self._candidates(scored_without, codes[rows]))
                tables_without += self._table(scored_without, self._gone(own, codes[rows]))
            compared = [part.embeddings, scored.queries][: len(spaces)]
            parts.append(pairs.add(rows, compared, scored, own))
            found.append(self._candidates(scored, codes[rows]))
            tables += self._table(scored, own)
            on_progress("score", rows.stop, n)
        mates = QueryMates(
            *(np.concatenate([getattr(one, name) for one in parts]) for name in vars(parts[0]))
        )
        first = without = answers = _Candidates.joined(found)
        chosen = ~mates.has_mate
        is_taken_out = queries.positions is not None or bool(mates.has_mate.all())
        if is_taken_out:
            if queries.positions is None:
                found_without, tables_without = self._without_labels(queries, codes)
            without = _Candidates.joined(found_without)
            answers, chosen = _Candidates.joined([first, without]), np.ones(n, dtype=bool)
        impostors = self._impostors(without, np.flatnonzero(chosen), is_taken_out=is_taken_out)
        collected = pairs.collected()
        hits = (first.groups[:, 0] == codes)[mates.has_mate]
        beyond = len(self.snapshot) + np.arange(n)
        return Measurement(
            trials=self._trials(codes, collected, mates, answers, impostors),
            hit_rate_1=float(hits.mean()) if len(hits) else None,
            top_scores=np.maximum(first.scores[:, 0], 0.0),
            best_items=first.best_items,
            impostors=impostors,
            pairs=collected,
            query_codes=codes,
            query_images=beyond if queries.positions is None else queries.positions,
            mates=mates,
            first_labels=first.groups[:, 0],
            ranked_labels=first.groups,
            tables=self._tables(
                tables, tables_without or tables, np.flatnonzero(chosen), is_taken_out=is_taken_out
            ),
        )

    def _pair_scoring(
        self, queries: LabelledQueries, codes: Codes, spaces: dict[str, SearchSpace]
    ) -> PairScoring:
        is_whole = queries.positions is not None and len(codes) == self._labels.is_labelled.sum()
        weight = self.scorer.pipeline.rerank.context_weight
        # In the one space there is then, nothing is refined by what a query may see.
        both_ways = bool(is_whole) and len(spaces) == 1
        return PairScoring(
            self._labels,
            codes,
            spaces,
            context_weight=weight,
            both_ways=both_ways,
            multiply=block_products(self.device, len(codes) * len(self.snapshot)),
        )

    def _spaces(self) -> dict[str, SearchSpace]:
        spaces: dict[str, SearchSpace] = {"initial": InitialSpace(self.scorer.view)}
        if self.scorer.pipeline.refine.sides != "off":
            spaces["refined"] = self.scorer.space
        return spaces

    def _impostors(self, without: _Candidates, queries: Ints, *, is_taken_out: bool) -> Impostors:
        n_groups = len(np.unique(self._labels.groups)) - is_taken_out
        return Impostors(
            without.scores[queries], without.groups[queries], n_groups, without.best_items[queries], queries
        )

    def _trials(
        self,
        codes: Codes,
        pairs: PairScores,
        mates: QueryMates,
        answers: _Candidates,
        impostors: Impostors,
    ) -> Trials:
        listed: ListedPairs = pairs.non_mates["final"]
        best = impostors.scores[:, 0]
        # Searches with the label taken out come after those of all queries.
        has_mate = np.zeros(len(answers.best_items), dtype=bool)
        has_mate[: len(codes)] = mates.has_mate
        n_with = int(has_mate.sum())
        return Trials(
            mate_scores=pairs.mate_scores["final"],
            non_mate_scores=listed.scores,
            best_mate_scores=mates.best_scores[mates.has_mate],
            # A label that fills the whole gallery leaves nothing to be drawn to.
            best_scores_without_mate=np.where(np.isfinite(best), best, 0.0),
            answer_scores=answers.answer_scores,
            answer_is_mate=answers.answer_is_mate,
            answer_has_mate=has_mate[answers.answer_rows],
            n_searches=(n_with, len(has_mate) - n_with),
            labels=TrialLabels(
                names=self._names,
                mates=codes[pairs.mate_queries],
                non_mate_queries=codes[listed.queries],
                non_mate_items=listed.item_labels,
                best_mates=codes[mates.has_mate],
                without_mate=codes[impostors.queries],
                answers=answers.answer_codes,
            ),
            low_pairs=listed.low,
        )

    def _own(self, queries: LabelledQueries) -> list[Ints]:
        """For each query its own item and those of its visit."""
        own = [np.empty(0, np.int64)] * len(queries.labels)
        if queries.positions is not None:
            own = [np.array([position]) for position in queries.positions]
        if self.visits is None or queries.visits is None:
            return own
        members = [self.visits.members(name) for name in queries.visits]
        return [np.union1d(one, other) for one, other in zip(own, members, strict=True)]

    def _score(self, queries: LabelledQueries, own: list[Ints]) -> ScoredCandidates:
        scored = self._search(queries, own, N_DECIDED_CANDIDATES)
        if (scored.contextual[:, -1] > 0.0).any():
            # The last candidate still shares neighbors, as among many duplicates: so may the next items.
            scored = self._search(queries, own, _MOST_CANDIDATES)
        return scored

    def _score_twice(
        self, queries: LabelledQueries, own: list[Ints], codes: Codes
    ) -> tuple[ScoredCandidates, ScoredCandidates]:
        """Candidates of queries, and those with their labels taken out of the gallery."""
        gone, pipeline = self._gone(own, codes), self.scorer.pipeline
        n_more = max(len(one) for one in gone)
        # A score that nothing but the pair itself decides is the same without the label.
        by_pairs = pipeline.rerank.method == "off" and pipeline.refine.sides == "off"
        if by_pairs and n_more <= N_DECIDED_CANDIDATES:
            scored = self._search(queries, own, N_DECIDED_CANDIDATES + n_more)
            is_gone = self._labels.groups[scored.positions] == codes[:, None]
            nobody = np.zeros_like(is_gone)
            return (
                scored.without(nobody, N_DECIDED_CANDIDATES),
                scored.without(is_gone, N_DECIDED_CANDIDATES),
            )
        return self._score(queries, own), self._search(queries, gone, N_DECIDED_CANDIDATES)

    def _without_labels(
        self, queries: LabelledQueries, codes: Codes
    ) -> tuple[list[_Candidates], list[GroupTable]]:
        """Candidates of all queries, each searched for with its label taken out of the gallery."""
        found, tables = [], []
        for rows in _chunks(len(codes)):
            part = queries.take(np.arange(rows.start, rows.stop))
            gone = self._gone(self._own(part), codes[rows])
            scored = self._search(part, gone, N_DECIDED_CANDIDATES)
            found.append(self._candidates(scored, codes[rows]))
            tables += self._table(scored, gone)
        return found, tables

    def _gone(self, own: list[Ints], codes: Codes) -> list[Ints]:
        """For each query its label's items and those that it is kept apart from."""
        return [np.union1d(self._of_label[code], one) for code, one in zip(codes, own, strict=True)]

    def _table(self, scored: ScoredCandidates, excluded: Sequence[Ints]) -> list[GroupTable]:
        return [] if self._groups is None else [self._groups.table(scored, excluded=excluded)]

    def _tables(
        self,
        found: Sequence[GroupTable],
        without: Sequence[GroupTable],
        chosen: Ints,
        *,
        is_taken_out: bool,
    ) -> GroupTables | None:
        if self._groups is None:
            return None
        out = GroupTable.joined(without).take(chosen)
        return GroupTables(self._groups, self._labels.groups, GroupTable.joined(found), out, is_taken_out)

    def _search(self, queries: LabelledQueries, excluded: list[Ints], n: int) -> ScoredCandidates:
        return self.scorer.score(queries.embeddings, n, excluded=excluded, items=queries.positions)

    def _candidates(self, scored: ScoredCandidates, codes: Codes) -> _Candidates:
        groups = np.where(scored.positions >= 0, self._labels.groups[scored.positions], -1)
        counted = groups[:, :N_DECIDED_CANDIDATES]
        is_answer = (counted >= 0) & (counted < len(self._names))
        rows = np.nonzero(is_answer)[0]
        return _Candidates(
            scores=scored.scores,
            groups=groups,
            best_items=scored.positions[:, 0],
            answer_scores=scored.scores[:, :N_DECIDED_CANDIDATES][is_answer],
            answer_is_mate=counted[is_answer] == codes[rows],
            answer_codes=codes[rows],
            answer_rows=rows,
        )

    def _codes(self, labels: Objects) -> Codes:
        return np.array([self._numbers[label] for label in labels], dtype=self._labels.code_type)


def _positions_by_value(values: Ints, n: int) -> list[Ints]:
    """Ascending positions of each of the values 0 to n - 1."""
    order = np.argsort(values, kind="stable")
    edges = np.searchsorted(values[order], np.arange(n + 1))
    return [order[start:stop] for start, stop in pairwise(edges)]


def _chunks(n: int) -> Iterator[slice]:
    for start in range(0, n, _CHUNK):
        yield slice(start, min(start + _CHUNK, n))

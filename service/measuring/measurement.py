"""Measurement: what a calibration searched for and found, the one table that every figure is made from. In
leave-one-out a pair counts once in each direction, because its scores differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vicinal.calibration import TrialLabels, Trials
from vicinal.calibration.arrays import Codes, FloatArray, Floats, Ints, Mask, Objects
from vicinal.calibration.rates.answered_searches import AnsweredSearches
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.progress import OnProgress
from vicinal.service.measuring.label_folds import LabelFolds
from vicinal.service.measuring.pairs import GalleryLabels, PairScores, PairScoring, QueryMates
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.visits import Visits
from vicinal.service.search.item_groups import BuiltGroups, GroupTable, ItemGroups
from vicinal.service.search.item_spaces import InitialSpace, SearchSpace, block_products
from vicinal.service.search.pipeline import Group
from vicinal.service.search.scorer import N_DECIDED_CANDIDATES, ScoredCandidates, Scorer, stack_rows

_CHUNK = 512
_MOST_CANDIDATES = 1024


@dataclass(frozen=True)
class Found:
    """Candidates of Q queries, best first, (Q, w): items, or groups of them; scores are -inf, groups and
    labels -1 for padding. An item without a group has a number of its own.
    """

    queries: Ints
    scores: Floats
    groups: Ints
    labels: Ints
    best_items: Ints

    def take(self, rows: Ints) -> Found:
        """Some of the queries."""
        return Found(**{name: one[rows] for name, one in vars(self).items()})

    @property
    def best_without_nearest(self) -> Floats:
        """(Q,) best score beside the group of the best candidate; -inf without one."""
        others = np.where(self.groups == self.groups[:, :1], -np.inf, self.scores)
        return np.asarray(others.max(axis=1, initial=-np.inf))


@dataclass(frozen=True)
class GroupTables:
    """Tables that decisions by group are made from; the (codes,) `labels` are -1 for a group without one.

    `embeddings`, (n, d), and `excluded` are those of the queries, whose labels are the groups `codes`, (n,),
    -1 for none.
    """

    groups: ItemGroups
    labels: Ints
    with_label: GroupTable
    without_label: GroupTable
    embeddings: FloatArray
    excluded: Sequence[Ints]
    codes: Ints

    def found(self, queries: Ints, table: GroupTable) -> Found:
        """Groups of the candidates of some queries."""
        grouped = table.scored()
        columns = grouped.best[:, 0]
        positions = table.positions[np.arange(len(columns)), np.maximum(columns, 0)]
        best_items, labels = np.where(columns >= 0, positions, -1), self.labels_of(grouped.codes)
        return Found(queries, grouped.scores, grouped.codes, labels, best_items)

    def labels_of(self, codes: Ints) -> Ints:
        """Number of the label of groups; -1 at -1."""
        return np.where(codes >= 0, self.labels[np.maximum(codes, 0)], -1)


@dataclass(frozen=True)
class Measurement:
    """Measurement that a calibration is made from; by groups, no pair of items is a trial. `codes` are the
    (n,) labels of queries, in sorted `names`; `folds` scored them by
    label. Of answered `searches` the first n are the queries, and the others cannot be told.
    """

    names: Objects
    codes: Codes
    images: Ints
    pairs: PairScores
    mates: QueryMates
    found: Found
    without: Found
    items: Found
    is_taken_out: bool
    are_items: bool
    tables: GroupTables | None = None
    group: Group | None = None
    folds: LabelFolds | None = None
    absent: float | None = None
    searches: AnsweredSearches | None = None

    @property
    def hit_rate_1(self) -> float | None:
        """Share of queries with a mate whose best candidate is one; None without such queries."""
        hits, counted = self.hits[self.mates.has_mate], self._search_weights
        if not len(hits):
            return None
        return float(np.average(hits, weights=None if counted is None else counted[self.mates.has_mate]))

    @property
    def hits(self) -> Mask:
        """(n,) whether the best candidate of each query has its label."""
        return np.asarray(self.found.labels[:, 0] == self.codes)

    @property
    def top_scores(self) -> Floats:
        """(n,) best score of each query, its own label in the gallery where it has one."""
        return np.maximum(self.found.scores[:, 0], 0.0)

    @property
    def searched_scores(self) -> Floats:
        """Best scores of all searches that were measured, or of those that the queries were drawn from."""
        return self.top_scores if self.searches is None else self.searches.sample_scores

    @property
    def codes_without(self) -> Codes:
        """(Q,) number of the label of each query without a mate."""
        return self.codes[self.without.queries]

    @cached_property
    def trials(self) -> Trials:
        """All scores, with labels; those of pairs are left out where groups are decided."""
        has_mate, best = self.mates.has_mate, self.without.scores[:, 0]
        answers = [self._answers(self.found, has_mate)]
        if self.is_taken_out:
            # Both searches of every query answer.
            answers.append(self._answers(self.without, np.zeros_like(has_mate)))
        scores, is_mate, rows, answer_has_mate = map(np.concatenate, zip(*answers, strict=True))
        n_with, n_searches = float(has_mate.sum()), float(len(answers) * len(has_mate))
        none, no_codes, weights = np.empty(0), self.codes[:0], {}
        if (counted := self._search_weights) is not None:
            n_with, n_searches = float(counted[has_mate].sum()), float(counted.sum())
            weights = {
                "answer_weights": counted[rows],
                "best_mate_weights": counted[has_mate],
                "without_mate_weights": counted[self.without.queries],
            }
        trials = Trials(
            mate_scores=none,
            non_mate_scores=none,
            best_mate_scores=self.mates.best_scores[has_mate],
            # A label that fills the whole gallery leaves nothing to be drawn to.
            best_scores_without_mate=np.where(np.isfinite(best), best, 0.0),
            answer_scores=scores,
            answer_is_mate=is_mate,
            answer_has_mate=answer_has_mate,
            n_searches=(n_with, n_searches - n_with),
            labels=TrialLabels(
                names=self.names,
                mates=no_codes,
                non_mate_queries=no_codes,
                non_mate_items=no_codes,
                best_mates=self.codes[has_mate],
                without_mate=self.codes_without,
                answers=self.codes[rows],
            ),
            **weights,
        )
        trials = trials if self.absent is None else trials.at_mix(self.absent)
        return trials if self.group is not None else self._with_pairs(trials, "final")

    def trials_in(self, space: str) -> Trials:
        """The same with the pairs scored in one space; see `PairScores`."""
        return self.trials if space == "final" else self._trials_by_space[space]

    @cached_property
    def _trials_by_space(self) -> dict[str, Trials]:
        spaces = (space for space in self.pairs.non_mates if space != "final")
        return {space: self._with_pairs(self.trials, space) for space in spaces}

    def _with_pairs(self, trials: Trials, space: str) -> Trials:
        pairs, listed = self.pairs, self.pairs.non_mates[space]
        labels = trials.labels and replace(
            trials.labels,
            mates=self.codes[pairs.mate_queries],
            non_mate_queries=self.codes[listed.queries],
            non_mate_items=listed.item_labels,
        )
        return replace(
            trials,
            mate_scores=pairs.mate_scores[space],
            non_mate_scores=listed.scores,
            labels=labels,
            low_pairs=listed.low,
        )

    @property
    def _search_weights(self) -> Floats | None:
        """(n,) searches that each query stands for; None where each stands for itself."""
        return None if self.searches is None else self.searches.weights[: len(self.codes)]

    def _answers(self, found: Found, has_mate: Mask) -> tuple[Floats, Mask, Ints, Mask]:
        """Score of each labelled candidate, whether it is a mate, its query, whether that has a mate."""
        labels = found.labels[:, :N_DECIDED_CANDIDATES]
        is_answer = (labels >= 0) & (labels < len(self.names))
        rows = found.queries[np.nonzero(is_answer)[0]]
        scores = found.scores[:, :N_DECIDED_CANDIDATES][is_answer]
        return scores, labels[is_answer] == self.codes[rows], rows, has_mate[rows]


class _Searched:
    """Candidates of chunks of queries."""

    def __init__(self, groups: ItemGroups | None) -> None:
        self._groups = groups
        self._parts: list[tuple[Ints, Floats]] = []
        self._tables: list[GroupTable] = []

    def add(self, scored: ScoredCandidates, excluded: Sequence[Ints]) -> None:
        self._parts.append((scored.positions, scored.scores))
        if self._groups is not None:
            self._tables.append(self._groups.table(scored, excluded=excluded))

    def found(self, labels: GalleryLabels) -> Found:
        positions = stack_rows([one for one, _ in self._parts], np.int64(-1))
        scores = stack_rows([one for _, one in self._parts], np.float64(-np.inf))
        codes = np.where(positions >= 0, labels.groups[positions], -1)
        return Found(np.arange(len(codes)), scores, codes, codes, positions[:, 0])

    def table(self) -> GroupTable:
        return GroupTable.joined(self._tables)


class TrialScoring:
    """Scores labelled queries against one snapshot, by the code that serves queries."""

    def __init__(
        self,
        snapshot: Snapshot,
        scorer: Scorer,
        queries: LabelledQueries,
        *,
        visits: Visits | None = None,
        takes_out: bool = True,
        device: str = "cpu",
    ) -> None:
        self._n_items = len(snapshot)
        self._was_crowded = False
        self._scorer = scorer
        self._queries = queries
        self._visits = visits
        self._takes_out = takes_out
        self._device = device
        is_labelled = np.array([label is not None for label in snapshot.labels], dtype=bool)
        names = sorted({*snapshot.labels[is_labelled], *queries.labels})
        self._names = np.array(names, dtype=object)
        numbers = {name: number for number, name in enumerate(names)}
        # Each item without a label gets a number beyond those of the labels.
        spare = len(names) + np.cumsum(~is_labelled) - 1
        codes = [numbers.get(label, own) for label, own in zip(snapshot.labels, spare, strict=True)]
        self._labels = GalleryLabels(np.array(codes, dtype=np.int64), len(names))
        self._codes = np.array([numbers[label] for label in queries.labels], self._labels.code_type)
        group, self._groups = scorer.pipeline.group, None
        if group is not None:
            self._groups = ItemGroups(scorer.view, BuiltGroups.of(snapshot, group.by))

    def measure(self, on_progress: OnProgress) -> Measurement:
        """Score every query, once with its label in the gallery and, where all have mates and queries without
        may be made up of them, once without.
        """
        queries, codes, n = self._queries, self._codes, len(self._codes)
        spaces: dict[str, SearchSpace] = {"initial": InitialSpace(self._scorer.view)}
        if self._scorer.pipeline.refine.sides != "off":
            spaces["refined"] = self._scorer.space
        pairs = self._pair_scoring(spaces)
        is_taken_out = queries.positions is not None or (self._takes_out and self._have_mates())
        searched, taken_out = _Searched(self._groups), _Searched(self._groups)
        excluded: list[Ints] = []
        for rows in _chunks(n):
            part = queries.take(np.arange(rows.start, rows.stop))
            own, gone = self._left_out(rows)
            excluded += own
            if is_taken_out:
                scored, without = self._score_twice(part, own, gone, codes[rows])
                taken_out.add(without, gone)
            else:
                scored = self._score(part, own)
            compared = [part.embeddings, scored.queries][: len(spaces)]
            pairs.add(rows, compared, scored, own)
            searched.add(scored, own)
            on_progress("score", rows.stop, n)
        scores = pairs.collected()
        chosen = np.arange(n) if is_taken_out else np.flatnonzero(~scores.mates.has_mate)
        impostors = taken_out if is_taken_out else searched
        found, tables = searched.found(self._labels), None
        if self._groups is not None:
            numbers = {name: code for code, name in enumerate(self._groups.names)}
            tables = GroupTables(
                self._groups,
                _group_labels(self._groups.codes, self._labels),
                searched.table(),
                impostors.table().take(chosen),
                queries.embeddings,
                excluded,
                np.array([numbers.get(name, -1) for name in self._names[codes]], dtype=np.int64),
            )
        return Measurement(
            names=self._names,
            codes=codes,
            images=self._n_items + np.arange(n) if queries.positions is None else queries.positions,
            pairs=scores,
            mates=scores.mates,
            found=found,
            without=impostors.found(self._labels).take(chosen),
            items=found,
            is_taken_out=is_taken_out,
            are_items=queries.positions is not None,
            tables=tables,
        )

    def _pair_scoring(self, spaces: dict[str, SearchSpace]) -> PairScoring:
        n, positions = len(self._codes), self._queries.positions
        is_whole = positions is not None and n == self._labels.is_labelled.sum()
        return PairScoring(
            self._labels,
            self._codes,
            spaces,
            context_weight=self._scorer.pipeline.rerank.context_weight,
            # In the one space there is then, nothing is refined by what a query may see.
            both_ways=bool(is_whole) and len(spaces) == 1,
            multiply=block_products(self._device, n * self._n_items),
        )

    def _left_out(self, rows: slice) -> tuple[list[Ints], list[Ints]]:
        """Items that a query leaves out: its own, its twins' and its visit's, and these with its label's."""
        queries, codes = self._queries, self._codes[rows]
        own = [np.empty(0, np.int64)] * len(codes)
        if queries.positions is not None:
            own = [np.array([position]) for position in queries.positions[rows]]
        if self._visits is not None and queries.visits is not None:
            members = map(self._visits.members, queries.visits[rows])
            own = [_united(one, other) for one, other in zip(own, members, strict=True)]
        if queries.left_out is not None:
            own = [_united(one, other) for one, other in zip(own, queries.left_out[rows], strict=True)]
        of_label = map(self._labels.of_label, codes.tolist())
        return own, [_united(other, one) for one, other in zip(of_label, own, strict=True)]

    def _have_mates(self) -> bool:
        """Tell whether every query has a mate."""
        left_out = (self._left_out(rows) for rows in _chunks(len(self._codes)))
        return all(len(gone) > len(own) for part in left_out for own, gone in zip(*part, strict=True))

    def _score(self, queries: LabelledQueries, own: list[Ints]) -> ScoredCandidates:
        n = _MOST_CANDIDATES if self._was_crowded else N_DECIDED_CANDIDATES
        scored = self._search(queries, own, n)
        # Where the last candidate still shares neighbors, as among many duplicates, so may the next items.
        is_crowded = bool((scored.contextual[:, :N_DECIDED_CANDIDATES][:, -1] > 0.0).any())
        # The next queries are then first searched for as these are, where the best are the same among more.
        self._was_crowded = is_crowded and self._scorer.is_settled
        wanted = _MOST_CANDIDATES if is_crowded else N_DECIDED_CANDIDATES
        return scored if n == wanted else self._search(queries, own, wanted)

    def _score_twice(
        self, queries: LabelledQueries, own: list[Ints], gone: list[Ints], codes: Codes
    ) -> tuple[ScoredCandidates, ScoredCandidates]:
        """Candidates of queries, and those with their labels taken out of the gallery."""
        n_more, pipeline = max(map(len, gone)), self._scorer.pipeline
        # A score that nothing but the pair itself decides is the same without the label.
        by_pairs = pipeline.rerank.method == "off" and pipeline.refine.sides == "off"
        if by_pairs and n_more <= N_DECIDED_CANDIDATES:
            scored = self._search(queries, own, N_DECIDED_CANDIDATES + n_more)
            is_gone = self._labels.groups[scored.positions] == codes[:, None]
            whole = scored.without(np.zeros_like(is_gone), N_DECIDED_CANDIDATES)
            return whole, scored.without(is_gone, N_DECIDED_CANDIDATES)
        return self._score(queries, own), self._search(queries, gone, N_DECIDED_CANDIDATES)

    def _search(self, queries: LabelledQueries, excluded: list[Ints], n: int) -> ScoredCandidates:
        return self._scorer.score(queries.embeddings, n, excluded=excluded, items=queries.positions)


def top_scores(
    snapshot: Snapshot,
    scorer: Scorer,
    embeddings: FloatArray,
    *,
    group: Group | None,
    excluded: Sequence[Ints],
) -> Floats:
    """(n,) best score of each of (n, d) queries, by groups where these decide; 0 where nothing is found."""
    groups = None if group is None else ItemGroups(scorer.view, BuiltGroups.of(snapshot, group.by))
    found = [np.empty(0)]
    for rows in _chunks(len(embeddings)):
        scored = scorer.score(embeddings[rows], N_DECIDED_CANDIDATES, excluded=excluded[rows])
        scores = scored.scores
        if groups is not None and group is not None:
            table = groups.table(scored, excluded=excluded[rows], group=group, queries=embeddings[rows])
            scores = table.scored().scores
        found.append(scores[:, 0])
    return np.maximum(np.concatenate(found), 0.0)


def _group_labels(codes: Ints, labels: GalleryLabels) -> Ints:
    """(codes,) number of the label of each group; -1 for one whose items have none."""
    is_labelled, n = labels.is_labelled, labels.n_labels
    pairs, counts = np.unique(codes[is_labelled] * n + labels.groups[is_labelled], return_counts=True)
    # The most frequent label of a group last, of equally frequent ones the first by name.
    order = np.lexsort((-pairs, counts))
    found = np.full(int(codes.max(initial=0)) + 1, -1, dtype=np.int64)
    found[pairs[order] // n] = pairs[order] % n
    return found


def _united(some: Ints, all_but_some: Ints) -> Ints:
    """Positions of both, ascending; quick where the second has the first."""
    places = np.searchsorted(all_but_some, some)
    is_there = places < len(all_but_some)
    if is_there.all() and (all_but_some[places] == some).all():
        return all_but_some
    return np.union1d(some, all_but_some)


def _chunks(n: int) -> Iterator[slice]:
    for start in range(0, n, _CHUNK):
        yield slice(start, min(start + _CHUNK, n))

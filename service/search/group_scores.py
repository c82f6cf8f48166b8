"""Group scores: from the scores of a query's candidates to one score for each group of items.

Biometrics calls the choice multi-sample fusion (ISO/IEC TR 24722). With s_i the final score of item i of a
group c, and n_c the items of c that the search sees:

- `max`: the best item, max s_i.
- `mean`: mean of the m best, or of all n_c where there are fewer.
- `lme`: T log((1 / n_c) sum exp(s_i / T)), between the mean (T large) and the best item (T small).
- `vote`: s_max + T log(max(1, V)), V the sum of exp((s_i - s_max) / T) over the items of c among the query's
  k nearest, and at most 1. That is 1 + T log(sum exp((s_i - 1) / T)) where the best item is among them.
- `share`: v_c / (sum of v over all groups), v_c the sum of exp((s_i - 1) / T) over the items of c among the
  k nearest. It says how alone a group is, and falls when another group rises.
- `learned`: a logistic model of the features in `FEATURES`, for the three groups with the best items; others
  score 0. It may fall when an item rises.

A group of one item scores as the item by `max`, `mean`, `lme` and `vote`; `share` and `learned` speak of all
candidates, so that it does not. All lie in [0, 1]. A search decides among a fixed number of candidates: an
item of a group that is not one of them counts with score 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import AnyArray, AnyInts, Floats, Ints
from vicinal.service.errors import RequestError
from vicinal.service.search.pipeline import Group

FEATURES = ("max", "mean", "lme", "vote", "share", "gap", "density")
"""What `learned` is made from: the other scores; `gap`, the best item's score minus that of the best item of
any other group; `density`, mean score of the k nearest items. Not n_c: where items are left out, the right
group is told by having one less."""

# Groups that `learned` chooses among: it is fitted on no others, and would rank far ones at random.
_N_RIVALS = 3


@dataclass(frozen=True)
class GroupedCandidates:
    """Groups of the candidates of a batch of queries, best first, ties by their best item's rank."""

    codes: Ints  # (B, g) number of each group, -1 for padding
    scores: Floats  # (B, g) scores in [0, 1], -inf for padding
    sizes: Ints  # (B, g) items n_c of the group that the search sees
    best: Ints  # (B, g) column of its best item among the candidates, -1 for padding


@dataclass(frozen=True)
class _Runs:
    """Candidates of a batch that are padding to no row, brought together by row and group."""

    n_rows: int
    rows: Ints  # (R,) query of each group
    codes: Ints  # (R,) its number
    sizes: Ints  # (R,) items of the group that the search sees
    starts: Ints  # (R,) place of its best item in `scores`
    columns: Ints  # (N,) column of each item
    ranks: Ints  # (N,) number of items of its query that stand before it
    scores: Floats  # (N,) its score

    @classmethod
    def of(cls, scores: Floats, codes: AnyInts, sizes: AnyInts) -> _Runs:
        is_item = (codes >= 0) & np.isfinite(scores)
        ranks = is_item.cumsum(axis=1) - 1
        rows, columns = np.nonzero(is_item)
        numbers = codes[rows, columns].astype(np.int64)
        # Stable, so that the items of a group stay best first.
        order = np.lexsort((numbers, rows))
        rows, columns, numbers = rows[order], columns[order], numbers[order]
        is_new = np.ones(len(rows), dtype=bool)
        is_new[1:] = (np.diff(rows) != 0) | (np.diff(numbers) != 0)
        starts = np.flatnonzero(is_new)
        return cls(
            n_rows=len(scores),
            rows=rows[starts],
            codes=numbers[starts],
            sizes=sizes[rows[starts], columns[starts]].astype(np.int64),
            starts=starts,
            columns=columns,
            ranks=ranks[rows, columns],
            scores=scores[rows, columns].astype(np.float64),
        )

    @property
    def best(self) -> Floats:
        """(R,) score of each group's best item."""
        return self.scores[self.starts]

    @property
    def n_seen(self) -> Ints:
        """(R,) items of each group among the candidates."""
        return np.diff(self.starts, append=len(self.scores))

    def below_best(self, temperature: float) -> Floats:
        """(N,) exp((s - s_max) / T) of each item."""
        return np.asarray(np.exp((self.scores - np.repeat(self.best, self.n_seen)) / temperature))

    def sums(self, values: Floats) -> Floats:
        """(R,) sums over the items of each group."""
        return np.asarray(np.add.reduceat(values, self.starts))

    def sums_of_rows(self, values: Floats) -> Floats:
        """(R,) for each group the sum of a value of all groups of its query."""
        return np.asarray(np.bincount(self.rows, weights=values, minlength=self.n_rows)[self.rows])

    def mean(self, m: int) -> Floats:
        ranks = np.arange(len(self.scores)) - np.repeat(self.starts, self.n_seen)
        return self.sums(np.where(ranks < m, self.scores, 0.0)) / np.minimum(m, self.sizes)

    def lme(self, temperature: float) -> Floats:
        n_unseen = np.maximum(self.sizes - self.n_seen, 0)
        total = self.sums(self.below_best(temperature)) + n_unseen * np.exp(-self.best / temperature)
        return np.asarray(self.best + temperature * np.log(total / np.maximum(self.sizes, self.n_seen)))

    def vote(self, temperature: float, k: int) -> Floats:
        votes = self.sums(np.where(self.ranks < k, self.below_best(temperature), 0.0))
        return np.minimum(self.best + temperature * np.log(np.maximum(votes, 1.0)), 1.0)

    def share(self, temperature: float, k: int) -> Floats:
        # Relative to the best of all, which leaves the shares as they are and never underflows.
        top = np.zeros(self.n_rows)
        np.maximum.at(top, self.rows, self.best)
        near = np.exp((self.scores - np.repeat(top[self.rows], self.n_seen)) / temperature)
        votes = self.sums(np.where(self.ranks < k, near, 0.0))
        return votes / self.sums_of_rows(votes)

    @cached_property
    def places(self) -> Ints:
        """(R,) number of groups of the same query whose best item stands before."""
        order = np.lexsort((self.ranks[self.starts], self.rows))
        places = np.empty(len(order), dtype=np.int64)
        firsts = np.searchsorted(self.rows[order], np.arange(self.n_rows))
        places[order] = np.arange(len(order)) - firsts[self.rows[order]]
        return places

    def gap(self) -> Floats:
        places = self.places
        highest, second = np.zeros(self.n_rows), np.zeros(self.n_rows)
        highest[self.rows[places == 0]] = self.best[places == 0]
        second[self.rows[places == 1]] = self.best[places == 1]
        return self.best - np.where(places == 0, second[self.rows], highest[self.rows])

    def density(self, k: int) -> Floats:
        near = self.ranks < k
        totals = self.sums_of_rows(self.sums(np.where(near, self.scores, 0.0)))
        return totals / self.sums_of_rows(self.sums(near.astype(np.float64)))

    def feature(self, name: str, group: Group) -> Floats:
        """(R,) feature of each group by its name; most are scores of groups."""
        t, k = group.temperature, group.k
        made: dict[str, Callable[[], Floats]] = {
            "max": lambda: self.best,
            "mean": lambda: self.mean(group.m),
            "lme": lambda: self.lme(t),
            "vote": lambda: self.vote(t, k),
            "share": lambda: self.share(t, k),
            "gap": self.gap,
            "density": lambda: self.density(k),
        }
        return made[name]()

    def features(self, group: Group) -> Floats:
        """(R, F) all features of each group."""
        return np.column_stack([self.feature(name, group) for name in FEATURES])


def group_scores(
    scores: Floats, codes: AnyInts, sizes: AnyInts, group: Group, *, weights: Floats | None = None
) -> GroupedCandidates:
    """Score the groups of each query's candidates, (B, n), best first: scores in [0, 1], -inf for padding,
    codes of groups, -1 for padding, and their sizes. `weights`, (B, F + 1), take the place of `learned`'s.
    """
    runs = _Runs.of(scores, codes, sizes)
    if not len(runs.rows):
        return _ranked(runs, np.empty(0))
    found = _learned(runs, group, weights) if group.score == "learned" else runs.feature(group.score, group)
    return _ranked(runs, np.clip(found, 0.0, 1.0))


def group_features(scores: Floats, codes: AnyInts, sizes: AnyInts, group: Group) -> tuple[Ints, Ints, Floats]:
    """(R,) query, (R,) number and (R, F) features of each group that `learned` chooses among."""
    runs = _Runs.of(scores, codes, sizes)
    if not len(runs.rows):
        return runs.rows, runs.codes, np.empty((0, len(FEATURES)))
    near = runs.places < _N_RIVALS
    return runs.rows[near], runs.codes[near], runs.features(group)[near]


def _learned(runs: _Runs, group: Group, weights: Floats | None) -> Floats:
    own = np.asarray(group.weights, dtype=np.float64)[None] if weights is None else weights
    if own.shape[1] != len(FEATURES) + 1:
        raise RequestError(
            f"the learned group score needs {len(FEATURES) + 1} weights, it has {own.shape[1]}: ",
            advise("calibrate with {group_by} {by} {group_score} learned", by=group.by),
        )
    rows = runs.rows if len(own) > 1 else np.zeros(len(runs.rows), dtype=np.int64)
    # One after the other: a product of matrices would round differently in a batch.
    logits = own[rows, -1].copy()
    for place, feature in enumerate(runs.features(group).T):
        logits += own[rows, place] * feature
    found = 1.0 / (1.0 + np.exp(-np.clip(logits, -500.0, 500.0)))
    return np.where(runs.places < _N_RIVALS, found, 0.0)


def _ranked(runs: _Runs, scores: Floats) -> GroupedCandidates:
    first = runs.columns[runs.starts]
    order = np.lexsort((first, -scores, runs.rows))
    rows = runs.rows[order]
    counts = np.bincount(rows, minlength=runs.n_rows)
    columns = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = runs.n_rows, int(counts.max(initial=1))

    def table(values: AnyArray, filling: float) -> AnyArray:
        found = np.full(shape, filling, dtype=values.dtype)
        found[rows, columns] = values[order]
        return found

    return GroupedCandidates(
        table(runs.codes, -1), table(scores, -np.inf), table(runs.sizes, 0), table(first, -1)
    )

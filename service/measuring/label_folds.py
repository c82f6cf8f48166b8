"""Label folds: metrics of a gallery's labels that never saw the label of the query they are tried with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce

import numpy as np

from vicinal.calibration.arrays import FloatArray, Floats, Ints
from vicinal.calibration.lda import SHRINKING, SHRINKINGS, LabelMetric, LabelScatter, blocks_of
from vicinal.calibration.rates.paired_bootstrap import LabelDraws, Searches
from vicinal.service.search.item_groups import GroupTable, ItemGroups

_N_FOLDS = 10
# The shrinking is chosen by so many items of as many folds as that takes, among so many other labels.
_TRIED_ITEMS, _TRIED_OF_FOLD, _TRIED_LABELS = 400, 200, 300


class LabelFolds:
    """Metrics of a gallery's labels: one of all, and for each label one without it and a tenth of the others.

    `used` is the metric of all that searches use; by default one that is made here, with the labels `beside`
    where there are some. How far a metric is shrunk is one choice for all folds, which therefore knows all
    labels, by one of four numbers.
    """

    def __init__(
        self, groups: ItemGroups, used: LabelMetric | None = None, beside: LabelScatter | None = None
    ) -> None:
        self._groups, self._used, self._beside = groups, used, beside
        rng = np.random.default_rng(0)
        self._folds = rng.permutation(len(groups.names)) % _N_FOLDS
        self._order = rng.permutation(len(groups.codes))
        self._tried: dict[int, dict[float, LabelMetric]] = {}

    @cached_property
    def whole(self) -> LabelMetric:
        """The metric of all labels.

        Raises:
            NoMetricError: They tell none.
        """
        return self._used or LabelMetric.of(self._sum, self.shrinking, self._beside)

    @cached_property
    def shrinking(self) -> float:
        """The share that tells left out items apart best by AUROC, where that is surely not the usual one."""
        shares = (SHRINKING, *(one for one in SHRINKINGS if one != SHRINKING))
        tried = [
            (rows, np.stack([self._scores_apart(one, rows) for one in self._without(fold, shares)]))
            for fold, rows in self._left_out()
        ]
        if not tried:
            return SHRINKING
        codes = self._groups.codes[np.concatenate([rows for rows, _ in tried])]
        labels = np.unique(codes, return_inverse=True)[1]
        scores = np.concatenate([found for _, found in tried], axis=2)
        figures = [Searches(own, labels, other, labels).auroc for own, other in scores]
        changes = LabelDraws(labels, labels, 0).changes(figures)
        sure = [(one.difference, share) for one, share in zip(changes, shares, strict=True) if one.low > 0.0]
        return max(sure, default=(0.0, SHRINKING))[1]

    @cached_property
    def _live(self) -> Ints:
        """Items that carry a label, in the order in which they are tried."""
        order, groups = self._order, self._groups
        return order[(groups.codes[order] < len(groups.names)) & ~groups.view.is_dead(order)]

    @cached_property
    def _parts(self) -> list[LabelScatter]:
        groups, live = self._groups, np.sort(self._live)
        folds = self._folds[groups.codes[live]]
        blocks = (
            blocks_of(live[folds == fold], groups.codes, groups.view.vectors) for fold in range(_N_FOLDS)
        )
        return [LabelScatter.of(one, *groups.sums) for one in blocks]

    @cached_property
    def _sum(self) -> LabelScatter:
        return reduce(LabelScatter.joined, self._parts)

    @cached_property
    def _metrics(self) -> list[LabelMetric]:
        share = self.shrinking
        known = {} if self._beside else {fold: found[share] for fold, found in self._tried.items()}
        return [
            known.get(fold) or LabelMetric.of(self._sum.without(part), share, self._beside)
            for fold, part in enumerate(self._parts)
        ]

    def _without(self, fold: int, shares: Sequence[float]) -> list[LabelMetric]:
        metrics = LabelMetric.each(self._sum.without(self._parts[fold]), shares)
        self._tried[fold] = dict(zip(shares, metrics, strict=True))
        return metrics

    def _left_out(self) -> Iterator[tuple[int, Ints]]:
        """Folds, and items of each whose label has another, until they are enough."""
        codes, n = self._groups.codes, 0
        live = self._live[self._groups.sums[1][codes[self._live]] > 1]
        for fold in range(_N_FOLDS):
            rows = live[self._folds[codes[live]] == fold][:_TRIED_OF_FOLD]
            n += len(rows)
            if len(rows):
                yield fold, rows
            if n >= _TRIED_ITEMS:
                return

    def _scores_apart(self, metric: LabelMetric, rows: Ints) -> Floats:
        """(2, n) score of items for their own label without them, and for the best of the others."""
        groups, own = self._groups, self._groups.codes[rows]
        others = np.flatnonzero(groups.sums[1])
        others = np.random.default_rng(0).permutation(others)[:_TRIED_LABELS]
        codes = np.column_stack([own, np.broadcast_to(others, (len(rows), len(others)))])
        codes[:, 1:][codes[:, 1:] == own[:, None]] = -1
        scores = groups.label_scores(metric).of_candidates(
            codes, groups.view.vectors(rows), list(rows[:, None])
        )
        return np.stack([scores[:, 0], scores[:, 1:].max(axis=1, initial=0.0)])

    def likelihoods(self) -> Floats:
        """(F,) how likely each fold's metric finds what differs within the labels that it has not seen."""
        pairs = zip(self._metrics, self._parts, strict=True)
        return np.array([metric.likelihood_within(part) for metric, part in pairs if part.freedom])

    def by_label(self, table: GroupTable, queries: FloatArray, own: Ints, excluded: Sequence[Ints]) -> Floats:
        """(B, n) score of the label of each candidate of (B, d) queries, without what each leaves out.

        A query with the number of a label in (B,) `own` is scored by a metric that did not see it; one with
        -1 by that of all.
        """
        scores = np.full(table.codes.shape, -np.inf)
        folds = np.where(own >= 0, self._folds[np.maximum(own, 0)], -1)
        for fold in np.unique(folds).tolist():
            rows = np.flatnonzero(folds == fold)
            found = self._groups.label_scores(self.whole if fold < 0 else self._metrics[fold])
            gone = [excluded[row] for row in rows.tolist()]
            scores[rows] = found.of_candidates(table.codes[rows], queries[rows], gone)
        return scores

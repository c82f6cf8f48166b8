"""Label folds: metrics of a gallery's labels that never saw the label of the query they are tried with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce

import numpy as np

from vicinal.calibration.arrays import FloatArray, Floats, Ints
from vicinal.calibration.lda import LabelMetric, LabelScatter, blocks_of
from vicinal.service.search.item_groups import GroupTable, ItemGroups

_N_FOLDS = 10


class LabelFolds:
    """Metrics of a gallery's labels: one of all, and for each label one without it and a tenth of the others.

    `used` is the metric of all that searches use; by default one that is made here.
    """

    def __init__(self, groups: ItemGroups, used: LabelMetric | None = None) -> None:
        self._groups, self._used = groups, used
        self._folds = np.random.default_rng(0).permutation(len(groups.names)) % _N_FOLDS

    @cached_property
    def whole(self) -> LabelMetric:
        """The metric of all labels.

        Raises:
            NoMetricError: They tell none.
        """
        return self._used or LabelMetric.of(self._sum)

    @cached_property
    def _parts(self) -> list[LabelScatter]:
        groups, (sums, counts) = self._groups, self._groups.sums
        named = np.flatnonzero(groups.codes < len(groups.names))
        live = named[~groups.view.is_dead(named)]
        folds = self._folds[groups.codes[live]]
        blocks = (
            blocks_of(live[folds == fold], groups.codes, groups.view.vectors) for fold in range(_N_FOLDS)
        )
        return [LabelScatter.of(one, sums, counts) for one in blocks]

    @cached_property
    def _sum(self) -> LabelScatter:
        return reduce(LabelScatter.beside, self._parts)

    @cached_property
    def _metrics(self) -> list[LabelMetric]:
        return [LabelMetric.of(self._sum.without(part)) for part in self._parts]

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

"""Landmark retrieval with judged galleries: the protocol of Oxford and Paris, old and revisited.

Philbin et al., "Object retrieval with large vocabularies and fast spatial matching", CVPR 2007, and
Radenović et al., "Revisiting Oxford and Paris", CVPR 2018, section 3.3. Every query has its relevant
images, and junk that is taken out of the ranking before anything is counted. Average precision is the area
under the precision-recall curve by the trapezoidal rule, which is not the mean of the precisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import Ints
from vicinal.models.errors import EvaluationError
from vicinal.models.similarity import normalize
from vicinal.training.evaluation.ranking import item_ranks


@dataclass(frozen=True)
class JudgedMetrics:
    """Means over the queries that have a relevant image at this difficulty, and how many have and have none.

    `mean_average_precision` is of `trapezoidal_average_precision`, `precision` by k of `precision_at`: what
    the authors call mP@k.
    """

    mean_average_precision: float
    precision: dict[int, float]
    n_queries: int
    n_without_relevant: int


def judged_metrics(
    queries: npt.ArrayLike,
    gallery: npt.ArrayLike,
    *,
    judged: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]],
    ks: Sequence[int] = (1, 5, 10),
) -> JudgedMetrics:
    """Rank the gallery (m, d) for each query (n, d) and average, ties broken by gallery position.

    `judged` holds for each query the gallery positions of its relevant images and of its junk. For the
    revisited sets that is easy | junk + hard, easy + hard | junk, and hard | junk + easy; for the old ones
    good + ok | junk. Refused with EvaluationError when no query has a relevant image, or there are not as
    many judgments as queries; with EmbeddingError when an embedding is zero or not finite.
    """
    unit, items = normalize(queries), normalize(gallery)
    pairs = [(_positions(relevant, len(items)), _positions(junk, len(items))) for relevant, junk in judged]
    if len(pairs) != len(unit):
        raise EvaluationError(f"{len(unit)} queries, but judgments for {len(pairs)}")
    wanted, left_out = [one for one, _ in pairs], [junk for _, junk in pairs]
    rows = [
        [trapezoidal_average_precision(ranks), *(precision_at(ranks, k) for k in ks)]
        for ranks in item_ranks(unit, items, wanted, left_out)
        if len(ranks)
    ]
    if not rows:
        raise EvaluationError("no query has a relevant image: there is nothing to measure")
    mean_average_precision, *precisions = np.mean(rows, axis=0).tolist()
    return JudgedMetrics(
        mean_average_precision=mean_average_precision,
        precision=dict(zip(ks, precisions, strict=True)),
        n_queries=len(rows),
        n_without_relevant=len(pairs) - len(rows),
    )


def trapezoidal_average_precision(ranks: Ints) -> float:
    """Area under precision over recall, the precision before and after each relevant image averaged.

    Ranks of all R relevant images, at least one, rise from 0, junk not counted.
    """
    found = np.arange(len(ranks))
    # Before the first rank nothing was retrieved, and the precision counts as 1.
    before = np.divide(found, ranks, out=np.ones(len(ranks)), where=ranks > 0)
    return float(((before + (found + 1) / (ranks + 1)) / 2).mean())


def precision_at(ranks: Ints, k: int) -> float:
    """Share of relevant images among the first k, or up to the last relevant one where that comes earlier."""
    depth = min(int(ranks[-1]) + 1, k)
    return int(np.searchsorted(ranks, depth)) / depth


def _positions(values: npt.ArrayLike, n_items: int) -> Ints:
    positions = np.unique(np.asarray(values, dtype=np.int64))
    if len(positions) and not 0 <= positions[0] <= positions[-1] < n_items:
        raise EvaluationError(f"a judgment names a gallery position beyond the {n_items} images")
    return positions

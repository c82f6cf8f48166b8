"""FPIR of near and of far queries: of kinds that the gallery knows, and of kinds that it does not.

A query of an absent shoe tempts a gallery of shoes more than one of animals does. One FPIR over both says
little about either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from vicinal.calibration.arrays import Mask
from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.rates.label_counts import LabelCounts
from vicinal.calibration.trials import Trials


def near_labels(
    labels: Iterable[str], gallery_labels: Iterable[str], coarse_labels: Mapping[str, str]
) -> Mask:
    """(n,) whether another label of the gallery has the coarse label of each label, which is not its own
    neighbor in leave-one-out.
    """
    wanted, known = list(labels), set(gallery_labels)
    missing = sorted({*wanted, *known} - set(coarse_labels))
    if missing:
        raise CalibrationError(
            f"{len(missing)} labels have no coarse label, such as '{missing[0]}': name one for every label "
            "of the gallery and of the queries, or for none"
        )
    sharing = Counter(coarse_labels[label] for label in known)
    return np.array([sharing[coarse_labels[label]] > (label in known) for label in wanted], dtype=np.bool_)


def near_far_counts(
    trials: Trials, threshold: float, *, gallery_labels: Iterable[str], coarse_labels: Mapping[str, str]
) -> tuple[LabelCounts | None, LabelCounts | None]:
    """Count queries without a mate that get a match: those whose coarse label another label of the gallery
    shares, and the others; None for a kind without queries.
    """
    if trials.labels is None:
        raise CalibrationError("near and far queries need the labels of the trials")
    codes = trials.labels.without_mate
    present = np.unique(codes)
    is_near = np.zeros(len(trials.labels.names), dtype=np.bool_)
    is_near[present] = near_labels(trials.labels.names[present], gallery_labels, coarse_labels)
    answered = trials.best_scores_without_mate >= threshold
    near, far = (
        LabelCounts.of(answered[chosen], codes[chosen]) for chosen in (is_near[codes], ~is_near[codes])
    )
    return near, far

"""OPIS of a calibration: how differently the classes fare under one threshold, in each space."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict

from vicinal.calibration import OpisFloor
from vicinal.calibration.consistency.class_utility import ClassUtilities, NoUtilityError, class_utilities
from vicinal.calibration.consistency.pair_opis_floor import PairImages, pair_opis_floor
from vicinal.service.calibrator.trials import Measurement

__all__ = ["ClassEvidence", "OpisEvidence", "SpaceOpis", "measure_opis", "worst_classes"]

_N_WORST = 10
# Largest distance of a space: scores of embeddings are 1 - d / 2, final ones 1 - d.
_DISTANCES = {"initial": 2.0, "refined": 2.0, "final": 1.0}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OpisEvidence(_Frozen):
    """OPIS in one space, on the pairs of the calibration; comparable on identical pairs only.

    Attributes:
        opis: Mean over the calibration range of the variance of the utility across classes, in [0, 0.25].
        epsilon_opis: Mean squared gap between the best and the worst 10 % of classes, in [0, 1].
        floor: Mean OPIS of equal classes on the same pairs (see
            `calibration.consistency.pair_opis_floor`); None where it cannot be told.
        floor_spread: Standard deviation of that.
        epsilon_floor: The same of epsilon-OPIS.
        epsilon_floor_spread: Standard deviation of that.
        distance_range: Distances that 1 % and 10 % of the negative pairs stay below: L2 distances of
            embeddings, 1 - score of final scores.
        n_classes: Classes with positive and negative pairs.
        n_left_out: Classes without positive pairs, which have no utility.
    """

    opis: float
    epsilon_opis: float
    floor: float | None
    floor_spread: float | None
    epsilon_floor: float | None
    epsilon_floor_spread: float | None
    distance_range: tuple[float, float]
    n_classes: int
    n_left_out: int


class ClassEvidence(_Frozen):
    """Utility of one class over the calibration range.

    Attributes:
        label: Its label.
        mean_utility: Mean over the range, in [0, 1].
        lowest_utility: Lowest of the range.
    """

    label: str
    mean_utility: float
    lowest_utility: float


@dataclass(frozen=True)
class SpaceOpis:
    """OPIS in one space, with the utilities behind it."""

    utilities: ClassUtilities
    evidence: OpisEvidence


def measure_opis(measured: Measurement) -> dict[str, SpaceOpis]:
    """OPIS with its floor by space: `initial`, `refined` where the pipeline refines, and `final`.

    Args:
        measured: Scores of all pairs.

    Returns:
        Nothing where no class has both positive and negative pairs.
    """
    if not len(measured.pairs.mate_queries) or not measured.trials.n_non_mates:
        return {}
    try:
        return {space: _measure_space(measured, space) for space in measured.pairs.mate_scores}
    except NoUtilityError:
        return {}


def worst_classes(utilities: ClassUtilities) -> tuple[ClassEvidence, ...]:
    """The ten classes with the lowest mean utility, the worst first."""
    return tuple(
        ClassEvidence(
            label=str(utilities.labels[row]),
            mean_utility=float(utilities.utilities[row].mean()),
            lowest_utility=float(utilities.utilities[row].min()),
        )
        for row in utilities.worst(_N_WORST)
    )


def _measure_space(measured: Measurement, space: str) -> SpaceOpis:
    trials = measured.trials_in(space)
    utilities = class_utilities(trials)
    pairs = measured.pairs
    images = PairImages(
        mates=np.stack([measured.query_images[pairs.mate_queries], pairs.mate_items], axis=1),
        non_mate_queries=pairs.non_mates[space].queries,
        query_labels=measured.query_codes,
        n_negatives=pairs.n_negatives,
    )
    floor: OpisFloor | None = None
    low = trials.low_pairs
    if low is None or utilities.thresholds[-1] >= low.ceiling:
        floor = pair_opis_floor(utilities, trials, images)
    loose, strict = utilities.threshold_range
    largest = _DISTANCES[space]
    evidence = OpisEvidence(
        opis=utilities.opis,
        epsilon_opis=utilities.epsilon_opis,
        floor=floor and floor.opis,
        floor_spread=floor and floor.opis_spread,
        epsilon_floor=floor and floor.epsilon_opis,
        epsilon_floor_spread=floor and floor.epsilon_opis_spread,
        distance_range=(largest * (1.0 - strict), largest * (1.0 - loose)),
        n_classes=len(utilities.labels),
        n_left_out=len(utilities.left_out),
    )
    return SpaceOpis(utilities, evidence)

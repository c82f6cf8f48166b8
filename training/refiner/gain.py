"""Gain: how much more one way of searching finds than another, and how far that can be trusted (numpy)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from vicinal.calibration.rates.paired_bootstrap import LabelDraws, Searches, mean_figure, paired_interval
from vicinal.training.refiner.validation import Outcomes


@dataclass(frozen=True)
class PairedDifference:
    """Figure before and after, on the same queries, with the 95 % interval of after - before over classes."""

    before: float
    after: float
    low: float
    high: float


@dataclass(frozen=True)
class Gain:
    """Difference between two searches in R@1, and in FNIR at the compared FPIR, each with its threshold."""

    fnir: PairedDifference
    map_at_r: PairedDifference
    hit_rate_1: PairedDifference

    def flat(self) -> dict[str, float]:
        """All numbers by name, such as `fnir_before`."""
        return {f"{name}_{key}": value for name, one in asdict(self).items() for key, value in one.items()}


def measure_gain(before: Outcomes, after: Outcomes, fpir: float, *, seed: int) -> Gain:
    """Compare what the same queries got.

    Intervals come from a paired bootstrap over classes, see `calibration.rates.paired_bootstrap`; thresholds
    are found anew in each draw.
    """
    known, absent = before.codes
    figures = [
        figure
        for one in (before, after)
        for figure in (
            Searches(one.mates, known, one.others, absent).error_when_held("fpir", fpir),
            mean_figure(one.precisions, known),
            mean_figure(one.hits, known),
        )
    ]
    draws = LabelDraws(known, absent, seed)
    measured, drawn = draws.measured(figures).reshape(2, 3), draws.drawn(figures).reshape(2, 3, -1)
    return Gain(
        *(
            PairedDifference(
                float(measured[0, i]), float(measured[1, i]), *paired_interval(drawn[0, i], drawn[1, i])
            )
            for i in range(3)
        )
    )

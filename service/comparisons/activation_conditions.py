"""Activation conditions: whether a candidate version may be activated by itself.

Each condition is read at the bad end of its figure's 95 % interval: the candidate has to show that it is good
enough, and what was not measured does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator

from vicinal.service.comparisons.version_record import (
    ActivationConditions,
    CandidateCalibration,
    ConditionOutcome,
    Decision,
    FlippedDecisions,
    PairedFigure,
)

__all__ = ["decide"]


def decide(
    conditions: ActivationConditions,
    *,
    hit_rate: PairedFigure | None,
    fnir: PairedFigure | None,
    flips: dict[str, FlippedDecisions | None],
    calibration: CandidateCalibration,
    is_served: bool,
    left_out: dict[str, str],
) -> Decision:
    """Decide by conditions.

    Args:
        conditions: What must hold.
        hit_rate: Hit rate of both versions.
        fnir: FNIR of both.
        flips: Flipped decisions by sample: `gallery`, and `queries` where there were some.
        calibration: The candidate's own.
        is_served: Whether the candidate's bundle is here.
        left_out: Why figures are missing, by their name.
    """
    outcomes = [_served(is_served)]
    if conditions.hit_rate_drop_at_most is not None:
        worst = None if hit_rate is None else 0.0 - hit_rate.low
        outcomes.append(_at_most("hit_rate_drop_at_most", conditions.hit_rate_drop_at_most, worst, left_out))
    if conditions.fnir_rise_at_most is not None:
        worst = None if fnir is None else fnir.high
        outcomes.append(_at_most("fnir_rise_at_most", conditions.fnir_rise_at_most, worst, left_out))
    if conditions.flipped_at_most is not None:
        known = [None if one is None else one.flipped.high for one in flips.values()]
        worst = None if None in known else max((one for one in known if one is not None), default=None)
        outcomes.append(_at_most("flipped_at_most", conditions.flipped_at_most, worst, left_out))
    if conditions.needs_calibration:
        outcomes.append(_calibrated(calibration))
    holds = all(one.holds for one in outcomes)
    told = [one.reason for one in outcomes if one.holds == holds]
    verdict = "activated" if holds else "not activated"
    return Decision(activate=holds, outcomes=tuple(outcomes), reason=f"{verdict}: {'; '.join(told)}")


_FIGURES = {
    "hit_rate_drop_at_most": ("the hit rate falls by", ("hit_rate",)),
    "fnir_rise_at_most": ("FNIR rises by", ("fnir",)),
    "flipped_at_most": ("decisions flip for", ("gallery_flips", "query_flips")),
}


def _at_most(name: str, limit: float, worst: float | None, left_out: dict[str, str]) -> ConditionOutcome:
    what, figures = _FIGURES[name]
    if worst is None:
        reasons = "; ".join(_reasons(figures, left_out)) or "nothing was measured"
        return ConditionOutcome(
            condition=name, limit=limit, value=None, holds=False, reason=f"{name} cannot be told: {reasons}"
        )
    holds = worst <= limit
    relation = "within" if holds else "above"
    reason = f"{what} at most {100 * worst:.2g} % (bad end), {relation} the {100 * limit:.2g} % allowed"
    return ConditionOutcome(condition=name, limit=limit, value=worst, holds=holds, reason=reason)


def _reasons(figures: tuple[str, ...], left_out: dict[str, str]) -> Iterator[str]:
    for figure in figures:
        if figure in left_out:
            yield left_out[figure]


def _calibrated(calibration: CandidateCalibration) -> ConditionOutcome:
    holds = calibration.calibration is not None
    reason = "the candidate is calibrated" if holds else f"no calibration: {calibration.problem}"
    return ConditionOutcome(
        condition="needs_calibration", limit=True, value=holds, holds=holds, reason=reason
    )


def _served(is_served: bool) -> ConditionOutcome:
    reason = "its bundle is here" if is_served else "its bundle is not here, so that every search would fail"
    return ConditionOutcome(
        condition="bundle_is_here", limit=True, value=is_served, holds=is_served, reason=reason
    )

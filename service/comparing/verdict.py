"""Verdict of a comparison: which variant to use, and whether a version may be activated by itself."""

from __future__ import annotations

from collections.abc import Sequence

from vicinal.service.comparing.record import (
    ActivationConditions,
    ConditionOutcome,
    Decision,
    Sample,
    Variant,
)
from vicinal.service.words import percent

_WHAT = {
    "hit_rate_drop_at_most": "the hit rate falls by",
    "fnir_rise_at_most": "FNIR rises by",
    "flipped_at_most": "decisions flip for",
}


def recommend(variants: Sequence[Variant], asked: str) -> tuple[int, str]:
    """Number of the variant to use, and why: the lowest error, where its interval excludes chance."""
    name = asked.upper()
    known = [
        (one.figures["error"].value, number)
        for number, one in enumerate(variants)
        if "error" in one.figures and one.calibration is not None and one.problem is None
    ]
    if not known:
        return 0, f"the present variant stays: no variant has a {name} at the target"
    lowest, best = min(known)
    error = variants[best].figures["error"]
    if error.low is None or error.high is None:
        return best, f"the present variant cannot hold the target; this one has the lowest {name}"
    if error.difference is not None and error.difference >= 0.0:
        return 0, f"no variant has a lower {name} than the present one"
    interval = f"{100 * error.low:.1f} to {100 * error.high:.1f} points of {name}"
    if error.high >= 0.0:
        return 0, (
            f"the present variant stays: number {best} has the lowest {name}, {percent(lowest)}, but its "
            f"difference of {interval} does not exclude 0"
        )
    return best, f"it has the lowest {name}; its difference to the present variant is {interval}"


def decide(conditions: ActivationConditions, variants: Sequence[Variant], *, with_pictures: bool) -> Decision:
    """Decide about the last variant by conditions."""
    one = variants[-1]
    hit_rate, fnir = one.figures.get("hit_rate"), one.figures.get("fnir")
    samples: tuple[Sample, ...] = ("queries", "pictures") if with_pictures else ("queries",)
    shares = [one.flips[name].flipped.high for name in samples if name in one.flips]
    worst = {
        "hit_rate_drop_at_most": None if hit_rate is None or hit_rate.low is None else 0.0 - hit_rate.low,
        "fnir_rise_at_most": None if fnir is None else fnir.high,
        "flipped_at_most": max(shares) if len(shares) == len(samples) else None,
    }
    missing = "; ".join({**variants[0].left_out, **one.left_out}.values()) or "nothing was measured"
    outcomes = [
        _truth(
            "bundle_is_here", one.problem is None, "its bundle is here", f"it cannot be used: {one.problem}"
        )
    ]
    for name, what in _WHAT.items():
        limit: float | None = getattr(conditions, name)
        if limit is not None:
            outcomes.append(_at_most(name, limit, worst[name], what, missing))
    if conditions.needs_calibration:
        no = f"no calibration: {one.left_out.get('calibration')}"
        outcomes.append(_truth("needs_calibration", one.calibration is not None, "it is calibrated", no))
    holds = all(outcome.holds for outcome in outcomes)
    told = "; ".join(outcome.reason for outcome in outcomes if outcome.holds == holds)
    verdict = "activated" if holds else "not activated"
    return Decision(activate=holds, outcomes=tuple(outcomes), reason=f"{verdict}: {told}")


def _truth(condition: str, holds: bool, yes: str, no: str) -> ConditionOutcome:
    reason = yes if holds else no
    return ConditionOutcome(condition=condition, limit=True, value=holds, holds=holds, reason=reason)


def _at_most(condition: str, limit: float, worst: float | None, what: str, missing: str) -> ConditionOutcome:
    holds = worst is not None and worst <= limit
    relation = "within" if holds else "above"
    reason = (
        f"{condition} cannot be told: {missing}"
        if worst is None
        else f"{what} at most {percent(worst)} (bad end), {relation} the {percent(limit)} allowed"
    )
    return ConditionOutcome(condition=condition, limit=limit, value=worst, holds=holds, reason=reason)

"""Verdict: recommended only beyond chance; conditions read at the bad end, never held by what is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vicinal.service.comparing.record import (
    ActivationConditions,
    ComparedFlips,
    Decision,
    PairedFigure,
    Variant,
    decide,
    recommend,
)
from vicinal.service.measuring.evidence import RateEvidence
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.search.pipeline import Pipeline

RECORD = CalibrationRecord.model_construct(id="own", threshold=0.5)


def figure(low: float, high: float, value: float = 0.5) -> PairedFigure:
    return PairedFigure(value=value, difference=(low + high) / 2, low=low, high=high)


def flips(high: float) -> ComparedFlips:
    share = RateEvidence(
        rate=0.0,
        low=0.0,
        high=high,
        n_trials=100,
        n_labels=40,
        effective_labels=40.0,
        leave_one_label_out=(0.0, 0.0),
    )
    return ComparedFlips(n=100, to_match=0, to_no_match=0, other_best=0, other_label=0, flipped=share)


def variant(**known: Any) -> Variant:
    """A good version; keywords replace what is known of it."""
    good = {
        "version": 2,
        "bundle": "b",
        "pipeline": Pipeline(),
        "calibration": RECORD,
        "figures": {"hit_rate": figure(-0.01, 0.03), "fnir": figure(-0.03, 0.02)},
        "opis_floor": None,
        "flips": {"queries": flips(0.04)},
        "left_out": {},
        "problem": None,
    }
    return Variant.model_construct(**{**good, **known})


@pytest.fixture
def judge() -> Callable[..., Decision]:
    def judged(conditions: dict[str, Any], **known: Any) -> Decision:
        return decide(ActivationConditions.model_validate(conditions), [variant(), variant(**known)])

    return judged


@pytest.mark.parametrize(
    ("condition", "bad_end"),
    [("hit_rate_drop_at_most", 0.01), ("fnir_rise_at_most", 0.02), ("flipped_at_most", 0.04)],
)
def test_the_bad_end_of_the_interval_decides(
    judge: Callable[..., Decision], condition: str, bad_end: float
) -> None:
    assert judge({condition: bad_end}).activate
    assert not judge({condition: bad_end - 0.001}).activate
    assert judge({condition: bad_end}).outcomes[-1].value == pytest.approx(bad_end)


@pytest.mark.parametrize(
    ("condition", "known"),
    [
        ("hit_rate_drop_at_most", {"figures": {}, "left_out": {"queries": "no labels"}}),
        ("fnir_rise_at_most", {"figures": {}, "left_out": {"calibration": "no target"}}),
        ("fnir_rise_at_most", {"figures": {"fnir": PairedFigure(value=0.1)}}),
        ("flipped_at_most", {"flips": {}, "left_out": {"queries": "no labels"}}),
    ],
)
def test_what_was_not_measured_does_not_hold(
    judge: Callable[..., Decision], condition: str, known: dict[str, Any]
) -> None:
    decision = judge({condition: 1.0}, **known)
    assert not decision.activate
    assert next(iter(known.get("left_out", {}).values()), "nothing was measured") in decision.reason


def test_a_version_that_cannot_be_searched_is_never_activated(judge: Callable[..., Decision]) -> None:
    decision = judge({"flipped_at_most": 1.0}, problem="its bundle is not here")
    assert (decision.activate, "bundle is not here" in decision.reason) == (False, True)


@pytest.mark.parametrize(
    ("rates", "high", "expected", "why"),
    [
        ((0.5, 0.4, 0.3), -0.01, 2, "it has the lowest FNIR"),
        ((0.5, 0.4, 0.3), 0.0, 0, "does not exclude 0"),
        ((0.5, 0.4, 0.3), 0.02, 0, "does not exclude 0"),
        ((0.3, 0.4, 0.3), -0.01, 0, "no variant has a lower FNIR"),
        ((0.5, 0.2, 0.3), -0.01, 1, "it has the lowest FNIR"),
    ],
)
def test_another_variant_is_recommended_only_beyond_chance(
    rates: tuple[float, ...], high: float, expected: int, why: str
) -> None:
    figures = [
        PairedFigure(value=one, difference=one - rates[0], low=-0.3 if one != rates[0] else 0.0, high=high)
        for one in rates
    ]
    number, reason = recommend([variant(figures={"error": one}) for one in figures], "fnir")
    assert (number, why in reason) == (expected, True)

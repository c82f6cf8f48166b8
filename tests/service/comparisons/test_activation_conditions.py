"""Activation conditions: read at the bad end, and never held by what was not measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from vicinal.service.calibrator.evidence import RateEvidence
from vicinal.service.comparisons.activation_conditions import decide
from vicinal.service.comparisons.version_record import (
    ActivationConditions,
    CandidateCalibration,
    Decision,
    FlippedDecisions,
    PairedFigure,
)


def figure(low: float, high: float) -> PairedFigure:
    middle = (low + high) / 2
    return PairedFigure(
        old=0.5, new=0.5 + middle, difference=middle, low=low, high=high, n_queries=100, n_labels=40
    )


def flips(high: float) -> FlippedDecisions:
    share = RateEvidence(
        rate=0.0,
        low=0.0,
        high=high,
        n_trials=100,
        n_labels=40,
        effective_labels=40.0,
        leave_one_label_out=(0.0, 0.0),
    )
    return FlippedDecisions(n=100, to_match=0, to_no_match=0, other_best=0, other_label=0, flipped=share)


@pytest.fixture
def judge() -> Callable[..., Decision]:
    """Decides about a good candidate; keywords replace what is known of it."""

    def judged(conditions: dict[str, Any], **known: Any) -> Decision:
        good = {
            "hit_rate": figure(-0.01, 0.03),
            "fnir": figure(-0.03, 0.02),
            "flips": {"gallery": flips(0.04)},
            "calibration": CandidateCalibration(calibration="own", threshold=0.5),
            "is_served": True,
            "left_out": {},
        }
        return decide(ActivationConditions.model_validate(conditions), **{**good, **known})

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


def test_a_good_middle_does_not_make_up_for_a_bad_end(judge: Callable[..., Decision]) -> None:
    decision = judge({"hit_rate_drop_at_most": 0.01}, hit_rate=figure(-0.05, 0.25))
    assert (decision.activate, decision.outcomes[-1].value) == (False, pytest.approx(0.05))
    assert decision.reason.startswith("not activated: the hit rate falls by at most 5 %")


def test_the_worse_sample_decides_about_flips(judge: Callable[..., Decision]) -> None:
    both = {"gallery": flips(0.01), "queries": flips(0.2)}
    assert not judge({"flipped_at_most": 0.1}, flips=both).activate


@pytest.mark.parametrize(
    ("condition", "known"),
    [
        ("hit_rate_drop_at_most", {"hit_rate": None, "left_out": {"hit_rate": "no labels"}}),
        ("fnir_rise_at_most", {"fnir": None, "left_out": {"fnir": "no labels"}}),
        ("flipped_at_most", {"flips": {"gallery": None}, "left_out": {"gallery_flips": "no labels"}}),
        ("flipped_at_most", {"flips": {"gallery": flips(0), "queries": None}, "left_out": {}}),
    ],
)
def test_what_was_not_measured_does_not_hold(
    judge: Callable[..., Decision], condition: str, known: dict[str, Any]
) -> None:
    decision = judge({condition: 1.0}, **known)
    assert not decision.activate
    assert next(iter(known["left_out"].values()), "nothing was measured") in decision.reason


def test_a_candidate_without_calibration_tells_why(judge: Callable[..., Decision]) -> None:
    missing = CandidateCalibration(problem="too few queries")
    decision = judge({"needs_calibration": True}, calibration=missing)
    assert (decision.activate, decision.reason) == (False, "not activated: no calibration: too few queries")
    assert judge({"flipped_at_most": 1.0}, calibration=missing).activate


def test_a_candidate_that_cannot_be_searched_is_never_activated(judge: Callable[..., Decision]) -> None:
    decision = judge({"flipped_at_most": 1.0}, is_served=False)
    assert (decision.activate, "bundle is not here" in decision.reason) == (False, True)


def test_all_conditions_must_hold(judge: Callable[..., Decision]) -> None:
    conditions = {"hit_rate_drop_at_most": 0.5, "fnir_rise_at_most": 0.0, "needs_calibration": True}
    decision = judge(conditions)
    assert [one.holds for one in decision.outcomes] == [True, True, False, True]
    assert not decision.activate


@pytest.mark.parametrize("fields", [{}, {"needs_calibration": False}, {"fnir_rise_at_most": -0.1}])
def test_no_condition_at_all_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ActivationConditions.model_validate(fields)

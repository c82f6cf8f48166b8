"""Trials: what cannot be counted is refused."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.calibration import CalibrationError, TrialLabels, Trials

FIELDS = ("mate_scores", "non_mate_scores", "best_mate_scores", "best_scores_without_mate", "answer_scores")
PARALLEL = ("mates", "non_mate_queries", "non_mate_items", "best_mates", "without_mate", "answers")


def labels(**codes) -> TrialLabels:
    fields = {name: np.zeros(2, dtype=np.uint8) for name in PARALLEL}
    return TrialLabels(names=np.array(["a"], dtype=object), **{**fields, **codes})


def trials(**changes) -> Trials:
    fields = dict.fromkeys(FIELDS, np.array([0.1, 0.2]))
    return Trials(**{**fields, "answer_is_mate": np.array([True, False]), **changes})


@pytest.mark.parametrize("name", FIELDS)
def test_a_score_that_is_not_a_number_is_refused(name: str) -> None:
    with pytest.raises(CalibrationError, match=f"^{name} holds NaN"):
        trials(**{name: np.array([0.1, np.nan])})


@pytest.mark.parametrize("name", PARALLEL)
def test_labels_must_fit_the_trials(name: str) -> None:
    assert trials(labels=labels()).labels is not None
    with pytest.raises(CalibrationError, match=rf"labels\.{name} has 3 entries, .* each of 2 trials"):
        trials(labels=labels(**{name: np.zeros(3, dtype=np.uint8)}))

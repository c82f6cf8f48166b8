"""Margins: a distance is a cosine, and the ends of the calibration range are quantiles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.calibration import CalibrationError, Trials, implied_margins, opis
from vicinal.calibration.consistency.opis import cosine_margin


@settings(deadline=None)
@given(st.floats(0.0, math.pi))
def test_a_margin_is_the_cosine_at_its_distance(angle: float) -> None:
    """Two unit vectors at an angle, their distance by Pythagoras."""
    distance = math.hypot(math.cos(angle) - 1.0, math.sin(angle))
    assert cosine_margin(min(distance, 2.0)) == pytest.approx(math.cos(angle), abs=1e-9)


def test_the_printed_formula_is_not_that_cosine() -> None:
    """Negative control: the paper's sqrt(2 - d^2) / 2 is something else."""
    assert abs(cosine_margin(1.0) - math.sqrt(2.0 - 1.0) / 2.0) < 1e-12
    assert abs(cosine_margin(0.5) - math.sqrt(2.0 - 0.25) / 2.0) > 0.1


@pytest.mark.parametrize("distance", [-0.1, 2.1, math.nan])
def test_a_distance_out_of_range_is_refused(distance: float) -> None:
    with pytest.raises(CalibrationError, match="expected 0 to 2"):
        cosine_margin(distance)


def negative_pairs(distances) -> Trials:
    return Trials(np.empty(0), 1.0 - np.asarray(distances) / 2.0, np.empty(0), np.empty(0))


def test_margins_are_those_of_the_calibration_range_of_opis() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(30), 6)
    embeddings = rng.normal(size=(30, 8))[labels] + rng.normal(size=(180, 8))
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    first, second = np.triu_indices(180, 1)
    apart = labels[first] != labels[second]
    margins = implied_margins(negative_pairs(np.linalg.norm(unit[first] - unit[second], axis=1)[apart]))
    t_min, t_max = opis(embeddings, labels).threshold_range
    assert margins.positive == pytest.approx(1.0 - t_min**2 / 2.0, abs=1e-9)
    assert margins.negative == pytest.approx(1.0 - t_max**2 / 2.0, abs=1e-9)
    assert margins.positive > margins.negative


def test_known_similarities_give_the_margins_between_them() -> None:
    """One in a hundred of an even spread over [-1, 1] lies above 0.98, one in ten above 0.8."""
    similarities = np.linspace(-1.0, 1.0, 100_001)
    margins = implied_margins(negative_pairs(np.sqrt(2.0 - 2.0 * similarities)))
    assert (margins.positive, margins.negative) == pytest.approx((0.98, 0.8), abs=5e-5)


def test_without_negative_pairs_there_are_no_margins() -> None:
    assert implied_margins(negative_pairs([])) is None

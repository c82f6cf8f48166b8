"""Margins: a distance between normalized embeddings is a cosine."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.calibration import CalibrationError, cosine_margin


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

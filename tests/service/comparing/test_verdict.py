"""Verdict: recommended only beyond chance, and used unseen only where nothing is worse or missing."""

from __future__ import annotations

from typing import Any

import pytest

from vicinal.service.comparing.record import (
    PairedFigure,
    Variant,
    objection,
    recommend,
)
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.search.pipeline import Pipeline

RECORD = CalibrationRecord.model_construct(id="own", threshold=0.5)


def figure(low: float, high: float, value: float = 0.5) -> PairedFigure:
    return PairedFigure(value=value, difference=(low + high) / 2, low=low, high=high)


def variant(**known: Any) -> Variant:
    """A good version; keywords replace what is known of it."""
    good = {
        "version": 2,
        "bundle": "b",
        "pipeline": Pipeline(),
        "calibration": RECORD,
        "figures": {"hit_rate": figure(-0.01, 0.03), "fnir": figure(-0.03, 0.02)},
        "opis_floor": None,
        "flips": {},
        "left_out": {},
        "problem": None,
    }
    return Variant.model_construct(**{**good, **known})


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({}, None),
        ({"figures": {"hit_rate": figure(0.0, 0.1), "fnir": figure(-0.1, 0.0)}}, None),
        ({"figures": {"hit_rate": figure(-0.1, 0.1), "fnir": figure(0.01, 0.2)}}, "its FNIR is worse: +1.0"),
        ({"figures": {"hit_rate": figure(-0.2, -0.01), "fnir": figure(-0.1, 0.1)}}, "-20.0 to -1.0 points"),
        ({"figures": {}, "left_out": {"queries": "no labels"}}, "cannot be compared: no labels"),
        ({"figures": {"fnir": PairedFigure(value=0.1)}}, "has no such figure"),
        ({"calibration": None, "left_out": {"calibration": "no target"}}, "no calibration: no target"),
        ({"problem": "its bundle is not here"}, "its bundle is not here"),
    ],
)
def test_a_new_version_is_used_unseen_only_where_nothing_speaks_against_it(
    known: dict[str, Any], why: str | None
) -> None:
    found = objection(variant(**known))
    assert found is None if why is None else why in str(found)


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

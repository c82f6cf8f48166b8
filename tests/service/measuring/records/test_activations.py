"""Activations: what is in force, what was before it, and how to get back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.damaged_rows import damage
from vicinal.indexer.state import state_of
from vicinal.indexer.state.schema import activations as table
from vicinal.service.errors import CalibrationRecordError, RequestError
from vicinal.service.measuring.records.store import Activations

CONTEXTUAL, OFF = "rerank=contextual", "rerank=off"


@pytest.fixture
def gallery(galleries: Path) -> Path:
    return galleries / "shoes"


@pytest.fixture
def activations(gallery: Path) -> Activations:
    return Activations(gallery)


def activate(gallery: Path, pipeline: str, name: str) -> None:
    with state_of(gallery).changing() as rows:
        Activations.activate(rows, pipeline, name)


def in_force(activations: Activations) -> dict[str, str]:
    return {slot: one.calibration for slot, one in activations.all().items()}


def test_rolling_back_goes_back_step_by_step(activations: Activations, gallery: Path) -> None:
    other = Activations(gallery)
    for name in ("a", "b", "c"):
        activate(gallery, CONTEXTUAL, name)
        assert in_force(other) == {CONTEXTUAL: name}
    assert [activations.roll_back(CONTEXTUAL) for _ in range(2)] == ["b", "a"]
    assert in_force(other) == in_force(activations) == {CONTEXTUAL: "a"}
    with pytest.raises(RequestError, match="before the present one"):
        activations.roll_back(CONTEXTUAL)


def test_every_change_is_noted_with_its_time(activations: Activations, gallery: Path) -> None:
    for name in ("a", "b", "b"):
        activate(gallery, CONTEXTUAL, name)
    activations.roll_back(CONTEXTUAL)
    events = activations.events()
    assert [(event.kind, event.calibration) for event in events] == [
        ("activate", "a"),
        ("activate", "b"),
        ("roll_back", "a"),
    ]
    assert activations.all()[CONTEXTUAL].at == events[-1].at


def test_after_damage_nothing_is_in_force_until_something_is_put_in_force(
    activations: Activations, gallery: Path
) -> None:
    for pipeline, name in ((CONTEXTUAL, "a"), (OFF, "b"), (CONTEXTUAL, "c")):
        activate(gallery, pipeline, name)
    damage(gallery, table, table.c.number == 3, calibration="d")
    for call in (activations.all, activations.events, lambda: activations.roll_back(CONTEXTUAL)):
        with pytest.raises(CalibrationRecordError, match="put one in force by `activate`"):
            call()
    activate(gallery, CONTEXTUAL, "c")
    assert in_force(activations) == {CONTEXTUAL: "c", OFF: "b"}
    assert activations.roll_back(CONTEXTUAL) == "a"

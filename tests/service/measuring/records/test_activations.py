"""Activations: what is in force, what was before it, and how to get back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from vicinal.indexer.storage.files import read_sealed, write_sealed
from vicinal.service.errors import CalibrationRecordError, RequestError
from vicinal.service.measuring.records.store import Activations

CONTEXTUAL, OFF = "rerank=contextual", "rerank=off"


@pytest.fixture
def activations(tmp_path: Path) -> Activations:
    return Activations(tmp_path / "calibrations")


def in_force(activations: Activations, pipeline: str = CONTEXTUAL) -> str:
    """As another process reads it."""
    return Activations(activations.path).active(pipeline).calibration


def test_rolling_back_goes_back_step_by_step(activations: Activations) -> None:
    for name in ("a", "b", "c"):
        activations.activate(CONTEXTUAL, name)
    assert [activations.roll_back(CONTEXTUAL) for _ in range(2)] == ["b", "a"]
    assert in_force(activations) == "a"
    with pytest.raises(RequestError, match="before the present one"):
        activations.roll_back(CONTEXTUAL)


def test_every_change_is_noted_with_its_time(activations: Activations) -> None:
    for name in ("a", "b"):
        activations.activate(CONTEXTUAL, name)
    activations.roll_back(CONTEXTUAL)
    events = activations.events()
    assert [(event.kind, event.calibration) for event in events] == [
        ("activate", "a"),
        ("activate", "b"),
        ("roll_back", "a"),
    ]
    assert activations.active(CONTEXTUAL).at == events[-1].at


@pytest.mark.parametrize("how", [Path.unlink, lambda path: path.write_text("{}")])
def test_what_is_in_force_is_made_again_of_its_history(
    activations: Activations, how: Callable[[Path], object]
) -> None:
    for pipeline, name in ((CONTEXTUAL, "a"), ("other", "b"), (CONTEXTUAL, "c")):
        activations.activate(pipeline, name)
    activations.roll_back(CONTEXTUAL)
    before = activations.all()
    how(activations.path / "active.json")
    with pytest.raises(CalibrationRecordError, match="put one in force by `activate`"):
        activations.all()
    activations.activate(CONTEXTUAL, "a")
    assert activations.all() == before


def test_a_history_that_is_damaged_begins_anew(activations: Activations) -> None:
    for name in ("a", "b"):
        activations.activate(CONTEXTUAL, name)
    (activations.path / "activations.json").write_text("{", encoding="utf-8")
    activations.activate(CONTEXTUAL, "c")
    assert activations.roll_back(CONTEXTUAL) == "b"
    assert [event.calibration for event in activations.events()] == ["b", "c", "b"]


def test_an_event_that_a_crash_left_out_is_found_again(activations: Activations) -> None:
    for name in ("a", "b"):
        activations.activate(CONTEXTUAL, name)
    events = activations.path / "activations.json"
    write_sealed(events, json.dumps({"events": json.loads(read_sealed(events))["events"][:1]}))
    activations.activate(CONTEXTUAL, "c")
    assert [activations.roll_back(CONTEXTUAL) for _ in range(2)] == ["b", "a"]


@pytest.mark.slow
def test_changes_at_the_same_time_are_all_kept(activations: Activations) -> None:
    def activate(name: str) -> None:
        Activations(activations.path).activate(f"pipeline {name}", name)

    threads = [threading.Thread(target=activate, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {one.calibration for one in activations.all().values()} == {str(number) for number in range(8)}


@pytest.mark.parametrize("text", ["", "{", "5", '[{"kind": "activate"}]'])
def test_damaged_events_are_an_error_that_names_them(activations: Activations, text: str) -> None:
    activations.activate(CONTEXTUAL, "a")
    (activations.path / "activations.json").write_text(text, encoding="utf-8")
    with pytest.raises(CalibrationRecordError, match=r"activations\.json"):
        activations.events()

"""`vicinal calibration`: what is there, what holds, and how to change it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.types import Calibrate, Fail, Run
from vicinal.indexer.gallery import Gallery


@pytest.fixture
def two(gallery: Gallery, calibrate: Calibrate) -> tuple[str, str]:
    """Ids of two calibrations, the second in force."""
    return calibrate(gallery), calibrate(gallery)


@pytest.fixture
def call(run: Run) -> Callable[..., Any]:
    """Runs `vicinal calibration` on the gallery and reads its JSON."""
    return lambda *arguments: json.loads(run("calibration", *arguments, "-g", "shoes", "--json").stdout)


def test_list_marks_what_is_in_force(run: Run, call: Callable[..., Any], two: tuple[str, str]) -> None:
    listed = call("list")["calibrations"]
    assert [(one["id"], one["is_active"]) for one in listed] == [(two[1], True), (two[0], False)]
    lines = [line.strip() for line in run("calibration", "list", "-g", "shoes").stdout.splitlines()]
    marked = [line for line in lines if line.startswith("*")]
    assert [two[1] in line for line in marked] == [True]


def test_a_threshold_set_by_hand_is_called_so(
    run: Run, call: Callable[..., Any], two: tuple[str, str]
) -> None:
    answer = call("set", "0.4")
    assert (answer["record"]["source"], answer["state"]) == ("by_hand", "by_hand")
    assert "set by hand" in run("calibration", "list", "-g", "shoes").stdout
    report = json.loads(run("calibration", "report", answer["record"]["id"], "-g", "shoes").stdout)
    assert "nobody knows how often it is wrong" in report["verdict"]
    shown = run("calibration", "set", "0.6", "-g", "shoes").stdout
    assert ("set by hand" in shown, "None" in shown) == (True, False)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["show", "nowhere"], "has no calibration 'nowhere'"),
        (["activate", "nowhere"], "has no calibration 'nowhere'"),
        (["rollback"], "before the present one"),
        (["set", "2"], "between 0 and 1"),
        (["dry-run", "7"], "between 0 and 1"),
        (["dry-run", "0.5"], "calibrate first"),
        (["drift"], "has no calibration for"),
    ],
)
def test_an_error_is_one_line(fail: Fail, data_dir: Path, arguments: list[str], reason: str) -> None:
    assert reason in fail("calibration", *arguments, "-g", "shoes")

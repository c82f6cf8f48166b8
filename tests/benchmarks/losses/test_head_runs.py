"""What held-out classes choose, and the tables of what follows."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.losses.head_report import head_tables
from benchmarks.losses.head_runs import (
    HEAD_LOSSES,
    HEAD_SEEDS,
    TCM_CHOICES,
    choose_rates,
    choose_tcm,
    loss_runs,
    noise_runs,
    rate_runs,
    tcm_runs,
)
from benchmarks.losses.training import Run

HELD_OUT = {
    "hit_rate_1": 0.9,
    "map_at_r": 0.5,
    "opis": 0.02,
    "far_1": 0.6,
    "far_10": 0.4,
    "positive_90": 0.8,
}
TEST = {
    "hit_rate_1": 0.9,
    "map_at_r": 0.5,
    "opis": 0.02,
    "opis_floor": 0.01,
    "epsilon_opis": 0.1,
    "auroc": 0.8,
    "fnir_at_fpir_5": 0.3,
}


def held_out(run: Run, **changes: float) -> dict[str, Any]:
    return {**dataclasses.asdict(run), "held_out": {**HELD_OUT, **changes}}


@pytest.fixture
def records() -> list[dict[str, Any]]:
    """Held-out classes like the rate .001; the lowest OPIS costs MAP@R, the next does not."""
    rates = [
        held_out(run, map_at_r=0.6 if run.learning_rate == 1e-3 else 0.5) for run in rate_runs("grocery")
    ]
    changes = {
        "high, light": {"opis": 0.01, "map_at_r": 0.55},
        "positives": {"opis": 0.015, "map_at_r": 0.595},
    }
    return rates + [
        held_out(run, **{"map_at_r": 0.6, **changes.get(run.name.partition("+")[2], {})})
        for run in tcm_runs("grocery", dict.fromkeys(HEAD_LOSSES, 1e-3), rates)
    ]


def test_the_rate_is_that_of_the_best_precision_on_held_out_classes(records: list[dict[str, Any]]) -> None:
    assert set(choose_rates("grocery", records).values()) == {1e-3}


def test_the_lowest_opis_is_taken_unless_it_costs_precision(records: list[dict[str, Any]]) -> None:
    rates = choose_rates("grocery", records)
    assert set(choose_tcm("grocery", rates, records).values()) == {"positives"}


def test_where_every_choice_costs_precision_the_cheapest_is_taken(records: list[dict[str, Any]]) -> None:
    for one in records:
        if one["group"] == "tcm":
            one["held_out"]["map_at_r"] -= 0.1
    rates = choose_rates("grocery", records)
    first = next(one for one in TCM_CHOICES if one not in ("high, light", "positives"))
    assert set(choose_tcm("grocery", rates, records).values()) == {first}


def test_margins_come_from_the_cosines_of_held_out_classes(records: list[dict[str, Any]]) -> None:
    run = next(one for one in loss_runs("grocery", records) if one.name == "multi_similarity+tcm")
    arguments = run.loss["add"][0]["arguments"]
    assert arguments == {"pos_margin": 0.8, "neg_margin": 0.4, "pos_weight": 1.0, "neg_weight": 0.0}


def test_runs_for_choices_leave_classes_out_and_the_others_do_not(records: list[dict[str, Any]]) -> None:
    assert all(run.fold for run in rate_runs("omniglot"))
    assert not any(run.fold for run in loss_runs("grocery", records) + noise_runs("grocery", records))


def test_a_loss_and_its_twin_differ_in_tcm_alone(records: list[dict[str, Any]]) -> None:
    runs = {run.key: run for run in loss_runs("grocery", records)}
    for key, run in runs.items():
        if "+tcm" in key:
            twin = runs[key.replace("+tcm", "")]
            assert dataclasses.replace(run, name=twin.name, loss={**run.loss, "add": []}) == twin


def test_the_mark_is_bold_where_opis_falls_by_a_fifth(records: list[dict[str, Any]]) -> None:
    no_head = {"images": "grocery", "group": "heads", "name": "no head", "seed": 0, "test": TEST}
    for run in loss_runs("grocery", records) + noise_runs("grocery", records):
        falls = run.name == "triplet+tcm"
        test = {**TEST, "opis": 0.01 + 0.0001 * run.seed} if falls else TEST
        records.append({**dataclasses.asdict(run), "test": test})
    made = head_tables([*records, no_head])
    assert set(made) == {"heads-grocery", "heads-fit-grocery", "heads-tcm", "heads-noise-grocery"}
    assert [line.split(" | ")[0] for line in made["heads-tcm"].splitlines() if "**" in line] == ["| triplet"]
    assert made["heads-grocery"].count("\n") == 2 + 1 + 2 * len(HEAD_LOSSES)
    assert len(HEAD_SEEDS) == 5

"""What held-out classes choose, and the tables of what follows."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.losses.pretrained_report import plan_tables
from benchmarks.losses.pretrained_runs import HEADS, TCM_CHOICES, TUNING, Plan
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


def records_for_choices(plan: Plan) -> list[dict[str, Any]]:
    """Held-out classes like the second rate; the lowest OPIS costs MAP@R, the next does not."""
    rates = [
        held_out(run, map_at_r=0.6 if run.learning_rate == plan.rates[1] else 0.5)
        for run in plan.rate_runs("grocery")
    ]
    changes = {
        "high, light": {"opis": 0.01, "map_at_r": 0.55},
        "positives": {"opis": 0.015, "map_at_r": 0.595},
    }
    return rates + [
        held_out(run, **{"map_at_r": 0.6, **changes.get(run.name.rpartition("+")[2], {})})
        for run in plan.tcm_runs("grocery", rates)
    ]


@pytest.fixture(params=[HEADS, TUNING], ids=["heads", "tuning"])
def plan(request: pytest.FixtureRequest) -> Plan:
    found: Plan = request.param
    return found


@pytest.fixture
def records(plan: Plan) -> list[dict[str, Any]]:
    return records_for_choices(plan)


def test_the_rate_is_that_of_the_best_precision_on_held_out_classes(
    plan: Plan, records: list[dict[str, Any]]
) -> None:
    assert set(plan.choose_rates("grocery", records).values()) == {plan.rates[1]}


def test_the_lowest_opis_is_taken_unless_it_costs_precision() -> None:
    records = records_for_choices(HEADS)
    assert set(HEADS.choose_tcm("grocery", records).values()) == {"positives"}


def test_where_every_choice_costs_precision_the_cheapest_is_taken() -> None:
    records = records_for_choices(HEADS)
    for one in records:
        if one["group"] == "tcm":
            one["held_out"]["map_at_r"] -= 0.1
    first = next(one for one in TCM_CHOICES if one not in ("high, light", "positives"))
    assert set(HEADS.choose_tcm("grocery", records).values()) == {first}


def test_a_single_choice_of_tcm_is_taken_without_a_try() -> None:
    records = records_for_choices(TUNING)
    assert not TUNING.tcm_runs("grocery", records)
    assert TUNING.choose_tcm("grocery", records)["contextual"] == "high, light"


def test_a_variant_takes_rate_and_tcm_of_its_loss() -> None:
    records = records_for_choices(TUNING)
    runs = {run.name: run for run in TUNING.loss_runs("grocery", records)}
    variant = runs["balanced_contrastive, no importance+tcm"]
    own = runs["balanced_contrastive+tcm"]
    assert not any(", no importance" in run.name for run in TUNING.rate_runs("grocery"))
    assert variant.learning_rate == own.learning_rate
    assert variant.loss["add"] == own.loss["add"]


def test_margins_come_from_the_cosines_of_held_out_classes(plan: Plan, records: list[dict[str, Any]]) -> None:
    run = next(one for one in plan.loss_runs("grocery", records) if one.name == "multi_similarity+tcm")
    arguments = run.loss["add"][0]["arguments"]
    weights = {"pos_weight": 1.0 if plan is HEADS else 0.3, "neg_weight": 0.0}
    assert arguments == {"pos_margin": 0.8, "neg_margin": 0.4, **weights}


def test_runs_for_choices_leave_classes_out_and_the_others_do_not(
    plan: Plan, records: list[dict[str, Any]]
) -> None:
    assert all(run.fold for images in plan.sets for run in plan.rate_runs(images))
    assert not any(
        run.fold for run in plan.loss_runs("grocery", records) + plan.noise_runs("grocery", records)
    )


def test_a_loss_and_its_twin_differ_in_tcm_alone(plan: Plan, records: list[dict[str, Any]]) -> None:
    runs = {run.key: run for run in plan.loss_runs("grocery", records)}
    for key, run in runs.items():
        if "+tcm" in key:
            twin = runs[key.replace("+tcm", "")]
            assert dataclasses.replace(run, name=twin.name, loss={**run.loss, "add": []}) == twin


def test_a_balanced_loss_knows_the_batches_that_it_gets() -> None:
    for images in TUNING.sets:
        for run in TUNING.rate_runs(images):
            if run.loss["name"] == "balanced_contrastive":
                assert (
                    run.loss["arguments"]["batch_design"] == run.sampler == {"kind": "group", "m": 4, "n": 16}
                )


def test_every_tuned_run_sees_about_as_many_images() -> None:
    for images in TUNING.sets:
        for run in TUNING.rate_runs(images):
            size = run.sampler.get("batch_size") or run.sampler["m"] * run.sampler["n"]
            assert 4_600 <= run.steps * size <= 4_800


def test_the_mark_is_bold_where_opis_falls_by_a_fifth(plan: Plan, records: list[dict[str, Any]]) -> None:
    final = plan.loss_runs("grocery", records)
    for run in final + plan.noise_runs("grocery", records):
        falls = run.name == "recall_at_k+tcm"
        test = {**TEST, "opis": 0.01 + 0.0001 * run.seed} if falls else TEST
        records.append({**dataclasses.asdict(run), "test": test})
    untrained = {"images": "grocery", "group": plan.group, "name": plan.untrained, "seed": 0, "test": TEST}
    made = plan_tables(plan, [*records, untrained])
    noise = {f"{plan.group}-noise-grocery"} if plan.noise else set()
    tables = {f"{plan.group}-grocery", f"{plan.group}-fit-grocery", f"{plan.group}-tcm"}
    assert set(made) == tables | noise
    marked = [line for line in made[f"{plan.group}-tcm"].splitlines() if "**" in line]
    assert [line.split(" | ")[0] for line in marked] == ["| recall_at_k"]
    assert made[f"{plan.group}-grocery"].count("\n") == 2 + 1 + len(final) // len(plan.seeds)


def test_a_study_cut_short_compares_the_seeds_that_it_has(plan: Plan, records: list[dict[str, Any]]) -> None:
    runs = [run for run in plan.loss_runs("grocery", records) if run.seed == 0 or "+tcm" not in run.name]
    records.extend({**dataclasses.asdict(run), "test": TEST} for run in runs)
    table = plan_tables(plan, records)[f"{plan.group}-tcm"]
    assert table.count("| +0 | +0 | +0.000 |") == len(plan.trials["grocery"])
    assert "nan" not in table

"""Every refiner that a study asks for can be trained, and starts as the expansion that it was given."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.refiner.recipes import VARIANTS, Start, Variant, recipe_of
from benchmarks.refiner.tasks import STUDIES
from vicinal.training.refiner.config import RefinerRecipe

START = Start(n_neighbors=4, temperature=0.1, weight=2.0, n_candidates=16, batch_size=40)


@pytest.mark.parametrize("variant", [one for group in VARIANTS.values() for one in group.values()])
def test_a_variant_is_a_recipe(variant: Variant) -> None:
    RefinerRecipe.model_validate(recipe_of(variant, START))


def test_all_steps_together_pull_as_much_as_one() -> None:
    made = recipe_of(Variant("gated", {"refiner": {"n_steps": 4}}), START)
    assert made["refiner"]["n_steps"] * made["refiner"]["expansion_weight"] == 2.0


@pytest.mark.parametrize("name", list(STUDIES))
def test_a_study_measures_what_there_is_and_nothing_twice(name: str) -> None:
    study = STUDIES[name]
    refiners = [task for task in study.tasks if task.group != "controls"]
    assert all(task.name in VARIANTS[task.group] for task in refiners)
    assert {task.base for task in study.tasks} == set(study.bases)
    assert len({task.key for task in study.tasks}) == len(study.tasks)

"""Refiner recipe: what it refuses, and where it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from vicinal.models.errors import ConfigError
from vicinal.training.refiner.config import RefinerConfig, RefinerRecipe

RECIPE = """
seed = 3
loss = "contrastive"

[[datasets]]
kind = "folder"
root = "photos"

[refiner]
n_steps = 4
init = "softmax_qe"
temperature = 0.1
"""

GATED = {"form": "gated", "init": "softmax_qe", "temperature": 0.1}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    return tmp_path / "recipe.toml"


def test_a_recipe_is_read_with_what_is_set_anew(path: Path) -> None:
    pytest.importorskip("torch")
    recipe = RefinerRecipe.load(path, data_root=Path("/data"), settings=["refiner.n_heads=2", "seed=5"])
    assert (recipe.seed, recipe.loss.name, recipe.refiner.n_steps) == (5, "contrastive", 4)
    assert (recipe.refiner.n_heads, recipe.datasets[0].root) == (2, Path("/data/photos"))


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("refiner.n_step=3", r"recipe\.toml': refiner\.n_step: unknown key, did you mean 'n_steps'"),
        ("batches.per_class=3", "per_class 3 does not divide batch_size 128"),
        ("objective='rank'", r"objective: .*'batch' or 'search'"),
        ("search.gallery_share=[0.6, 0.4]", r"gallery_share is 0\.6 to 0\.4, expected two ascending shares"),
        ("search.most_per_class=[4, 2]", r"most_per_class is 4 to 2, expected two ascending numbers"),
    ],
)
def test_a_wrong_key_or_value_is_named(path: Path, setting: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        RefinerRecipe.load(path, settings=[setting])


@pytest.mark.parametrize(
    "options",
    [
        {"init": "softmax_qe"},
        {"shared_temperature": True},
        {"expansion_weight": 0.5},
        {"form": "gated"},
        {"form": "gated", "temperature": 0.1},
        {"form": "gated", "init": "softmax_qe"},
        {**GATED, "neighbors": "none"},
        {**GATED, "n_heads": 8},
        {**GATED, "dropout": 0.1},
        {**GATED, "zero_init_output": True},
        {"level": True, "neighbors": "none"},
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RefinerConfig(**options)


def test_the_recipes_of_the_documentation_can_be_read(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "refiner.md").read_text(encoding="utf-8")
    recipes = []
    for block in page.split("```toml\n")[1:]:
        (tmp_path / "refiner.toml").write_text(block.split("```")[0], encoding="utf-8")
        recipes.append(RefinerRecipe.load(tmp_path / "refiner.toml"))
    paper, gated = recipes
    assert (paper.refiner.init, paper.objective, paper.absent.share) == ("softmax_qe", "batch", 0.3)
    assert (gated.refiner.form, gated.refiner.level, gated.objective) == ("gated", True, "search")


def test_the_recipe_of_the_refiner_that_ships_can_be_read() -> None:
    recipe = RefinerRecipe.load(Path(__file__).parents[3] / "recipes" / "vicinal-photos-refiner.toml")
    trained, measured = (
        {one.root.name for one in sets} for sets in (recipe.datasets, recipe.validation_datasets)
    )
    assert "dogfacenet" not in trained
    assert "dogfacenet" in measured

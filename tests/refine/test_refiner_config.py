"""Refiner recipe: what it refuses, and where it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from models.errors import ConfigError
from refine.config import RefinerConfig, RefinerRecipe
from refine.errors import RefinerConfigError

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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    return tmp_path / "recipe.toml"


def test_a_recipe_is_read_with_what_is_set_anew(path: Path) -> None:
    recipe = RefinerRecipe.load(path, data_root=Path("/data"), settings=["refiner.n_heads=2", "seed=5"])
    assert (recipe.seed, recipe.loss.name) == (5, "contrastive")
    assert (recipe.refiner.n_steps, recipe.refiner.n_heads) == (4, 2)
    assert recipe.datasets[0].root == Path("/data/photos")


def test_without_a_file_the_defaults_are_those_of_the_paper() -> None:
    refiner = RefinerRecipe.load(None).refiner
    assert (refiner.n_steps, refiner.n_neighbors, refiner.form) == (8, 8, "attention_mlp")


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("refiner.n_step=3", r"recipe\.toml': refiner\.n_step: unknown key, did you mean 'n_steps'"),
        ("absent.share=2", r"absent\.share: .*less than or equal to 1"),
        ("batches.per_class=3", "per_class 3 does not divide batch_size 128"),
        ("validation.share=0", r"validation\.share"),
    ],
)
def test_a_wrong_key_or_value_is_named(path: Path, setting: str, named: str) -> None:
    with pytest.raises(RefinerConfigError, match=named):
        RefinerRecipe.load(path, settings=[setting])


def test_a_loss_that_contradicts_the_batches_is_refused(path: Path) -> None:
    with pytest.raises(RefinerConfigError, match="contextual loss has k 4, the sampler draws 8"):
        RefinerRecipe.load(path, settings=["loss=contextual", "batches.per_class=8"])


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        RefinerRecipe.load(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    "options",
    [
        {"init": "softmax_qe"},
        {"shared_temperature": True},
        {"expansion_weight": 0.5},
        {"n_neighbors": 33},
        {"temperature": 0.0},
        {"width": 3},
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RefinerConfig(**options)


def test_the_recipe_of_the_documentation_can_be_read(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "refiner.md").read_text(encoding="utf-8")
    (tmp_path / "refiner.toml").write_text(page.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    recipe = RefinerRecipe.load(tmp_path / "refiner.toml")
    assert (recipe.refiner.init, recipe.absent.share) == ("softmax_qe", 0.3)

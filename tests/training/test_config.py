"""Training configuration: wrong files are refused before anything is loaded, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("timm")

from vicinal.models.errors import ConfigError
from vicinal.training.config import TrainingConfig

MINIMAL = """
name = "sample"
[backbone]
name = "resnet18"
[preprocessing]
input_size = 64
[[datasets]]
kind = "protocol"
root = "omniglot"
"""
RECIPES = sorted(
    path
    for path in (Path(__file__).parents[2] / "recipes").glob("*.toml")
    if not path.stem.endswith("-refiner")
)


def _written(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        TrainingConfig.load(path)
    return str(caught.value)


def test_minimal_file_gets_the_documented_defaults(tmp_path: Path) -> None:
    config = TrainingConfig.load(_written(tmp_path, MINIMAL))
    assert config.loss.name == "multi_similarity"
    assert (config.sampler.batch_size, config.sampler.per_class) == (128, 4)
    assert config.datasets[0].roles == ("train",)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_shipped_recipe_is_valid(recipe: Path) -> None:
    assert TrainingConfig.load(recipe).name == recipe.stem


def test_relative_root_starts_from_the_data_root(tmp_path: Path) -> None:
    config = TrainingConfig.load(_written(tmp_path, MINIMAL), data_root=tmp_path / "sets")
    assert config.datasets[0].root == tmp_path / "sets" / "omniglot"


@pytest.mark.parametrize("text", ["name = ", "{}", "name = 'a'\nname = 'b'"])
def test_file_that_is_not_toml_is_refused(tmp_path: Path, text: str) -> None:
    assert "is not TOML" in _refusal(_written(tmp_path, text))


@pytest.mark.parametrize(
    ("added", "where"),
    [
        ("[sampler]\nbatchsize = 8", "sampler.batchsize"),
        ("[optimizer]\nlearning_rate = 0", "optimizer.learning_rate"),
        ("[augmentation]\nsmallest_crop = 2", "augmentation.smallest_crop"),
        ("[[datasets]]\nkind = 'web'", "datasets.1"),
        ("[[datasets]]\nkind = 'demo_catalog'\nseeds = []", "datasets.1.seeds"),
        ("[[datasets]]\nkind = 'folder'\nroot = 3", "datasets.1.root"),
        ("[extra]", "extra"),
    ],
)
def test_unknown_key_or_impossible_value_is_named(tmp_path: Path, added: str, where: str) -> None:
    assert f": {where}: " in _refusal(_written(tmp_path, MINIMAL + added))

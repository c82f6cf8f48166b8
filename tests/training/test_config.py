"""Training configuration: wrong files are refused before anything is loaded, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("timm")

from vicinal.models.errors import ConfigError
from vicinal.training.config import TrainingConfig
from vicinal.training.datasets.layouts.demo_catalog import DemoCatalogConfig
from vicinal.training.datasets.layouts.folder import FolderConfig
from vicinal.training.datasets.layouts.protocol import ProtocolConfig
from vicinal.training.losses.config import LossConfig

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


def test_relative_root_of_a_retrieval_test_starts_from_the_data_root(tmp_path: Path) -> None:
    added = "[[tests]]\nname = 'held-out'\ndataset = {kind = 'protocol', root = 'grocery', split = 'test'}"
    config = TrainingConfig.load(_written(tmp_path, MINIMAL + added), data_root=tmp_path / "sets")
    assert config.tests[0].dataset.root == tmp_path / "sets" / "grocery"


def test_kind_chooses_the_data_set(tmp_path: Path) -> None:
    more = '[[datasets]]\nkind = "folder"\nroot = "shoes"\n[[datasets]]\nkind = "demo_catalog"\nseeds = [1]\n'
    kinds = [type(entry) for entry in TrainingConfig.load(_written(tmp_path, MINIMAL + more)).datasets]
    assert kinds == [ProtocolConfig, FolderConfig, DemoCatalogConfig]


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


@pytest.mark.parametrize(
    "datasets", ["datasets = 3", "datasets = []", 'datasets = ["omniglot"]', "[datasets]\nroot = 'x'"]
)
def test_datasets_that_are_no_list_of_tables_are_refused(tmp_path: Path, datasets: str) -> None:
    text = f'{datasets}\n[backbone]\nname = "a"\n[preprocessing]\n'
    text = text if text.startswith("[") else f'name = "sample"\n{text}'
    assert "datasets" in _refusal(
        _written(tmp_path, text.replace("[datasets]", 'name = "sample"\n[datasets]'))
    )


@pytest.mark.parametrize("loss", ['loss = "contextual"', '[loss]\nname = "contextual"'])
def test_a_loss_can_be_given_by_its_name_alone(tmp_path: Path, loss: str) -> None:
    text = MINIMAL + loss if loss.startswith("[") else f"{loss}\n{MINIMAL}"
    assert TrainingConfig.load(_written(tmp_path, text)).loss == LossConfig(name="contextual")

"""Recipe: one TOML file in, a measured bundle with its card out."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("torch")

from vicinal.models.bundle import ModelBundle
from vicinal.models.errors import ConfigError
from vicinal.models.probe import read_probe
from vicinal.training.recipe import Recipe, run_recipe

pytestmark = pytest.mark.slow

RECIPE = """
name = "tiny"
licence = "Apache-2.0"
source = "nothing but random numbers"
form = "int8"
interpolate = 0.5
served_size = 48
validation_share = 0.0

[backbone]
name = "resnet18"
arguments = {{ layers = [1, 1, 1, 1], channels = [8, 8, 16, 16] }}
dim = 16
frozen_stages = 2

[preprocessing]
input_size = 32
fit = "squash"

[[datasets]]
kind = "folder"
root = "{folder}"

[sampler]
batch_size = 8
per_class = 4

[optimizer]
steps = 3
warmup_steps = 1

[[tests]]
name = "shades"
dataset = {{ kind = "protocol", root = "shades", split = "test", roles = ["gallery", "query", "absent"] }}
"""


def write_shades(root: Path) -> None:
    """A protocol folder: two known gray labels and an absent one."""
    root.mkdir()
    lines = ["path,label,split,role"]
    with zipfile.ZipFile(root / "test.zip", "w") as archive:
        for label, gray, roles in (
            ("dark", 30, ("gallery", "query")),
            ("light", 220, ("gallery", "query")),
            ("middle", 128, ("absent",)),
        ):
            for role in roles:
                path = root / f"{label}-{role}.png"
                Image.new("RGB", (32, 32), (gray, gray, gray)).save(path)
                archive.write(path, f"{label}/{role}.png")
                lines.append(f"{label}/{role}.png,{label},test,{role}")
    (root / "protocol.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, color_folder: Path) -> ModelBundle:
    root = tmp_path_factory.mktemp("recipe")
    write_shades(root / "shades")
    recipe = root / "tiny.toml"
    recipe.write_text(RECIPE.format(folder=color_folder), encoding="utf-8")
    settings = ["optimizer.steps=2", "loss.add=['tcm']"]
    return run_recipe(Recipe.load(recipe, data_root=root, settings=settings), root / "out")


def test_the_bundle_says_what_it_was_trained_on_and_measured_on(finished: ModelBundle) -> None:
    manifest = ModelBundle.open(finished.path).manifest
    assert (manifest.training["steps"], len(manifest.labels_sha256)) == (2, 64)
    assert manifest.preprocessing.input_size == 48
    assert set(manifest.metrics["shades"]) == {
        *("hit_rate_1", "r_precision", "map_at_r", "mean_average_precision", "map_at_1000", "auroc"),
        *("opis", "opis_floor", "opis_floor_spread"),
        *("epsilon_opis", "epsilon_opis_floor", "epsilon_opis_floor_spread"),
        *("n_gallery", "n_queries", "n_absent"),
    }


def test_recipe_curve_card_and_weights_lie_beside_the_bundle(finished: ModelBundle) -> None:
    names = {file.name for file in finished.path.iterdir()}
    assert names >= {
        "recipe.toml",
        "training.csv",
        "training.png",
        "MODEL_CARD.md",
        "weights.pt",
        "checkpoint.pt",
    }
    assert read_probe(finished) is not None


def test_the_network_has_the_form_that_the_recipe_asks_for(finished: ModelBundle) -> None:
    assert finished.manifest.precision == "int8"
    assert set(finished.manifest.forms) == {"float32", "int8"}
    assert finished.manifest.training["share"] == 0.5


def test_a_directory_with_a_run_is_not_overwritten_unasked(finished: ModelBundle) -> None:
    with pytest.raises(ConfigError, match=r"already holds a run .*resume.*overwrite"):
        run_recipe(Recipe.load(finished.path / "recipe.toml"), finished.path)

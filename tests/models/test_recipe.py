"""Recipe: one TOML file in, a measured bundle with its card out."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("torch")

from models.bundle import ModelBundle
from models.recipe import run_recipe

RECIPE = """
name = "tiny"
licence = "Apache-2.0"
validation_share = 0.0

[backbone]
name = "resnet18"
arguments = {{ layers = [1, 1, 1, 1], channels = [8, 8, 16, 16] }}
dim = 16

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
steps = 2
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
def finished(tmp_path_factory: pytest.TempPathFactory, color_folder: Path) -> tuple[ModelBundle, list]:
    root = tmp_path_factory.mktemp("recipe")
    write_shades(root / "shades")
    recipe = root / "tiny.toml"
    recipe.write_text(RECIPE.format(folder=color_folder), encoding="utf-8")
    steps: list[tuple[int, int]] = []
    bundle = run_recipe(recipe, root / "out", data_root=root, on_step=lambda *step: steps.append(step))
    return bundle, steps


def test_the_bundle_says_what_it_was_trained_on_and_measured_on(finished) -> None:
    manifest = ModelBundle.open(finished[0].path).manifest
    assert (manifest.training["steps"], len(manifest.labels_sha256)) == (2, 64)
    assert set(manifest.metrics["shades"]) == {
        *("hit_rate_1", "map_at_r", "auroc"),
        *("n_gallery", "n_queries", "n_absent"),
    }


def test_recipe_curve_card_and_weights_lie_beside_the_bundle(finished) -> None:
    names = {file.name for file in finished[0].path.iterdir()}
    assert names >= {"recipe.toml", "training.csv", "MODEL_CARD.md", "weights.pt"}


def test_the_card_has_a_row_for_each_test(finished) -> None:
    card = (finished[0].path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "| shades |" in card


def test_progress_ends_at_the_last_step(finished) -> None:
    assert finished[1][-1] == (2, 2)

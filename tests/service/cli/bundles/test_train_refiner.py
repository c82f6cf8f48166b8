"""`vicinal train-refiner`: from embeddings or images to a bundle that refines, and its errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service.types import Fail, Run
from vicinal.models.bundle import ModelBundle, default_bundle_path

pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")
pytest.importorskip("onnxscript")

from vicinal.refine.context_refiner import ContextRefiner

pytestmark = pytest.mark.slow

QUICK = ["--set", "optimizer.steps=3", "--set", "search.n_queries=16"]
SMALL = ["--folds", "0", "--set", "validation.share=0.4", *QUICK]


def write_embeddings(path: Path, n_classes: int = 40, dim: int = 24, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), 6)
    np.savez(
        path,
        embeddings=rng.normal(size=(n_classes, dim))[labels] + rng.normal(size=(len(labels), dim)),
        labels=labels,
    )
    return path


@pytest.fixture
def copied(tiny_bundle: ModelBundle, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle.path, tmp_path / "bundle"))


@pytest.fixture
def embeddings(tmp_path: Path) -> Path:
    return write_embeddings(tmp_path / "embeddings.npz")


def test_embeddings_make_a_refiner_in_the_bundle(run: Run, copied: Path, embeddings: Path) -> None:
    output = run("train-refiner", "--bundle", copied, "--embeddings", embeddings, *SMALL).stdout
    bundle = ModelBundle.open(copied)
    assert ContextRefiner(bundle).n_steps == 1
    assert bundle.manifest.refiner.fingerprint in output
    assert "Verdict: refine" in output
    assert "48 queries with a mate and 96 without" in " ".join(output.split())


@pytest.mark.usefixtures("no_graph")
def test_output_is_a_copy_and_the_bundle_stays_as_it_is(
    run: Run, copied: Path, embeddings: Path, tmp_path: Path
) -> None:
    options = ("--embeddings", embeddings, "--output", tmp_path / "refined", *SMALL, "--json")
    section = json.loads(run("train-refiner", "--bundle", copied, *options).stdout)
    assert ModelBundle.open(copied).manifest.refiner is None
    refined = ModelBundle.open(tmp_path / "refined").manifest.refiner
    assert refined.fingerprint == section["fingerprint"]
    assert refined.training["recipe"]["optimizer"]["steps"] == 3
    assert set(refined.validation) == {"off", "gallery", "query", "both", "rerank", "queries"}
    card = (tmp_path / "refined" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "Refiner: `gated`" in card
    assert "on a part of its classes, held out" in card


@pytest.mark.usefixtures("no_graph")
def test_images_make_a_refiner(run: Run, copied: Path, catalog: Path, tmp_path: Path) -> None:
    """The data sets of a recipe are embedded with the bundle."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'[[datasets]]\nkind = "folder"\nroot = "{catalog.name}"\n', encoding="utf-8")
    settings = ("batches.batch_size=16", "refiner.n_steps=1", "refiner.n_heads=2")
    small = [*SMALL, *(word for setting in settings for word in ("--set", setting))]
    options = ("--data", recipe, "--data-root", catalog.parent, *small, "--json")
    section = json.loads(run("train-refiner", "--bundle", copied, *options).stdout)
    assert section["training"]["datasets"] == [catalog.name]
    assert (section["training"]["classes"], section["training"]["items"]) == (6, 36)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "say what to train on: --embeddings FILE, or --data"),
        (("--embeddings", "{folder}/absent.npz"), "there is no file"),
        (("--data", "{folder}/absent.toml"), "absent.toml"),
        (("--embeddings", "{folder}/short.npz"), "the embeddings have 8 dimensions, bundle 'tiny' makes 24"),
        (("--embeddings", "{folder}/few.npz"), "hold out a larger share of the classes"),
        (
            (
                *("--embeddings", "{folder}/embeddings.npz"),
                *("--set", "refiner.form=attention", "--set", "refiner.n_heads=5"),
            ),
            "n_heads 5 does not divide",
        ),
        (("--embeddings", "{folder}/embeddings.npz", "--set", "refiner.heads=2"), "did you mean 'n_heads'"),
        (
            ("--embeddings", "{folder}/embeddings.npz", "--output", "{folder}"),
            "exists: choose another --output",
        ),
    ],
)
def test_what_cannot_work_is_said_in_one_line(
    fail: Fail, copied: Path, embeddings: Path, tmp_path: Path, options: Any, named: str
) -> None:
    write_embeddings(tmp_path / "short.npz", dim=8)
    write_embeddings(tmp_path / "few.npz", n_classes=6)
    filled = [one.format(folder=tmp_path) for one in options]
    assert named in fail("train-refiner", "--bundle", copied, *SMALL, *filled)
    assert ModelBundle.open(copied).manifest.refiner is None


def test_the_bundle_that_ships_is_never_written(fail: Fail, embeddings: Path) -> None:
    line = fail("train-refiner", "--bundle", default_bundle_path(), "--embeddings", embeddings, *QUICK)
    assert "ships with Vicinal and stays as it is: name a folder for a copy with --output" in line

"""`vicinal train-refiner` on ready embeddings: a bundle without a backbone, what it changes, its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.service.types import Fail, Run
from vicinal.models.bundle import ModelBundle, space_manifest

pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")
pytest.importorskip("onnxscript")

from vicinal.calibration.arrays import FloatArray
from vicinal.refine.context_refiner import ContextRefiner

pytestmark = pytest.mark.slow

QUICK = ["--set", "optimizer.steps=3", "--set", "search.n_queries=16"]
DIM = 16
SPACE = ("--space", "clip-vit-b32")


def write(path: Path, labels: range, dim: int = DIM, views: int = 6, **columns: Any) -> Path:
    """Labels in regions of four, so that neighbors help."""
    places = [(label, view) for label in labels for view in range(views)]
    rows = {
        "id": [f"item {label}/{view}" for label, view in places],
        "label": [f"label {label}" for label, _ in places],
        "embedding": [near(label, view, dim) for label, view in places],
    }
    parquet.write_table(pa.table({**rows, **columns}), path)
    return path


def near(label: int, view: int, dim: int = DIM) -> FloatArray:
    region, own, noise = (
        np.random.default_rng(seed) for seed in ([0, label // 4], [1, label], [label, view])
    )
    drawn = 2.0 * region.normal(size=dim) + own.normal(size=dim) + 0.8 * noise.normal(size=dim)
    return drawn.astype(np.float32)


@pytest.fixture
def train_file(tmp_path: Path) -> Path:
    return write(tmp_path / "clip_train.parquet", range(40))


@pytest.fixture
def clips(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A gallery of other labels, on a machine without any bundle; the file that it came from."""
    monkeypatch.setenv("VICINAL_BUNDLE", str(tmp_path / "no bundle"))
    path = write(tmp_path / "clip.parquet", range(100, 124))
    run("index", path, "-g", "clips", *SPACE)
    return path


@pytest.fixture
def refines_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict that three steps of training might not earn."""
    for module in ("cross_fitting", "validation"):
        monkeypatch.setattr(f"vicinal.training.refiner.{module}.choose_sides", lambda _figures: "both")


def searched(run: Run, *options: object) -> Any:
    return json.loads(run("search", "--item", "item 100/0", "-g", "clips", "--json", *options).stdout)


def test_a_file_of_embeddings_makes_a_bundle_without_a_backbone(
    run: Run, train_file: Path, tmp_path: Path
) -> None:
    refined = tmp_path / "bundles" / "clip-refined"
    output = run("train-refiner", "--embeddings", train_file, *SPACE, "-o", refined, *QUICK).stdout
    assert "Verdict: refine" in output
    assert "measured on labels that the refiner never saw" in output
    assert "photo" not in output
    bundle = ModelBundle.open(refined)
    assert bundle.fingerprint == space_manifest("clip-vit-b32", DIM).fingerprint
    assert sorted(file.name for file in refined.iterdir()) == [
        "MODEL_CARD.md",
        "bundle.json",
        "refiner.npy",
        "refiner.onnx",
    ]
    assert ContextRefiner(bundle).fingerprint in output
    assert "Ready embeddings of clip-vit-b32" in (refined / "MODEL_CARD.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_graph", "refines_both")
def test_from_a_file_to_refined_decisions_and_back(
    run: Run, clips: Path, train_file: Path, tmp_path: Path
) -> None:
    refined = ("--bundle", tmp_path / "clip-refined")
    run("train-refiner", "--embeddings", train_file, *SPACE, "-o", refined[1], *QUICK)
    run("calibrate", "-g", "clips")
    before = searched(run)
    run("gallery", "refine", "clips", *refined)
    assert searched(run)["matches"] == before["matches"]
    # The threshold of the one is none of the other.
    uncalibrated = searched(run, *refined)
    assert uncalibrated["pipeline"].startswith("refine=both")
    assert uncalibrated["threshold"]["state"] == "default"
    assert uncalibrated["threshold"]["reason"].endswith("measure one by `vicinal calibrate -g clips`")
    run("calibrate", "-g", "clips", *refined)
    after = searched(run, *refined)
    assert (after["threshold"]["state"], after["bundle"]) == ("current", before["bundle"])
    assert after["threshold"]["calibration"] != searched(run)["threshold"]["calibration"]
    # Indexed with it, the gallery is refined without being told.
    run("index", clips, "-g", "clips", *refined)
    kept = searched(run)
    assert (kept["pipeline"], kept["matches"]) == (after["pipeline"], after["matches"])
    assert kept["threshold"]["calibration"] == after["threshold"]["calibration"]
    run("gallery", "add", "clips", write(tmp_path / "more.parquet", range(124, 126)))
    assert searched(run)["n_searched"] == kept["n_searched"] + 12
    shown = run("gallery", "show", "clips").stdout
    assert "refined by attention over" in shown
    run("gallery", "activate", "clips", 1, "--as-built")
    back = searched(run)
    assert (back["pipeline"], back["matches"]) == (before["pipeline"], before["matches"])
    assert back["threshold"]["calibration"] == before["threshold"]["calibration"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--embeddings", "{file}", *SPACE), "--output FOLDER with it, and no --bundle"),
        (
            ("--embeddings", "{file}", *SPACE, "-o", "{folder}/x", "--bundle", "{folder}/y"),
            "and no --bundle",
        ),
        (("--embeddings", "{file}", "--space", "CLIP B32", "-o", "{folder}/x"), "is no name of a space"),
        (
            ("--embeddings", "{file}", *SPACE, "-o", "{folder}/x", "--validation", "{folder}/short.parquet"),
            "the embeddings have 8 dimensions, bundle 'clip-vit-b32' makes 16: give those of this space",
        ),
        (
            ("--embeddings", "{folder}/few.parquet", *SPACE, "-o", "{folder}/x"),
            "12 labels have two items or more, and at least 20 are needed",
        ),
        (
            ("--embeddings", "{folder}/none.parquet", *SPACE, "-o", "{folder}/x"),
            "none.parquet': no row has a label, so that there is nothing to learn from",
        ),
    ],
)
def test_what_cannot_work_is_said_in_one_line_and_leaves_nothing(
    fail: Fail, train_file: Path, tmp_path: Path, options: Any, named: str
) -> None:
    write(tmp_path / "short.parquet", range(20), dim=8)
    write(tmp_path / "few.parquet", range(12))
    write(tmp_path / "none.parquet", range(2), label=pa.array([None] * 12, pa.string()))
    filled = [one.format(file=train_file, folder=tmp_path) for one in options]
    assert named in fail("train-refiner", *filled, *QUICK)
    assert not (tmp_path / "x").exists()

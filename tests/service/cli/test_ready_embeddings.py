"""Ready embeddings on the command line: indexed, searched, calibrated and rolled back without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.service.types import Run
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery

N_LABELS, PER_LABEL, DIM = 40, 6, 16
CENTERS = np.random.default_rng(0).normal(size=(N_LABELS, DIM))


def near(label: int, seed: int) -> FloatArray:
    """An embedding of a label; those of one label are alike."""
    noise = np.random.default_rng([label, seed]).normal(size=DIM)
    return (CENTERS[label] + 0.3 * noise).astype(np.float32)


def write(file: Path, views: range = range(PER_LABEL), **columns: Any) -> Path:
    places = [(label, view) for view in views for label in range(N_LABELS)]
    rows = {
        "id": [f"item {label}/{view}" for label, view in places],
        "label": [f"label {label}" for label, _ in places],
        "embedding": [near(*place) for place in places],
    }
    parquet.write_table(pa.table({**rows, **columns}), file)
    return file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "clip.parquet")


@pytest.fixture
def indexed(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gallery:
    """A gallery that is searched although the bundle of the settings is not there."""
    monkeypatch.setenv("VICINAL_BUNDLE", str(tmp_path / "no bundle"))
    run("index", path, "-g", "shop", "--space", "clip-vit-b32")
    return Gallery(tmp_path / "data" / "galleries" / "shop")


def answers(run: Run, *query: object) -> Any:
    return json.loads(run("search", "-g", "shop", "--json", *query).stdout)


@pytest.mark.slow
def test_from_a_file_to_a_decision_and_back(run: Run, indexed: Gallery, tmp_path: Path) -> None:
    query, stranger = tmp_path / "query.npy", tmp_path / "stranger.npy"
    np.save(query, near(7, 100))
    np.save(stranger, np.random.default_rng(98).normal(size=DIM))
    assert "No threshold to decide by" in run("search", query, "-g", "shop").stdout
    assert "This rests on 240 items of 40 labels" in run("calibrate", "-g", "shop").stdout
    found = answers(run, query)
    assert (found["no_match"], {one["label"] for one in found["matches"]}) == (False, {"label 7"})
    assert answers(run, stranger)["no_match"]
    run("calibrate", "-g", "shop", "--group-by", "label")
    (group,) = answers(run, query, "--group-by", "label")["groups"]
    assert group["group"] == "label 7"
    before = indexed.active_version
    run("index", write(tmp_path / "clip.parquet", range(PER_LABEL + 1)), "-g", "shop")
    assert answers(run, query)["n_searched"] == N_LABELS * (PER_LABEL + 1)
    run("gallery", "activate", "shop", before)
    back = answers(run, query)
    assert (back["n_searched"], back["matches"]) == (N_LABELS * PER_LABEL, found["matches"])
    assert back["threshold"]["calibration"] == found["threshold"]["calibration"]

"""Ready embeddings from a file to a roll back, by commands that have neither torch nor a model."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from tests.forks import forked_python
from vicinal.models.bundle import default_bundle_path

ROOT = Path(__file__).resolve().parents[3]
N_LABELS, PER_LABEL, DIM = 40, 6, 64
# What trains, what runs networks, and what others save their embeddings with.
_ABSENT = ("torch", "onnxruntime", "datasets", "timm")


def near(label: int, view: int) -> np.ndarray:
    """As CLIP gives them: a mean that all share, labels apart from each other, and views of a label."""
    shared = np.random.default_rng(0).normal(size=DIM)
    own, noise = (np.random.default_rng(seed).normal(size=DIM) for seed in ([1, label], [2, label, view]))
    return (3.0 * shared + own + 0.3 * noise).astype(np.float32)


def write(path: Path, views: range, labels: range = range(N_LABELS)) -> Path:
    places = [(label, view) for view in views for label in labels]
    columns = {
        "id": [f"item {label}/{view}" for label, view in places],
        "label": [f"label {label}" for label, _ in places],
        "embedding": [near(*place) for place in places],
    }
    parquet.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def vicinal(tmp_path: Path) -> Callable[..., str]:
    """Runs a command in a process of its own, and gives its output."""

    def run(*words: object) -> str:
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        settings = {"VICINAL_DATA_DIR": str(tmp_path / "data"), "VICINAL_BUNDLE": str(tmp_path / "none")}
        done = subprocess.run(
            [*forked_python(*_ABSENT), "-m", "vicinal", *map(str, words)],
            env=os.environ | settings | {"PYTHONPATH": paths},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_from_a_file_to_a_roll_back(vicinal: Callable[..., str], tmp_path: Path) -> None:
    def found(*query: object) -> Any:
        return json.loads(vicinal("search", *query, "-g", "clips", "--json"))

    def labels(answer: dict[str, Any]) -> set[str]:
        return {one["label"] for one in answer["matches"]}

    first, query = write(tmp_path / "clip.parquet", range(PER_LABEL)), tmp_path / "query.npy"
    np.save(query, near(7, 100))
    vicinal("index", first, "-g", "clips", "--space", "clip-vit-b32")
    assert "This rests on 240 items of 40 labels" in vicinal("calibrate", "-g", "clips")
    before = found(query)
    assert labels(before) == {"label 7"}
    assert labels(found("--item", "item 7/0")) == {"label 7"}
    # Five in a hundred strangers get a match.
    np.save(tmp_path / "strangers.npy", np.stack([near(N_LABELS + i, 0) for i in range(10)]))
    unknown = [i for i, one in enumerate(found(tmp_path / "strangers.npy")) if one["no_match"]]
    assert len(unknown) >= 7
    label, stranger = N_LABELS + unknown[0], tmp_path / "stranger.npy"
    np.save(stranger, near(label, 0))
    more = write(tmp_path / "more.parquet", range(1, 4), range(label, label + 1))
    vicinal("gallery", "add", "clips", more)
    assert labels(found(stranger)) == {f"label {label}"}
    vicinal("index", write(tmp_path / "clip.parquet", range(PER_LABEL + 1)), "-g", "clips")
    assert found(query)["version"] != before["version"]
    vicinal("gallery", "activate", "clips", before["version"], "--as-built")
    after = found(query)
    assert (after["n_searched"], after["matches"]) == (before["n_searched"], before["matches"])
    assert found(stranger)["no_match"]


@pytest.mark.slow
def test_what_is_absent_would_be_missed(vicinal: Callable[..., str], tmp_path: Path) -> None:
    """Negative control: a gallery of images needs what these processes lack."""
    Image.new("RGB", (40, 40), "red").save(tmp_path / "a.png")
    (tmp_path / "a.csv").write_text("path\na.png\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="no model bundle"):
        vicinal("index", tmp_path / "a.csv", "-g", "shoes")
    with pytest.raises(AssertionError, match="onnxruntime"):
        vicinal("index", tmp_path / "a.csv", "-g", "shoes", "--bundle", default_bundle_path())

"""Fitting on the command line: photos beside a gallery teach its metric more where they are of its kind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.service.types import Fail, Run
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.state import state_of
from vicinal.indexer.state.schema import attachments
from vicinal.service.search.label_scores import labels_beside

DIM = 48


def write(file: Path, first: int, n_labels: int, turn: int = 0, per_label: int = 4) -> Path:
    """Labels that differ in some directions and photos of one that differ in others, which `turn` turns."""
    rng = np.random.default_rng([first, turn])
    turned = np.linalg.qr(np.random.default_rng(turn).normal(size=(DIM, DIM)))[0]
    labels = np.repeat(np.arange(first, first + n_labels), per_label)
    scale = np.where(np.arange(DIM) < 12, 2.0, 0.2)
    centers = np.repeat(rng.normal(size=(n_labels, DIM)) * scale[::-1], per_label, axis=0)
    embeddings = (centers + 0.6 * rng.normal(size=centers.shape) * scale) @ turned
    columns = {
        "id": [f"item {first}/{i}" for i in range(len(labels))],
        "label": [f"label {label}" for label in labels],
        "embedding": list(embeddings.astype(np.float32)),
    }
    parquet.write_table(pa.table(columns), file)
    return file


@pytest.fixture
def gallery(run: Run, tmp_path: Path) -> Path:
    run("index", write(tmp_path / "own.parquet", 0, 24), "-g", "shop", "--space", "clip-vit-b32")
    return tmp_path / "data" / "galleries" / "shop"


def n_kept(gallery: Path, kind: str) -> int:
    with state_of(gallery).reading() as rows:
        return rows.count(attachments, attachments.c.kind == kind)


def metric(run: Run) -> str:
    made = run("calibrate", "-g", "shop", "--group-by", "label", "--metric", "lda", "--json")
    return str(json.loads(made.stdout)["pipeline"]["group"]["metric"])


def test_photos_of_the_same_kind_are_laid_beside_and_forgotten(
    run: Run, gallery: Path, tmp_path: Path
) -> None:
    alone, bundle = metric(run), Gallery(gallery).snapshot().manifest.bundle
    found = json.loads(run("fit", write(tmp_path / "same.parquet", 20, 80), "-g", "shop", "--json").stdout)
    assert found["low"] > 0.04
    # Four of its labels are the gallery's own, which must not judge what they have taught.
    assert [found[one] for one in ("n_labels", "n_photos", "n_known", "is_used")] == [76, 304, 16, True]
    assert labels_beside(gallery, bundle).n == 304
    assert labels_beside(gallery, "another bundle") is None
    assert metric(run) != alone
    run("fit", "-g", "shop", "--forget")
    assert metric(run) == alone
    assert (n_kept(gallery, "metric"), n_kept(gallery, "beside")) == (2, 0)


def test_photos_of_another_kind_change_nothing(run: Run, gallery: Path, tmp_path: Path) -> None:
    said = run("fit", write(tmp_path / "other.parquet", 100, 80, turn=1), "-g", "shop").stdout
    assert "not surely near" in said
    assert "Nothing was changed." in said
    assert n_kept(gallery, "beside") == 0


def test_what_cannot_be_tried_is_refused(run: Run, fail: Fail, gallery: Path, tmp_path: Path) -> None:
    assert "name labelled photos" in fail("fit", "-g", "shop")
    assert "add them to it" in fail("fit", tmp_path / "own.parquet", "-g", "shop")
    alone = write(tmp_path / "1.parquet", 100, 80, per_label=1)
    assert "no label has two photos" in fail("fit", alone, "-g", "shop")

"""A bundle on a data set: from image files to figures."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vicinal.models.embedder import Embedder
from vicinal.models.similarity import normalize
from vicinal.training.datasets import list_images
from vicinal.training.datasets.layouts.manifest import ManifestConfig
from vicinal.training.datasets.layouts.published import VehicleIdConfig
from vicinal.training.datasets.layouts.revisited import RevisitedConfig
from vicinal.training.evaluation import EvaluationSettings, evaluate
from vicinal.training.evaluation.config import RetrievalTest
from vicinal.training.evaluation.measurement import embed_files, measure_test

Write = Callable[[Path, dict[str, tuple[int, int]]], None]
QUICK = EvaluationSettings(n_repetitions=2)


@pytest.fixture
def manifest(tmp_path: Path, write_pictures: Write) -> RetrievalTest:
    """Four labels in gallery and queries, one absent."""
    rows = [(label, view, "gallery" if view < 3 else "query") for label in range(4) for view in range(5)]
    rows += [(9, view, "absent") for view in range(3)]
    write_pictures(tmp_path, {f"{label}-{view}.png": (label, view) for label, view, _ in rows})
    lines = ["path,label,role", *(f"{label}-{view}.png,{label},{role}" for label, view, role in rows)]
    (tmp_path / "manifest.csv").write_text("\n".join(lines), encoding="utf-8")
    return RetrievalTest(name="pictures", dataset=ManifestConfig(kind="manifest", root=tmp_path))


def test_pictures_that_look_alike_are_found(embedder: Embedder, manifest: RetrievalTest) -> None:
    figures = measure_test(embedder, manifest, QUICK).figures
    assert figures["hit_rate_1"] == 1.0
    assert figures["auroc"] == 1.0
    assert (figures["n_gallery"], figures["n_queries"], figures["n_absent"]) == (12, 8, 3)


def test_a_gallery_that_is_drawn_is_averaged_over_its_draws(
    tmp_path: Path, embedder: Embedder, write_pictures: Write
) -> None:
    """VehicleID: one image a vehicle is the gallery; each draw is searched as the authors do."""
    labels = [label for label in range(4) for _ in range(3)]
    write_pictures(tmp_path, {f"image/{at:07d}.jpg": (label, at) for at, label in enumerate(labels)})
    lines = [f"{at:07d} {label}" for at, label in enumerate(labels)]
    (tmp_path / "train_test_split").mkdir()
    (tmp_path / "train_test_split" / "test_list_800.txt").write_text("\n".join(lines), encoding="utf-8")
    config = VehicleIdConfig(kind="vehicle_id", root=tmp_path, split="test", gallery_seed=3, gallery_draws=4)
    settings = EvaluationSettings(ks=(1,), nmi=False, opis=False)
    found = measure_test(embedder, RetrievalTest(name="all", dataset=config), settings).figures
    single = [
        RetrievalTest(
            name="one", dataset=config.model_copy(update={"gallery_seed": seed, "gallery_draws": 1})
        )
        for seed in range(3, 7)
    ]
    figures = [measure_test(embedder, test, settings).figures for test in single]
    for name in ("mean_average_precision", "hit_rate_1", "n_queries"):
        assert found[name] == pytest.approx(sum(one[name] for one in figures) / 4)
    assert (found["n_gallery"], found["n_queries"]) == (4, 8)


def test_distances_are_of_what_the_network_gives(embedder: Embedder, manifest: RetrievalTest) -> None:
    """Not normalized; a test may say so for itself."""
    listing = list_images(manifest.dataset)
    raw = embed_files(embedder, listing, raw=True)
    assert np.ptp(np.linalg.norm(raw, axis=1)) > 0.01
    assert normalize(raw) == pytest.approx(embed_files(embedder, listing), abs=1e-6)
    own = manifest.model_copy(update={"distance": "euclidean"})
    settings = EvaluationSettings(nmi=False, opis=False)
    expected = evaluate(raw, listing.labels, listing.roles, settings=replace(settings, distance="euclidean"))
    assert measure_test(embedder, own, settings).figures == expected.figures


@pytest.fixture
def landmarks(tmp_path: Path, write_pictures: Write) -> RetrievalTest:
    """Two queries; the first has an easy and a hard image, and a copy of itself as junk."""
    gallery = {"a1": (1, 1), "a2": (1, 2), "b1": (2, 1), "b2": (2, 2), "copy": (1, 0), "other": (3, 0)}
    queries = {"qa": (1, 0), "qb": (2, 0)}
    write_pictures(tmp_path, {f"jpg/{name}.jpg": seed for name, seed in {**gallery, **queries}.items()})
    box = [0.0, 0.0, 40.0, 40.0]
    content = {
        "imlist": list(gallery),
        "qimlist": list(queries),
        "gnd": [
            {"bbx": box, "easy": [0], "hard": [1], "junk": [4]},
            {"bbx": box, "easy": [2], "hard": [], "junk": [3]},
        ],
    }
    (tmp_path / "gnd_roxford5k.pkl").write_bytes(pickle.dumps(content))
    return RetrievalTest(name="landmarks", dataset=RevisitedConfig(kind="roxford5k", root=tmp_path))


def test_landmarks_are_measured_by_difficulty(embedder: Embedder, landmarks: RetrievalTest) -> None:
    """Were junk not passed over, the copy would stand before every relevant image of the first query."""
    evaluation = measure_test(embedder, landmarks)
    figures = evaluation.figures
    assert figures["easy_mean_average_precision"] == 1.0
    assert figures["hard_precision_1"] == 1.0
    assert (figures["n_gallery"], figures["n_queries"]) == (6, 2)
    assert evaluation.notes == ("hard: 1 of 2 queries have no relevant image",)

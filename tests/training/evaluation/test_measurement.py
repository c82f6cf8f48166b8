"""A bundle on a data set: from image files to figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vicinal.models.embedder import Embedder
from vicinal.models.similarity import normalize
from vicinal.training.datasets import list_images
from vicinal.training.datasets.layouts.manifest import ManifestConfig
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

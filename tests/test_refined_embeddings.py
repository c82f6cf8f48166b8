"""Ready embeddings: what a refiner that learned from some labels does to searches for others."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")
pytest.importorskip("onnxscript")

from vicinal.calibration.arrays import FloatArray
from vicinal.calibration.rates.average_precision import average_precisions
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.models.bundle import ModelBundle, space_manifest
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.settings import Settings
from vicinal.training.datasets import list_images
from vicinal.training.datasets.layouts.protocol import ProtocolConfig
from vicinal.training.refiner.config import RefinerRecipe
from vicinal.training.refiner.embedding_set import EmbeddingSet
from vicinal.training.refiner.recipe import train_refiner

pytestmark = pytest.mark.slow

Labels = npt.NDArray[np.str_]
SIDE = 10
# Fewer steps than by default: a verdict, and not the best refiner.
QUICK = ["optimizer.steps=60", "validation.folds=2", "validation.every=30"]
# Of some 500 queries: three of them, about one standard error of a difference.
TOLERANCE = 0.006


def thumbnails(data_dir: Path) -> tuple[FloatArray, Labels]:
    """Photos of training labels as embeddings that no model made."""
    listing = list_images(ProtocolConfig(kind="protocol", root=data_dir / "dogfacenet"))
    with listing.open() as read:
        small = [
            Image.open(io.BytesIO(read(one))).convert("RGB").resize((SIDE, SIDE)) for one in listing.files
        ]
    pixels = np.stack([np.asarray(one, np.float32).ravel() for one in small])
    return pixels - pixels.mean(axis=0), np.array([str(label) for label in listing.labels])


def clusters(n_labels: int = 160, dim: int = 32) -> tuple[FloatArray, Labels]:
    """Labels in regions of four; the noise is larger than the way from label to label."""
    rng = np.random.default_rng(0)
    region = np.repeat(rng.normal(size=(n_labels // 4, dim)), 4, axis=0)
    centers = 1.5 * region + 0.8 * rng.normal(size=(n_labels, dim))
    numbers = np.repeat(np.arange(n_labels), 8)
    vectors = centers[numbers] + 0.9 * rng.normal(size=(len(numbers), dim))
    return vectors.astype(np.float32), np.array([f"label {number}" for number in numbers])


def noise() -> tuple[FloatArray, Labels]:
    """Labels that mean nothing: no neighbor can help."""
    vectors, labels = clusters()
    return np.random.default_rng(1).normal(size=vectors.shape).astype(np.float32), labels


def split(labels: Labels) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Whether a label is learned from, and of the others every second item as a query."""
    names = np.random.default_rng(0).permutation(np.unique(labels))
    learned = np.isin(labels, names[: len(names) // 2])
    order = np.array([int((labels[:i] == label).sum()) for i, label in enumerate(labels)])
    return learned, ~learned & (order % 2 == 1)


def figures(
    bundle: ModelBundle | None, folder: Path, vectors: FloatArray, labels: Labels
) -> tuple[float, float]:
    """R@1 and MAP@R of the queries, as the service finds them."""
    learned, is_query = split(labels)
    settings = Settings(data_dir=folder, bundle=folder / "none" if bundle is None else bundle.path)
    gallery, bundles = Gallery(settings.gallery_path("clips")), ServedBundles(settings)
    held = ~learned & ~is_query
    source = EmbeddingSource.of_arrays(
        vectors[held], [str(i) for i in np.flatnonzero(held)], labels=labels[held].tolist()
    )
    served = bundles.resolve(gallery, source, space="made-up")
    index_items(gallery, source, served.embedder)
    n_mates = np.array([int((labels[held] == label).sum()) for label in labels[is_query]])
    answers = bundles.matcher(gallery).search(
        embeddings=vectors[is_query], limit=int(n_mates.max()), threshold=0.0, rerank="off"
    )
    found = np.array([[one.label for one in answer.matches] for answer in answers])
    is_mate = found == labels[is_query][:, None]
    return float(is_mate[:, 0].mean()), float(average_precisions(is_mate, n_mates).mean())


def trained(folder: Path, vectors: FloatArray, labels: Labels) -> ModelBundle:
    learned, _ = split(labels)
    recipe = RefinerRecipe.load(None, settings=QUICK)
    items = EmbeddingSet.of(vectors[learned], labels[learned])
    space = ModelBundle(folder / "refined", space_manifest("made-up", vectors.shape[1]))
    return train_refiner(space, recipe, items, output=folder / "refined").bundle


def test_labels_that_neighbors_tell_are_found_more_often(tmp_path: Path) -> None:
    made = clusters()
    bundle = trained(tmp_path, *made)
    assert bundle.manifest.refiner.sides != "off"
    before, after = figures(None, tmp_path / "before", *made), figures(bundle, tmp_path / "after", *made)
    assert after[1] > before[1]
    assert after[0] >= before[0] - TOLERANCE


def test_labels_that_nothing_tells_are_not_found_less_often(tmp_path: Path) -> None:
    made = noise()
    bundle = trained(tmp_path, *made)
    before, after = figures(None, tmp_path / "before", *made), figures(bundle, tmp_path / "after", *made)
    np.testing.assert_allclose(after, before, rtol=0, atol=2 * TOLERANCE)


def test_photos_of_other_labels_are_not_found_less_often(data_dir: Path, tmp_path: Path) -> None:
    made = thumbnails(data_dir)
    bundle = trained(tmp_path, *made)
    before, after = figures(None, tmp_path / "before", *made), figures(bundle, tmp_path / "after", *made)
    assert np.all(np.array(after) >= np.array(before) - TOLERANCE)


def test_a_refiner_that_learned_nothing_would_be_noticed(
    refined_space: Callable[..., ModelBundle], data_dir: Path, tmp_path: Path
) -> None:
    """Negative control: with random weights and a verdict that nobody measured, less is found."""
    made = thumbnails(data_dir)
    bundle = refined_space("made-up", 3 * SIDE**2)
    before, after = figures(None, tmp_path / "before", *made), figures(bundle, tmp_path / "after", *made)
    assert after[0] < before[0] - TOLERANCE
    assert after[1] < before[1] - TOLERANCE

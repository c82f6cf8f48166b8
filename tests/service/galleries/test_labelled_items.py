"""Labelled items of a gallery: what is left out, and that live changes count."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import normalize
from vicinal.service.galleries.labelled_items import LabelledItems

WriteGallery = Callable[..., Snapshot]


def read(snapshot: Snapshot, max_items: int = 1000) -> LabelledItems:
    return LabelledItems.read(GalleryView.of(snapshot), "shop", max_items=max_items, seed=0)


@pytest.fixture
def embeddings() -> np.ndarray:
    return normalize(np.random.default_rng(0).normal(size=(12, 8)))


def test_items_without_a_label_are_left_out_and_counted(
    write_gallery: WriteGallery, embeddings: np.ndarray
) -> None:
    found = read(write_gallery(embeddings, [*("ab" * 5), None, None]))
    assert (len(found.labels), found.n_unlabelled) == (10, 2)
    np.testing.assert_array_equal(found.embeddings, embeddings[:10])


def test_one_picture_twice_with_one_label_counts_once(
    write_gallery: WriteGallery, embeddings: np.ndarray
) -> None:
    repeated = np.concatenate([embeddings, embeddings[:2]])
    found = read(write_gallery(repeated, [*("ab" * 6), "a", "a"]))
    # Item 1 is of label b: its twin of label a is another finding.
    assert (len(found.labels), found.n_repeated) == (13, 1)


def test_removed_items_are_not_learned_from(gallery: Gallery) -> None:
    reader = GalleryReader(gallery)
    before = LabelledItems.read(reader.view(), "shoes", max_items=1000, seed=0)
    remove_items(reader, ["plain/view 0.png"])
    after = LabelledItems.read(reader.view(), "shoes", max_items=1000, seed=0)
    assert len(after.labels) == len(before.labels) - 1

"""Answers of a GPU are those of the processor, over random galleries with copies, changes and filters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service.types import MakeSettings
from tests.stand_in_gpus import stand_in_gpus
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.gpu import GpuIndex, IndexDevices
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.jobs.source_addition import add_embeddings
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.models.similarity import normalize
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.search.answers import Answer
from vicinal.service.settings import Settings

# Some seconds each.
pytestmark = pytest.mark.slow

N, N_ADDED, DIM, LIMIT = 3000, 100, 12, 20
OPTIONS: list[dict[str, Any]] = [
    {"rerank": "off"},
    {"rerank": "contextual"},
    {"rerank": "off", "filter": "label IN ('label 1', 'label 2')"},
    {"rerank": "contextual", "filter": "label != 'label 1'"},
    {"rerank": "off", "group_by": "label"},
]


def drawn(seed: int) -> tuple[FloatArray, list[str]]:
    """Items of a hundred labels; a third of them are copies of others, some under another label."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 100, N + N_ADDED)
    rows = normalize(rng.normal(size=(100, DIM))[codes] + 0.5 * rng.normal(size=(N + N_ADDED, DIM)))
    copies = rng.choice(N + N_ADDED, (N + N_ADDED) // 3, replace=False)
    rows[copies] = rows[rng.integers(0, N, len(copies))]
    return rows, [f"label {code}" for code in codes]


def changed_gallery(settings: Settings, index: str, seed: int) -> Gallery:
    """Some items are added later, and then every seventh is removed."""
    rows, labels = drawn(seed)
    ids = [f"item {i}" for i in range(N + N_ADDED)]
    gallery = Gallery(settings.gallery_path(f"drawn-{seed}"))
    source = EmbeddingSource.of_arrays(rows[:N], ids[:N], labels=labels[:N])
    embedder = ServedBundles(settings).resolve(gallery, source, space="clip").embedder
    index_items(gallery, source, embedder, index=index)
    reader = GalleryReader(gallery)
    add_embeddings(
        reader, EmbeddingSource.of_arrays(rows[N:], ids[N:], labels=labels[N:]), embedder.bundle.manifest
    )
    remove_items(reader, ids[::7])
    return gallery


def answers(settings: Settings, gallery: Gallery, device: str, **options: Any) -> list[Answer]:
    """To items of the gallery, copies among them, and to queries that are none."""
    view = GalleryReader(gallery, IndexDevices(device)).view()
    matcher = ServedBundles(settings).matcher(gallery, view)
    queries = normalize(np.random.default_rng(99).normal(size=(15, DIM)))
    near = view.vectors(np.flatnonzero(~view.is_dead(np.arange(view.n_positions)))[:15])
    return matcher.search(
        embeddings=np.concatenate([queries, near]),
        limit=LIMIT,
        threshold=0.4,
        include_candidates=True,
        **options,
    )


def shown(answer: Answer) -> list[tuple[float, float, str]]:
    return [(one.score, one.similarity, one.id) for one in [*answer.matches, *answer.candidates]]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("index", ["Flat", "IVF4,Flat"])
def test_random_galleries_are_answered_alike(
    tmp_path: Path, make_settings: MakeSettings, index: str, seed: int
) -> None:
    settings = make_settings(tmp_path / "data", bundle=tmp_path / "none")
    gallery = changed_gallery(settings, index, seed)
    for options in OPTIONS:
        expected = answers(settings, gallery, "cpu", **options)
        assert any(one.matches for one in expected)
        with stand_in_gpus([2**30, 2**30]) as gpus:
            for device in ("cuda", "all"):
                found = answers(settings, gallery, device, **options)
                assert [shown(one) for one in found] == [shown(one) for one in expected], (options, device)
                assert [one.no_match for one in found] == [one.no_match for one in expected]
        assert gpus.batches


def test_the_check_sees_a_gpu_that_misses_an_item(
    tmp_path: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control."""
    settings = make_settings(tmp_path / "data", bundle=tmp_path / "none")
    gallery = changed_gallery(settings, "Flat", 0)
    expected = [shown(one) for one in answers(settings, gallery, "cpu", rerank="off")]
    with stand_in_gpus([2**30]):
        placed = IndexDevices.placed

        def without_half(devices: IndexDevices, index: Any, embeddings: FloatArray) -> Any:
            return placed(devices, index, np.where(np.arange(len(embeddings))[:, None] % 2, embeddings, 0.0))

        monkeypatch.setattr(IndexDevices, "placed", without_half)
        monkeypatch.setattr(GpuIndex, "wider", lambda index, _: index)
        assert [shown(one) for one in answers(settings, gallery, "cuda", rerank="off")] != expected

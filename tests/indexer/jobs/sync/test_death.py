"""A sync that is killed goes on where it was, and until it is done the gallery is as it was."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer import Gallery, index_items, read_source
from vicinal.indexer.jobs import embedding_run
from vicinal.indexer.jobs.embedding_run import EmbeddingRun, RunOptions
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import source_name
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder

N_BEFORE, N_NEW, BATCH, ROWS = 40, 320, 8, 32


class CountingEmbedder(Embedder):
    """The real embedder, which counts the images that it embeds."""

    n_embedded = 0

    def infer(self, tensors: Sequence[FloatArray]) -> FloatArray:
        self.n_embedded += len(tensors)
        return super().infer(tensors)


def write_pictures(folder: Path, numbers: range) -> None:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        coarse = np.random.default_rng(number).integers(0, 256, (5, 5, 3)).astype(np.uint8)
        Image.fromarray(coarse).resize((40, 32)).save(folder / f"{number:03}.png")


def sync(gallery: Path, photos: Path, embedder: Embedder, dies_at: int | None = None) -> dict[str, int]:
    def on_progress(stage: str, done: int, _total: int) -> None:
        if dies_at is not None and stage == "embed" and done >= dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    embedding_run._ROWS_PER_COMMIT = ROWS
    items, name = read_source(photos), source_name(photos)
    return index_items(Gallery(gallery), items, embedder, source=name, on_progress=on_progress).counts


def be_killed(gallery: Path, photos: Path, bundle: Path, dies_at: int) -> None:
    """The first run, in a process of its own."""
    sync(
        gallery,
        photos,
        Embedder(ModelBundle.open(bundle), device="cpu", threads=1, batch_size=BATCH),
        dies_at,
    )


def ids(gallery: Path) -> set[str]:
    return {item["id"] for _, item in GalleryReader(Gallery(gallery)).view().page(None, 1000)}


@pytest.mark.slow
@pytest.mark.parametrize("is_new", [True, False])
def test_a_killed_sync_embeds_only_what_is_left(
    tmp_path: Path, tiny_bundle: ModelBundle, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    monkeypatch.setattr(embedding_run, "_ROWS_PER_COMMIT", ROWS)
    gallery, photos = tmp_path / "galleries" / "shoes", tmp_path / "photos"
    embedder = CountingEmbedder(tiny_bundle, device="cpu", threads=1, batch_size=BATCH)
    n_before = 0 if is_new else N_BEFORE
    if not is_new:
        write_pictures(photos, range(N_BEFORE))
        sync(gallery, photos, embedder)
    write_pictures(photos, range(n_before, n_before + N_NEW))
    dies_at = int(0.4 * N_NEW)
    process = multiprocessing.get_context("spawn").Process(
        target=be_killed, args=(gallery, photos, tiny_bundle.path, dies_at)
    )
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    if not is_new:
        assert len(ids(gallery)) == N_BEFORE
    embedder.n_embedded = 0
    counts = sync(gallery, photos, embedder)
    n_left = N_NEW - dies_at
    assert n_left <= embedder.n_embedded <= n_left + ROWS
    assert counts == {"added": N_NEW} | ({} if is_new else {"unchanged": N_BEFORE})
    assert len(ids(gallery)) == n_before + N_NEW
    embedder.n_embedded = 0
    sync(gallery, photos, embedder)
    assert embedder.n_embedded == 0


class Clock:
    """Each look at it takes a quarter of a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.25
        return self.now


@pytest.mark.slow
def test_a_run_commits_after_a_second_and_later_after_a_tenth_of_its_time(
    tmp_path: Path, tiny_bundle: ModelBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pictures(tmp_path / "photos", range(150))
    sizes: list[int] = []
    monkeypatch.setattr(embedding_run, "time", Clock())
    embedder = Embedder(tiny_bundle, device="cpu", threads=1, batch_size=1)
    run = EmbeddingRun(lambda rows: sizes.append(len(rows)), embedder, RunOptions(seconds_per_commit=4.0))
    run.over(read_source(tmp_path / "photos"))
    assert (sizes[0], sum(sizes)) == (4, 150)
    assert sizes[:-1] == sorted(sizes[:-1]), "commits become larger with time"
    assert max(sizes) * 0.25 <= 4.0, "and never wait longer than they may"

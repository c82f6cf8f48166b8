"""Embedding run: it commits often enough that little is lost, and seldom enough to cost little."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.photos import draw_photo
from vicinal.indexer import read_source
from vicinal.indexer.jobs import embedding_run
from vicinal.indexer.jobs.embedding_run import EmbeddingRun, RunOptions
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder


class Clock:
    """Each look at it takes a quarter of a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.25
        return self.now


def test_a_run_commits_after_a_second_and_later_after_a_tenth_of_its_time(
    tmp_path: Path, tiny_bundle: ModelBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(150):
        draw_photo(number % 3, (40, 32)).save(tmp_path / f"{number:03}.png")
    sizes: list[int] = []
    monkeypatch.setattr(embedding_run, "time", Clock())
    embedder = Embedder(tiny_bundle, device="cpu", threads=1, batch_size=1)
    run = EmbeddingRun(lambda rows: sizes.append(len(rows)), embedder, RunOptions(seconds_per_commit=4.0))
    run.over(read_source(tmp_path))
    assert (sizes[0], sum(sizes)) == (4, 150)
    assert sizes[:-1] == sorted(sizes[:-1]), "commits become larger with time"
    assert max(sizes) * 0.25 <= 4.0, "and never wait longer than they may"

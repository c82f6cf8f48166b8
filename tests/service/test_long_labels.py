"""One long label among many: it costs its own length, and not that length for every row."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.service.comparing.test_figures import draw_outcomes
from tests.service.measuring.test_stored_scores import make_trials
from vicinal.indexer.item_rules import LONGEST_LABEL
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.models.similarity import normalize
from vicinal.service.comparing.figures import Answers, ComparedSearches, count_flips
from vicinal.service.measuring.records.record import StoredScores
from vicinal.service.surfaces.query_uploads import QueryUploads
from vicinal.training.refiner.embedding_set import EmbeddingSet

N = 20_000
# Text of numpy would take 80 MB.
MOST_BYTES = 24 * 2**20
LABELS = np.array(["x" * LONGEST_LABEL, *(f"label {i // 4}" for i in range(N - 1))], dtype=object)


def scores_are_stored(_: Path) -> None:
    trials = make_trials(n_labels=7)
    assert trials.labels is not None
    # As many labels as rows: the others have no trial.
    trials.labels.__dict__["names"] = np.unique(LABELS)
    stored = StoredScores.of(trials, trials.best_mate_scores)
    assert StoredScores.from_bytes(stored.to_bytes()).names.tolist() == np.unique(LABELS).tolist()


def flips_are_counted(_: Path) -> None:
    before = Answers(LABELS, LABELS, np.linspace(0, 1, N))
    assert count_flips(before, before, LABELS, (0.2, 0.7)).to_no_match == N // 2


def searches_are_compared(_: Path) -> None:
    outcomes = draw_outcomes(1)
    for name, value in vars(outcomes).items():
        if isinstance(value, np.ndarray):
            outcomes.__dict__[name] = np.resize(value, N)
    compared = ComparedSearches([outcomes], LABELS, None, seed=0)
    assert compared.mates.sum() == outcomes.has_mate.sum()


def a_refiner_learns(_: Path) -> None:
    items = EmbeddingSet.of(np.random.default_rng(0).normal(size=(N, 2)), LABELS)
    assert len(np.unique(items.class_ids)) == len({*LABELS})


def ready_embeddings_are_looked_at(folder: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(N, 2))
    source = EmbeddingSource.of_arrays(vectors, [str(i) for i in range(N)], labels=LABELS.tolist())
    assert source.look().n_labels == len({*LABELS})


def queries_are_kept(folder: Path) -> None:
    uploads = QueryUploads.__new__(QueryUploads)
    uploads.__dict__["_made"] = lambda _: folder
    vectors = np.random.default_rng(0).normal(size=(N, 2))
    uploads.keep_embeddings(SimpleNamespace(), vectors, LABELS.tolist(), dim=2)  # type: ignore[arg-type]
    (kept,) = folder.iterdir()
    assert kept.stat().st_size < 2**20
    (rows,) = EmbeddingSource.open(kept, needs_ids=False).batches(N)
    assert rows.labels.to_pylist() == LABELS.tolist()
    np.testing.assert_array_equal(rows.embeddings, normalize(vectors))


@pytest.mark.slow
@pytest.mark.parametrize(
    "do",
    [
        scores_are_stored,
        flips_are_counted,
        searches_are_compared,
        a_refiner_learns,
        ready_embeddings_are_looked_at,
        queries_are_kept,
    ],
)
def test_one_long_label_costs_no_other_row_its_length(tmp_path: Path, do: Callable[[Path], Any]) -> None:
    # What Arrow imports at its first array is no label's.
    pa.array(["a"])
    tracemalloc.start()
    try:
        do(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()

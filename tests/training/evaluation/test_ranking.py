"""Exact ranking: against a slow loop with ties, in every chunk, and in little memory."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vicinal.calibration.arrays import FloatArray
from vicinal.models.errors import EvaluationError
from vicinal.models.similarity import normalize
from vicinal.training.evaluation import ranking, retrieval_metrics
from vicinal.training.evaluation.ranking import item_ranks, mate_positions, top_similarities


def _with_copies(seed: int, n_items: int, n_labels: int) -> tuple[FloatArray, NDArray[np.int64]]:
    """Embeddings of which many are copies of another, in any order."""
    rng = np.random.default_rng(seed)
    originals = normalize(rng.normal(size=(max(2, n_items // 4), 7)))
    return originals[rng.integers(0, len(originals), n_items)], rng.integers(0, n_labels, n_items)


def _mate_ranks(queries, labels, gallery, gallery_labels, exclude=None) -> list[list[int]]:
    mates = mate_positions(labels.tolist(), gallery_labels.tolist())
    return [ranks.tolist() for ranks in item_ranks(queries, gallery, mates, exclude)]


def _on_grid(row: FloatArray) -> list[Fraction]:
    return [Fraction(round(float(value) * 2**26), 2**26) for value in row]


def _slow_ranks(query, label, gallery, labels, left_out=(), tie=1) -> list[int]:
    """Rational arithmetic, then a sort by similarity and position."""
    wanted = _on_grid(query)
    similarity = [sum(a * b for a, b in zip(wanted, _on_grid(item), strict=True)) for item in gallery]
    there = [position for position in range(len(gallery)) if position not in left_out]
    there.sort(key=lambda position: (-similarity[position], tie * position))
    return [rank for rank, position in enumerate(there) if labels[position] == label]


@given(seed=st.integers(0, 10_000), n_items=st.integers(4, 60), n_labels=st.sampled_from([1, 3, 20]))
@settings(max_examples=30, deadline=None)
def test_ranks_equal_the_slow_loop_with_ties(seed: int, n_items: int, n_labels: int) -> None:
    gallery, labels = _with_copies(seed, n_items, n_labels)
    expected = [_slow_ranks(gallery[row], labels[row], gallery, labels) for row in range(4)]
    assert _mate_ranks(gallery[:4], labels[:4], gallery, labels) == expected


def test_ties_in_another_order_fail_the_slow_comparison() -> None:
    """Negative control."""
    gallery, labels = _with_copies(0, 40, 3)
    (actual,) = _mate_ranks(gallery[:1], labels[:1], gallery, labels)
    assert actual != _slow_ranks(gallery[0], labels[0], gallery, labels, tie=-1)


@pytest.mark.parametrize("block", [1, 700, 5000, 2**22])
def test_ranks_do_not_depend_on_the_chunk(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gallery, labels = _with_copies(2, 257, 9)
    expected = _mate_ranks(gallery, labels, gallery, labels)
    monkeypatch.setattr(ranking, "_BLOCK", block)
    actual = _mate_ranks(gallery, labels, gallery, labels)
    assert actual == expected


@pytest.mark.parametrize("dim", [3, 64, 129, 2048])
def test_similarities_are_exact_to_the_last_bit(dim: int) -> None:
    """No order of summation, and so no processor, can change what is exact."""
    rng = np.random.default_rng(dim)
    query, item = normalize(rng.normal(size=(2, dim)))
    expected = sum(a * b for a, b in zip(_on_grid(query), _on_grid(item), strict=True))
    assert Fraction(float(top_similarities(query[None], item[None])[0])) == expected


@pytest.mark.slow
def test_the_full_matrix_is_never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """3,000 x 3,000 similarities would take 36 MB in float32 alone."""
    monkeypatch.setattr("vicinal.training.evaluation.ranking._BLOCK", 2**18)
    n = 3000
    labels = np.arange(n) // 4
    embeddings = np.random.default_rng(0).normal(size=(n, 8))
    tracemalloc.start()
    try:
        retrieval_metrics(embeddings, labels)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 18e6


def test_a_gallery_beyond_the_sorting_key_is_refused() -> None:
    gallery = np.broadcast_to(np.float32([1.0]), (2**22 + 1, 1))
    with pytest.raises(EvaluationError, match="at most 4,194,304"):
        next(item_ranks(gallery[:1], gallery, []))

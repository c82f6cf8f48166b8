"""Threshold-consistent margin: reference vectors, a loop over pairs, and a memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")

from vicinal.models.errors import ConfigError  # noqa: E402
from vicinal.training.losses.base import Memory  # noqa: E402
from vicinal.training.losses.threshold_consistent_margin import ThresholdConsistentMargin  # noqa: E402

Evaluate = Callable[..., tuple[float, NDArray[np.float64]]]
Vectors = dict[str, NDArray[Any]]
TOLERANCES = {"float64": {"rel": 1e-9, "abs": 1e-12}, "float32": {"rel": 1e-4, "abs": 2e-6}}


def _unit(embeddings: NDArray[np.float64]) -> NDArray[np.float64]:
    return embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)


def _slow_loss(
    pairs: list[tuple[float, bool]],
    *,
    pos_margin: float = 0.9,
    neg_margin: float = 0.5,
    weights: tuple[float, float] = (1.0, 1.0),
    flaw: str = "",
) -> float:
    """One pair at a time, each a cosine and whether both are of one class."""
    missing = [pos_margin - s for s, same in pairs if same and s <= pos_margin]
    excess = [s - neg_margin for s, same in pairs if not same and s >= neg_margin]
    n_positive = sum(same for _, same in pairs) if flaw == "all pairs" else len(missing)
    n_negative = len(pairs) - n_positive if flaw == "all pairs" else len(excess)
    loss = weights[0] * sum(missing) / n_positive if missing else 0.0
    return loss + (weights[1] * sum(excess) / n_negative if excess else 0.0)


def _pairs(embeddings: NDArray[np.float64], labels: NDArray[np.int64]) -> list[tuple[float, bool]]:
    cosines = _unit(embeddings) @ _unit(embeddings).T
    places = [(i, j) for i in range(len(labels)) for j in range(len(labels)) if i != j]
    return [(float(cosines[i, j]), bool(labels[i] == labels[j])) for i, j in places]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_loss_equals_the_reference_vectors(
    load_vectors: Callable[[str], Vectors], value_and_gradient: Evaluate, dtype: str
) -> None:
    vectors = load_vectors("tcm")
    pos_weight, neg_weight, pos_margin, neg_margin = vectors["tcm_default_params"].tolist()
    loss = ThresholdConsistentMargin(pos_margin, neg_margin, pos_weight, neg_weight)
    value, gradient = value_and_gradient(loss, vectors["X"], vectors["labels"], dtype)
    assert value == pytest.approx(float(vectors["tcm_default_loss"]), **TOLERANCES[dtype])
    assert gradient == pytest.approx(vectors["tcm_default_dX"], **TOLERANCES[dtype])


@pytest.mark.parametrize("sizes", [(4, 4, 4), (1, 2, 5), (6,), (1, 1, 1)])
@pytest.mark.parametrize("margins", [(0.9, 0.5), (0.5, 0.0), (-1.0, 1.0)])
def test_loss_equals_the_slow_loop(
    make_batch: Callable[..., Any],
    value_and_gradient: Evaluate,
    sizes: tuple[int, ...],
    margins: tuple[float, float],
) -> None:
    embeddings, labels = make_batch(sizes)
    value, _ = value_and_gradient(ThresholdConsistentMargin(*margins, 2.0, 0.3), embeddings, labels)
    expected = _slow_loss(
        _pairs(embeddings, labels), pos_margin=margins[0], neg_margin=margins[1], weights=(2.0, 0.3)
    )
    assert value == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_mean_over_all_pairs_fails_the_slow_comparison(
    make_batch: Callable[..., Any], value_and_gradient: Evaluate
) -> None:
    """Negative control: only hard pairs are averaged."""
    embeddings, labels = make_batch()
    value, _ = value_and_gradient(ThresholdConsistentMargin(), embeddings, labels)
    wrong = _slow_loss(_pairs(embeddings, labels), flaw="all pairs")
    assert value != pytest.approx(wrong, rel=1e-3)


def test_pairs_with_a_memory_leave_out_the_batch_own_copies(make_batch: Callable[..., Any]) -> None:
    stored, stored_labels = make_batch((5, 5, 5))
    own = np.array([7, 2, 11, 3])
    batch, labels = stored[own], stored_labels[own]
    memory = Memory(torch.from_numpy(stored), torch.from_numpy(stored_labels), torch.from_numpy(own))
    loss = ThresholdConsistentMargin()
    value = loss.against(torch.from_numpy(batch), torch.from_numpy(labels), memory)
    cosines = _unit(batch) @ _unit(stored).T
    pairs = [
        (float(cosines[i, j]), bool(labels[i] == stored_labels[j]))
        for i in range(4)
        for j in range(15)
        if j != own[i]
    ]
    assert value.item() == pytest.approx(_slow_loss(pairs), rel=1e-9)


@pytest.mark.parametrize("margins", [(1.5, 0.5), (0.9, -2.0)])
def test_margin_that_is_no_cosine_is_refused(margins: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match=r"margins are cosines in \[-1, 1\]"):
        ThresholdConsistentMargin(*margins)


def test_the_positive_half_alone_leaves_negative_pairs_where_they_are(
    make_batch: Callable[..., Any], value_and_gradient: Evaluate
) -> None:
    embeddings, labels = make_batch()
    loss = ThresholdConsistentMargin(0.95, 0.1, 0.3, pairs="positive")
    value, _ = value_and_gradient(loss, embeddings, labels)
    expected = _slow_loss(_pairs(embeddings, labels), pos_margin=0.95, neg_margin=0.1, weights=(0.3, 0.0))
    assert value == pytest.approx(expected, rel=1e-9)

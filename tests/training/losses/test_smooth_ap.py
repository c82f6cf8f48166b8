"""Smooth average precision against a loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")

from vicinal.training.losses import smooth_ap  # noqa: E402
from vicinal.training.losses.recall_at_k import mix_positives  # noqa: E402
from vicinal.training.losses.smooth_ap import SmoothAPLoss  # noqa: E402
from vicinal.training.losses.soft_ranks import classmates  # noqa: E402

Evaluate = Callable[..., tuple[float, NDArray[np.float64]]]


def _slow_loss(
    embeddings: NDArray[np.float64],
    labels: NDArray[np.int64],
    *,
    temperature: float = 0.01,
    flaw: str = "",
) -> float:
    """Every query, positive and other item in turn."""
    rows = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    cosines = rows @ rows.T
    losses = []
    for q in range(len(labels)):
        database = [z for z in range(len(labels)) if z != q or flaw == "query in its own ranks"]
        positives = [x for x in range(len(labels)) if x != q and labels[x] == labels[q]]

        def rank(x: int, among: list[int], q: int = q) -> float:
            before = [math.exp(-(cosines[q, z] - cosines[q, x]) / temperature) for z in among if z != x]
            return 1 + sum(1 / (1 + far) for far in before)

        if positives:
            precisions = [rank(x, positives) / rank(x, database) for x in positives]
            losses.append(1 - sum(precisions) / len(positives))
    return sum(losses) / len(losses) if losses else 0.0


@pytest.mark.parametrize("sizes", [(4, 4, 4, 4), (1, 2, 3, 6), (6,), (1, 1, 1)])
@pytest.mark.parametrize("temperature", [0.01, 0.2])
def test_loss_equals_the_slow_loop(
    make_batch: Callable[..., Any], value_and_gradient: Evaluate, sizes: tuple[int, ...], temperature: float
) -> None:
    embeddings, labels = make_batch(sizes)
    value, _ = value_and_gradient(SmoothAPLoss(temperature), embeddings, labels)
    assert value == pytest.approx(
        _slow_loss(embeddings, labels, temperature=temperature), rel=1e-9, abs=1e-12
    )


def test_query_in_its_own_ranks_fails_the_slow_comparison(
    make_batch: Callable[..., Any], value_and_gradient: Evaluate
) -> None:
    """Negative control: the query would come before each of its positives."""
    embeddings, labels = make_batch()
    value, _ = value_and_gradient(SmoothAPLoss(), embeddings, labels)
    wrong = _slow_loss(embeddings, labels, flaw="query in its own ranks")
    assert value != pytest.approx(wrong, rel=1e-3)


@pytest.mark.parametrize("simix", [False, True])
def test_gradient_equals_finite_differences(
    make_batch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, simix: bool
) -> None:
    embeddings, labels = map(torch.from_numpy, make_batch((1, 2, 5)))
    virtual = mix_positives(classmates(labels, 5), torch.float64)
    monkeypatch.setattr(smooth_ap, "mix_positives", lambda *_: virtual)
    loss = SmoothAPLoss(0.2, simix=simix)
    assert torch.autograd.gradcheck(lambda rows: loss(rows, labels), embeddings.requires_grad_())

"""Cross-batch memory against a loop over pairs, and what is added to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")

from vicinal.models.errors import ConfigError  # noqa: E402
from vicinal.training.losses.config import LossConfig  # noqa: E402
from vicinal.training.losses.cross_batch_memory import CrossBatchMemory  # noqa: E402
from vicinal.training.losses.published import contrastive  # noqa: E402
from vicinal.training.losses.registry import build_loss  # noqa: E402

Batch = tuple[NDArray[np.float64], NDArray[np.int64]]


def _batches(make_batch: Callable[..., Batch], n_batches: int) -> list[Batch]:
    return [make_batch((2, 2, 2), dim=4, seed=seed) for seed in range(n_batches)]


def _pairs(batches: list[Batch], memory_size: int) -> list[tuple[float, bool]]:
    """Cosines of the last batch with all stored but each item's own copy, and whether the classes are one."""
    embeddings = np.vstack([rows for rows, _ in batches])[-memory_size:]
    labels = np.hstack([labels for _, labels in batches])[-memory_size:]
    rows = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    first = len(rows) - len(batches[-1][1])
    places = [(i, j) for i in range(first, len(rows)) for j in range(len(rows)) if i != j]
    return [(float(rows[i] @ rows[j]), bool(labels[i] == labels[j])) for i, j in places]


def _slow_contrastive(pairs: list[tuple[float, bool]]) -> float:
    """Means over the pairs that cost something: distances of positives, and what negatives lack of 1."""
    distances = [(float(np.sqrt(2 - 2 * cosine)), same) for cosine, same in pairs]
    near = [distance for distance, same in distances if same]
    far = [1 - distance for distance, same in distances if not same and distance < 1]
    return sum(sum(costs) / len(costs) for costs in (near, far) if costs)


def _slow_margin(pairs: list[tuple[float, bool]]) -> float:
    missing = [0.9 - cosine for cosine, same in pairs if same and cosine <= 0.9]
    excess = [cosine - 0.5 for cosine, same in pairs if not same and cosine >= 0.5]
    return sum(sum(costs) / len(costs) for costs in (missing, excess) if costs)


def _last_value(config: dict[str, Any], batches: list[Batch]) -> float:
    loss = build_loss(LossConfig.model_validate(config), dim=4)
    return [loss(*map(torch.from_numpy, batch)).item() for batch in batches][-1]


@pytest.mark.parametrize("n_batches", [1, 3, 5])
@pytest.mark.parametrize("memory_size", [6, 15, 40])
def test_added_margin_counts_pairs_against_the_memory(
    make_batch: Callable[..., Batch], n_batches: int, memory_size: int
) -> None:
    batches = _batches(make_batch, n_batches)
    config = {
        "name": "cross_batch_memory",
        "arguments": {"loss": {"name": "contrastive"}, "memory_size": memory_size},
        "add": [{"name": "threshold_consistent_margin", "weight": 2.0}],
    }
    pairs = _pairs(batches, memory_size)
    expected = _slow_contrastive(pairs) + 2.0 * _slow_margin(pairs)
    assert _last_value(config, batches) == pytest.approx(expected, rel=1e-6)


def test_margin_over_the_batch_alone_fails_the_comparison(make_batch: Callable[..., Batch]) -> None:
    """Negative control: the memory shows in the value."""
    batches = _batches(make_batch, 3)
    assert _slow_margin(_pairs(batches, 40)) != pytest.approx(
        _slow_margin(_pairs(batches[-1:], 40)), rel=1e-3
    )


def test_gradient_reaches_the_batch_and_not_the_memory(make_batch: Callable[..., Batch]) -> None:
    loss = CrossBatchMemory(contrastive(), 4, 40)
    first, second = ([torch.from_numpy(x) for x in batch] for batch in _batches(make_batch, 2))
    for embeddings, labels in (first, second):
        loss(embeddings.requires_grad_(), labels)
    loss(*second).backward()
    assert first[0].grad is None
    assert second[0].grad.any()


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("contextual", "got 'contextual'"),
        ("hinge", "unknown loss 'hinge'"),
        ({"name": "contrastive", "add": [{"name": "smooth_ap"}]}, "without 'add'"),
        ({"name": "contrastive", "scale": 2}, "the loss of cross_batch_memory"),
        ({"name": "contrastive", "arguments": {"sharpness": 2}}, "loss 'contrastive': .*sharpness"),
    ],
)
def test_loss_that_cannot_use_a_memory_is_refused(loss: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_loss(LossConfig(name="cross_batch_memory", arguments={"loss": loss}), dim=4)


@pytest.mark.parametrize("n_batches", [1, 3])
def test_saved_memory_goes_on_where_it_was(make_batch: Callable[..., Batch], n_batches: int) -> None:
    """Before and after it wrapped around; in float32, as in training."""
    batches = _batches(make_batch, n_batches + 1)
    *earlier, last = [(torch.from_numpy(rows).float(), torch.from_numpy(labels)) for rows, labels in batches]
    first, second = (CrossBatchMemory(contrastive(), 4, 15) for _ in range(2))
    for batch in earlier:
        first(*batch)
    second.load_state_dict(first.state_dict())
    expected = first(*last).item()
    assert second(*last).item() == expected
    assert CrossBatchMemory(contrastive(), 4, 15)(*last).item() != expected

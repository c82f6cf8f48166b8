"""Multi-similarity loss against the reference vectors and against a slow, obvious loop."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")

from vicinal.training.losses.config import LossConfig  # noqa: E402
from vicinal.training.losses.published import MultiSimilarityLoss  # noqa: E402
from vicinal.training.losses.registry import build_loss  # noqa: E402


def _cosines(embeddings: NDArray[np.float64]) -> NDArray[np.float64]:
    rows = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    return rows @ rows.T


def _slow_multi_similarity(
    embeddings: NDArray[np.float64],
    labels: NDArray[np.int64],
    *,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    mining_margin: float | None = None,
) -> float:
    """Eq. 5 and 6 of Wang et al., one anchor and one pair at a time."""
    cosines, n_items, total = _cosines(embeddings), len(labels), 0.0
    for anchor in range(n_items):
        others = [other for other in range(n_items) if other != anchor]
        positives = [cosines[anchor, other] for other in others if labels[other] == labels[anchor]]
        negatives = [cosines[anchor, other] for other in others if labels[other] != labels[anchor]]
        if mining_margin is not None:
            hardest_positive, hardest_negative = min(positives), max(negatives)
            positives = [s for s in positives if s - mining_margin < hardest_negative]
            negatives = [s for s in negatives if s + mining_margin > hardest_positive]
        total += math.log(1 + sum(math.exp(-alpha * (s - base)) for s in positives)) / alpha
        total += math.log(1 + sum(math.exp(beta * (s - base)) for s in negatives)) / beta
    return total / n_items


def _sample(seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(5), 3)
    return rng.normal(size=(15, 6)) + 1.5 * rng.normal(size=(5, 6))[labels], labels


def _value(loss: MultiSimilarityLoss, embeddings: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    return float(loss(torch.from_numpy(embeddings), torch.from_numpy(labels)))


@pytest.fixture(scope="module")
def reference(vectors_dir: Path) -> dict[str, NDArray[np.float64]]:
    with np.load(vectors_dir / "multi_similarity.npz") as stored:
        return dict(stored)


@pytest.mark.parametrize("setting", ["default", "alt"])
def test_multi_similarity_equals_the_reference_vectors(
    reference: dict[str, NDArray[np.float64]], setting: str
) -> None:
    """Loss, and its gradient through the normalization, over every pair."""
    alpha, beta, base = reference[f"{setting}_params"].tolist()
    embeddings = torch.from_numpy(reference["X"]).requires_grad_()
    loss = MultiSimilarityLoss(alpha, beta, base, mining_margin=None)(
        embeddings, torch.from_numpy(reference["labels"])
    )
    loss.backward()
    assert loss.item() == pytest.approx(float(reference[f"{setting}_loss"]), rel=1e-9)
    assert embeddings.grad.numpy() == pytest.approx(reference[f"{setting}_dX"], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("mining_margin", [None, 0.0, 0.1, 0.4])
def test_multi_similarity_equals_the_slow_loop(mining_margin: float | None) -> None:
    embeddings, labels = _sample(1)
    actual = _value(MultiSimilarityLoss(mining_margin=mining_margin), embeddings, labels)
    expected = _slow_multi_similarity(embeddings, labels, mining_margin=mining_margin)
    assert actual == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("change", [{"alpha": 3.0}, {"beta": 30.0}, {"base": 0.4}, {"mining_margin": 0.1}])
def test_other_settings_fail_the_slow_comparison(change: dict[str, float]) -> None:
    """Negative control: each argument shows in the value."""
    embeddings, labels = _sample(0)
    wrong = _value(MultiSimilarityLoss(**{"mining_margin": None, **change}), embeddings, labels)
    assert wrong != pytest.approx(_slow_multi_similarity(embeddings, labels), rel=1e-6)


def test_mean_similarity_is_that_of_a_loop_and_is_added_to_any_loss() -> None:
    """Over ordered pairs, each item with itself too."""
    embeddings, labels = _sample(0)
    cosines = [float(a @ b) / np.linalg.norm(a) / np.linalg.norm(b) for a in embeddings for b in embeddings]
    batch = torch.from_numpy(embeddings), torch.from_numpy(labels)
    alone = build_loss(LossConfig(name="mean_similarity", arguments={"target_similarity": 0.4}))(*batch)
    assert alone.item() == pytest.approx((0.4 - sum(cosines) / len(cosines)) ** 2, rel=1e-9)
    added = {"name": "mean_similarity", "weight": 2.0, "arguments": {"target_similarity": 0.4}}
    fields = {"name": "cosine_contrastive", "add": [added]}
    base = build_loss(LossConfig(name="cosine_contrastive"))(*batch).item()
    summed = build_loss(LossConfig.model_validate(fields))(*batch).item()
    assert summed == pytest.approx(base + 2.0 * alone.item(), rel=1e-9)


def test_cosine_contrastive_averages_over_the_pairs_that_violate_a_margin() -> None:
    """Contextual Similarity Optimization, eq. 29, pair by pair; not over all pairs, nor over distances."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 4)
    embeddings = rng.normal(size=(16, 3)) + rng.normal(size=(4, 3))[labels]
    cosines = _cosines(embeddings)
    pairs = [(i, j) for i in range(16) for j in range(16) if i != j]
    missing = [0.75 - cosines[i, j] for i, j in pairs if labels[i] == labels[j] and cosines[i, j] < 0.75]
    excess = [cosines[i, j] - 0.6 for i, j in pairs if labels[i] != labels[j] and cosines[i, j] > 0.6]
    batch = torch.from_numpy(embeddings), torch.from_numpy(labels)
    value = build_loss(LossConfig(name="cosine_contrastive"))(*batch).item()
    assert value == pytest.approx(sum(missing) / len(missing) + sum(excess) / len(excess), rel=1e-9)
    of_contextual = LossConfig(name="contextual", arguments={"lam": 0.0, "gamma": 0.0})
    assert value == pytest.approx(build_loss(of_contextual)(*batch).item(), rel=1e-9)

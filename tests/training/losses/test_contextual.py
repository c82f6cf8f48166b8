"""Contextual loss: reference vectors, a loop over sets, and what a perfect ranking costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

torch = pytest.importorskip("torch")

from vicinal.models.errors import ConfigError  # noqa: E402
from vicinal.training.losses.contextual import ContextualLoss, contextual_similarity  # noqa: E402

Evaluate = Callable[..., tuple[float, NDArray[np.float64]]]
Vectors = dict[str, NDArray[Any]]
TOLERANCES = {"float64": {"rel": 1e-9, "abs": 1e-12}, "float32": {"rel": 1e-4, "abs": 2e-6}}


def _cosines(embeddings: NDArray[np.float64]) -> NDArray[np.float64]:
    rows = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    return rows @ rows.T


def _slow_similarity(
    cosines: NDArray[np.float64], k: int, eps: float, *, flaw: str = ""
) -> NDArray[np.float64]:
    """Neighborhoods as sets of rows, one pair at a time."""
    n_items = len(cosines)
    distances = 2 - 2 * cosines

    def neighborhood(item: int, size: int) -> set[int]:
        others = distances[item] if flaw != "not itself" else np.delete(distances[item], item)
        reach = np.sort(others)[size - 1] + eps
        return {other for other in range(n_items) if distances[item, other] <= reach}

    everything = set(range(n_items))
    near = [neighborhood(item, k) for item in range(n_items)]
    close = [neighborhood(item, k // 2) for item in range(n_items)]
    direct = np.zeros((n_items, n_items))
    for i in range(n_items):
        for j in near[i]:
            direct[i, j] = len(near[i] & near[j]) / len(near[i])
            if len(near[i]) < n_items and flaw != "no complements":
                far = everything - near[i]
                direct[i, j] = (direct[i, j] + len(far - near[j]) / len(far)) / 2
    expanded = np.zeros_like(direct)
    for i in range(n_items):
        mutual = [j for j in close[i] if i in close[j]]
        expanded[i] = direct[mutual].mean(axis=0)
    return (expanded + expanded.T) / 2


def _slow_loss(
    embeddings: NDArray[np.float64], labels: NDArray[np.int64], *, lam: float = 0.8, flaw: str = ""
) -> float:
    """The other arguments at their defaults."""
    cosines, n_items = _cosines(embeddings), len(labels)
    similarities = _slow_similarity(cosines, 4, 0.05, flaw=flaw)
    context, missing, excess = 0.0, [], []
    for i in range(n_items):
        for j in range(n_items):
            if i == j:
                continue
            same = float(labels[i] == labels[j])
            target = cosines[i, j] if flaw == "w - s" else same
            context += (target - similarities[i, j]) ** 2 / n_items**2
            if same and (cosines[i, j] < 0.75 or flaw == "all pairs"):
                missing.append(max(0.0, 0.75 - cosines[i, j]))
            if not same and (cosines[i, j] > 0.6 or flaw == "all pairs"):
                excess.append(max(0.0, cosines[i, j] - 0.6))
    contrast = sum(sum(pairs) / len(pairs) for pairs in (missing, excess) if pairs)
    return lam * context + (1 - lam) * contrast + 0.1 * (0.3 - cosines.mean()) ** 2


@pytest.fixture(scope="module")
def vectors(load_vectors: Callable[[str], Vectors]) -> Vectors:
    return load_vectors("contextual")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("settings", ["c1", "c2"])
@pytest.mark.parametrize("batch", ["A", "B"])
def test_total_equals_the_reference_vectors(
    vectors: Vectors, value_and_gradient: Evaluate, batch: str, settings: str, dtype: str
) -> None:
    lam, gamma, eps, target, pos_margin, neg_margin, k, alpha = vectors[f"{batch}_total_{settings}_params"]
    loss = ContextualLoss(int(k), eps, alpha, lam, gamma, pos_margin, neg_margin, target)
    value, gradient = value_and_gradient(loss, vectors[f"{batch}_X"], vectors[f"{batch}_labels"], dtype)
    assert value == pytest.approx(float(vectors[f"{batch}_total_{settings}"]), **TOLERANCES[dtype])
    assert gradient == pytest.approx(vectors[f"{batch}_total_{settings}_dX"], **TOLERANCES[dtype])


def _similarity_as_written(cosines: torch.Tensor, *, flaw: str = "") -> torch.Tensor:
    """With k 4, a slope of 10 and no slack; every product on its own, gradients by torch."""

    def neighborhoods(size: int) -> torch.Tensor:
        x = 2 * (cosines - cosines.detach().sort(dim=1, descending=True).values[:, size - 1, None])
        return (x >= 0).double() + 10 * (x - x.detach())

    near, close = neighborhoods(4), neighborhoods(2)
    far = 1 - near
    n_near, n_far = near.sum(dim=1, keepdim=True), far.sum(dim=1, keepdim=True)
    if flaw != "sizes with a gradient":
        n_near, n_far = n_near.detach(), n_far.detach()
    direct = near * (near @ near.T / n_near + far @ far.T / n_far) / 2
    mutual = close * close.T
    expanded = mutual @ direct / mutual.sum(dim=1, keepdim=True)
    return (expanded + expanded.T) / 2


@pytest.mark.parametrize("flaw", ["", "sizes with a gradient"])
def test_gradient_equals_that_of_both_products_and_of_no_flawed_formula(
    make_batch: Callable[..., Any], flaw: str
) -> None:
    """One product serves the neighborhoods, their complements, and both factors' gradients."""
    cosines = torch.from_numpy(_cosines(make_batch((4, 4, 4, 4))[0])).requires_grad_()
    weights = torch.rand(16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad(contextual_similarity(cosines, 4, 0.0, 10.0), cosines, weights)
    (expected,) = torch.autograd.grad(_similarity_as_written(cosines, flaw=flaw), cosines, weights)
    assert torch.allclose(gradient, expected, rtol=1e-9, atol=1e-12) is not bool(flaw)


@pytest.mark.parametrize(("k", "eps"), [(2, 0.0), (4, 0.05), (6, 0.5)])
def test_contextual_similarity_equals_the_slow_loop(
    make_batch: Callable[..., Any], k: int, eps: float
) -> None:
    cosines = _cosines(make_batch((4, 4, 4, 4), seed=k)[0])
    actual = contextual_similarity(torch.from_numpy(cosines), k, eps, 10.0).numpy()
    assert actual == pytest.approx(_slow_similarity(cosines, k, eps), abs=1e-12)


@pytest.mark.parametrize("flaw", ["w - s", "all pairs", "no complements", "not itself"])
def test_flawed_formula_fails_the_slow_comparison(
    make_batch: Callable[..., Any], value_and_gradient: Evaluate, flaw: str
) -> None:
    """Negative control: each slip shows in the value."""
    embeddings, labels = make_batch()
    value, _ = value_and_gradient(ContextualLoss(), embeddings, labels)
    assert value != pytest.approx(_slow_loss(embeddings, labels, flaw=flaw), rel=1e-6)


@given(
    seed=st.integers(0, 10_000),
    n_classes=st.integers(3, 6),
    k=st.sampled_from([2, 4]),
    spread=st.floats(0.01, 1.0),
)
@settings(max_examples=40, deadline=None)
def test_contextual_part_is_zero_exactly_when_every_item_ranks_its_class_first(
    make_batch: Callable[..., Any], seed: int, n_classes: int, k: int, spread: float
) -> None:
    """Proposition 4.1: without slack, and with more than 2 k items."""
    embeddings, labels = make_batch((k,) * n_classes, dim=4, spread=spread, seed=seed)
    first = np.argsort(-_cosines(embeddings), axis=1, kind="stable")[:, :k]
    perfect = bool((labels[first] == labels[:, None]).all())
    loss = ContextualLoss(k, eps=0.0, lam=1.0, gamma=0.0)
    assert (loss(torch.from_numpy(embeddings), torch.from_numpy(labels)).item() == 0.0) is perfect


@pytest.mark.parametrize("k", [0, 3])
def test_odd_or_small_k_is_refused(k: int) -> None:
    with pytest.raises(ConfigError, match=f"k {k} must be even and at least 2"):
        ContextualLoss(k)


@pytest.mark.parametrize("sizes", [(4, 4, 4, 4), (2, 4, 4, 3), (8, 8)])
def test_loss_equals_the_slow_loop(
    make_batch: Callable[..., Any], value_and_gradient: Evaluate, sizes: tuple[int, ...]
) -> None:
    embeddings, labels = make_batch(sizes)
    value, gradient = value_and_gradient(ContextualLoss(), embeddings, labels)
    assert value == pytest.approx(_slow_loss(embeddings, labels), rel=1e-9)
    assert np.isfinite(gradient).all()

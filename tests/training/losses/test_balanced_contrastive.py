"""Balanced contrastive loss: reference vectors, and batches that estimate the full loss without bias."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")

from vicinal.models.errors import ConfigError  # noqa: E402
from vicinal.training.losses.balanced_contrastive import BalancedContrastiveLoss, GroupBatch, RandomPairs  # noqa: E402

Evaluate = Callable[..., tuple[float, NDArray[np.float64]]]
Vectors = dict[str, NDArray[Any]]
TOLERANCES = {"float64": {"rel": 1e-9, "abs": 1e-12}, "float32": {"rel": 1e-4, "abs": 2e-6}}
# The last class is too small for any pair.
SIZES = (2, 3, 4, 1)
LABELS = np.repeat(np.arange(4), SIZES)
EMBEDDINGS = np.random.default_rng(0).normal(size=(10, 3)) + np.eye(4, 3)[LABELS]


def _slow_full_loss(
    embeddings: NDArray[np.float64],
    labels: NDArray[np.int64],
    *,
    margin: float,
    balance: float,
    flaw: str = "",
) -> float:
    """Mean over all ordered pairs of the data set, one at a time."""
    sizes = np.bincount(labels)
    total = 0.0
    for i, j in itertools.permutations(range(len(labels)), 2):
        distance = math.dist(embeddings[i], embeddings[j])
        if labels[i] == labels[j]:
            total += distance**2
            continue
        size_j = sizes[labels[i if flaw == "eta of one class" else j]]
        eta = balance / (len(sizes) - 1) * (sizes[labels[i]] - 1) / size_j
        total += (1.0 if flaw == "no eta" else eta) * max(0.0, margin - distance) ** 2
    return total / (len(labels) * (len(labels) - 1))


def _groups(m: int, n: int) -> Iterator[tuple[float, list[int]]]:
    """Every (m, n)-group batch, and its probability."""
    members = [np.flatnonzero(label == LABELS) for label in range(4)]
    large = [images for images in members if len(images) >= m]
    for classes in itertools.combinations(large, n):
        choices = [list(itertools.combinations(images.tolist(), m)) for images in classes]
        share = 1 / math.comb(len(large), n) / math.prod(map(len, choices))
        for chosen in itertools.product(*choices):
            yield share, [image for images in chosen for image in images]


def _pairs(p: float) -> Iterator[tuple[float, list[int]]]:
    """Every pair of images of classes of two and more, and its probability."""
    for i, j in itertools.permutations(range(9), 2):
        size_i, size_j = SIZES[LABELS[i]], SIZES[LABELS[j]]
        positive = LABELS[i] == LABELS[j]
        yield p / (3 * size_i * (size_i - 1)) if positive else (1 - p) / (6 * size_i * size_j), [i, j]


def _expectation(
    value_and_gradient: Evaluate,
    loss: BalancedContrastiveLoss,
    batches: Iterator[tuple[float, list[int]]],
) -> tuple[float, NDArray[np.float64]]:
    value, gradient = 0.0, np.zeros_like(EMBEDDINGS)
    for share, batch in batches:
        one_value, one_gradient = value_and_gradient(loss, EMBEDDINGS[batch], LABELS[batch])
        value += share * one_value
        gradient[batch] += share * one_gradient
    return value, gradient


def _full(
    m: int, *, margin: float = 3.0, balance: float = 5.0, flaw: str = ""
) -> tuple[float, NDArray[np.float64]]:
    """The full loss over classes of at least `m`, and its gradient by differences."""
    large = np.array(SIZES)[LABELS] >= m
    labels = np.unique(LABELS[large], return_inverse=True)[1]

    def value(embeddings: NDArray[np.float64]) -> float:
        return _slow_full_loss(embeddings[large], labels, margin=margin, balance=balance, flaw=flaw)

    gradient = np.zeros_like(EMBEDDINGS)
    for place in np.ndindex(EMBEDDINGS.shape):
        step = np.zeros_like(EMBEDDINGS)
        step[place] = 1e-6
        gradient[place] = (value(EMBEDDINGS + step) - value(EMBEDDINGS - step)) / 2e-6
    return value(EMBEDDINGS), gradient


@pytest.fixture(scope="module")
def vectors(load_vectors: Callable[[str], Vectors]) -> Vectors:
    return load_vectors("balanced_contrastive")


def _loss_of(vectors: Vectors, design: GroupBatch | RandomPairs) -> BalancedContrastiveLoss:
    sizes = np.bincount(vectors["labels"])
    return BalancedContrastiveLoss(sizes, design, float(vectors["alpha"]), float(vectors["lam"]))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_group_batch_equals_the_reference_vectors(
    vectors: Vectors, value_and_gradient: Evaluate, dtype: str
) -> None:
    batch = vectors["group_m2_n3_batch_idx"]
    loss = _loss_of(vectors, GroupBatch(2, 3))
    value, gradient = value_and_gradient(loss, vectors["E"][batch], vectors["labels"][batch], dtype)
    assert value == pytest.approx(float(vectors["group_m2_n3_batch_loss_balanced"]), **TOLERANCES[dtype])
    expected = vectors["group_m2_n3_batch_grad_balanced"][batch]
    assert gradient == pytest.approx(expected, **TOLERANCES[dtype])


@pytest.mark.parametrize(("m", "n"), [(2, 2), (2, 3), (3, 2)])
def test_group_batches_estimate_the_full_loss_without_bias(
    value_and_gradient: Evaluate, m: int, n: int
) -> None:
    """Over all batches by their probability; classes smaller than m are out of both."""
    loss = BalancedContrastiveLoss(SIZES, GroupBatch(m, n), 3.0, 5.0)
    value, gradient = _expectation(value_and_gradient, loss, _groups(m, n))
    expected, expected_gradient = _full(m)
    assert value == pytest.approx(expected, rel=1e-9)
    assert gradient == pytest.approx(expected_gradient, abs=1e-7)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_random_pairs_estimate_the_full_loss_without_bias(value_and_gradient: Evaluate, p: float) -> None:
    loss = BalancedContrastiveLoss(SIZES, RandomPairs(p), 3.0, 5.0)
    value, gradient = _expectation(value_and_gradient, loss, _pairs(p))
    expected, expected_gradient = _full(2)
    assert value == pytest.approx(expected, rel=1e-9)
    assert gradient == pytest.approx(expected_gradient, abs=1e-7)


@pytest.mark.parametrize("flaw", ["eta of one class", "no eta"])
def test_flawed_balance_fails_the_comparison(value_and_gradient: Evaluate, flaw: str) -> None:
    """Negative control: eta counts, and so do both its classes."""
    loss = BalancedContrastiveLoss(SIZES, GroupBatch(2, 2), 3.0, 5.0)
    value, _ = _expectation(value_and_gradient, loss, _groups(2, 2))
    assert value != pytest.approx(_full(2, flaw=flaw)[0], rel=1e-3)


def test_weights_of_another_design_are_biased(value_and_gradient: Evaluate) -> None:
    """Negative control: pairs drawn with p = 0.1 and weighted for p = 0.2."""
    loss = BalancedContrastiveLoss(SIZES, RandomPairs(0.2), 3.0, 5.0)
    value, _ = _expectation(value_and_gradient, loss, _pairs(0.1))
    assert value != pytest.approx(_full(2)[0], rel=1e-3)


def test_importance_weights_are_raised_to_a_power(value_and_gradient: Evaluate) -> None:
    """Pair by pair: the uniform probability of an ordered pair over that of the design, to the power."""
    batch, delta = [0, 1, 5, 6], 0.4
    n_pairs, n_batch = 9 * 8, 4 * 3
    total = 0.0
    for i, j in itertools.permutations(batch, 2):
        distance, size_i, size_j = math.dist(EMBEDDINGS[i], EMBEDDINGS[j]), SIZES[LABELS[i]], SIZES[LABELS[j]]
        # Of the 12 ordered pairs of a batch 4 are positive, in one of 3 classes, and 8 in one of 6 orders.
        same = LABELS[i] == LABELS[j]
        drawn = 4 / n_batch / 3 / (size_i * (size_i - 1)) if same else 8 / n_batch / 6 / (size_i * size_j)
        weight = (1 / n_pairs / drawn) ** delta
        total += weight * (distance**2 if same else max(0.0, 3.0 - distance) ** 2)
    loss = BalancedContrastiveLoss(SIZES, GroupBatch(2, 2), 3.0, balance=False, importance=delta)
    value, _ = value_and_gradient(loss, EMBEDDINGS[batch], LABELS[batch])
    assert value == pytest.approx(total / n_batch, rel=1e-5)


@pytest.mark.parametrize("design", [GroupBatch(2, 2), RandomPairs(0.3)])
@pytest.mark.parametrize("normalize", [False, True])
def test_lengths_count_unless_embeddings_are_normalized(
    value_and_gradient: Evaluate, design: GroupBatch | RandomPairs, normalize: bool
) -> None:
    loss = BalancedContrastiveLoss(SIZES, design, 1.5, normalize=normalize)
    batch, lengths = [0, 1, 2, 3], np.array([[0.5], [2.0], [3.0], [0.1]])
    value, _ = value_and_gradient(loss, EMBEDDINGS[batch], LABELS[batch])
    scaled, _ = value_and_gradient(loss, lengths * EMBEDDINGS[batch], LABELS[batch])
    assert (scaled == pytest.approx(value, rel=1e-9)) is normalize


@pytest.mark.parametrize("labels", [[0, 0, 3, 3], [0, 0, 9, 9], [-1, -1, 1, 1]])
def test_batch_with_a_class_that_is_left_out_is_refused(labels: list[int]) -> None:
    loss = BalancedContrastiveLoss(SIZES, GroupBatch(2, 2), 4.0)
    with pytest.raises(ConfigError, match="not among the 3 classes of class_sizes with at least 2 images"):
        loss(torch.ones(4, 3), torch.tensor(labels))


@pytest.mark.parametrize("labels", [[0, 0, 1], [0, 0, 1, 2], [0, 0, 1, 1, 2, 2], [1, 1, 1, 1]])
def test_batch_of_another_composition_is_refused(labels: list[int]) -> None:
    loss = BalancedContrastiveLoss(SIZES, GroupBatch(2, 2), 4.0)
    with pytest.raises(ConfigError, match=r"the batch is not one of GroupBatch\(m=2, n=2\): sample by it"):
        loss(torch.ones(len(labels), 3), torch.tensor(labels))


@pytest.mark.parametrize(
    "make",
    [lambda: GroupBatch(1, 4), lambda: GroupBatch(4, 1), lambda: RandomPairs(0.0), lambda: RandomPairs(1)],
)
def test_design_that_never_draws_a_kind_of_pair_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=r"pairs of both kinds|one kind of pair"):
        make()

"""Batches drawn by a design: (m, n) groups and random pairs, with the probabilities that the loss assumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from vicinal.models.errors import ConfigError
from vicinal.training.samplers import GroupConfig, RandomPairsConfig

# The class 9 has a single image and the class 7 three.
LABELS = np.random.default_rng(0).permutation(np.repeat([2, 4, 6, 7, 9], [4, 5, 6, 3, 1]))


def _group_probabilities(m: int, n: int) -> NDArray[np.float64]:
    """(15, 15) probability that an ordered pair of places of a batch holds images i and j."""
    names, sizes = np.unique(LABELS, return_counts=True)
    n_large = int((sizes >= m).sum())
    size = dict(zip(names.tolist(), sizes.tolist(), strict=True))
    expected = np.zeros((len(LABELS), len(LABELS)))
    for i, j in np.ndindex(expected.shape):
        size_i, size_j = size[LABELS[i]], size[LABELS[j]]
        if i == j or min(size_i, size_j) < m:
            continue
        if LABELS[i] == LABELS[j]:
            expected[i, j] = (m - 1) / (m * n - 1) / (n_large * size_i * (size_i - 1))
        else:
            expected[i, j] = m * (n - 1) / (m * n - 1) / (n_large * (n_large - 1) * size_i * size_j)
    return expected


def _shares(pairs: Iterable[tuple[int, int]]) -> NDArray[np.float64]:
    counts = np.zeros((len(LABELS), len(LABELS)))
    for (i, j), count in Counter(pairs).items():
        counts[i, j] = count
    return counts / counts.sum()


def _deviation(shares: NDArray[np.float64], expected: NDArray[np.float64], n_draws: int) -> float:
    """Largest difference in standard errors of independent draws."""
    possible = expected > 0
    errors = np.sqrt(expected * (1 - expected) / n_draws)
    return float((np.abs(shares - expected)[possible] / errors[possible]).max())


def test_pairs_of_a_group_batch_have_the_probabilities_of_the_design() -> None:
    # One ordered pair of places a batch, so that the draws are independent.
    rng, n_draws = np.random.default_rng(1), 6_000
    sampler = GroupConfig(m=2, n=3).batches(LABELS, n_batches=n_draws)
    pairs = (tuple(batch[place] for place in rng.choice(6, 2, replace=False)) for batch in sampler)
    shares = _shares(pairs)
    assert not shares[_group_probabilities(2, 3) == 0].any()
    assert _deviation(shares, _group_probabilities(2, 3), n_draws) < 5


@pytest.mark.parametrize("p", [0.1, 0.6])
def test_random_pairs_have_the_probabilities_of_the_design(p: float) -> None:
    sampler = RandomPairsConfig(p=p, n_pairs=200).batches(LABELS, n_batches=30)
    shares = _shares((batch[2 * t], batch[2 * t + 1]) for batch in sampler for t in range(200))
    # A third of the ordered pairs of a (2, 2) group are positive.
    groups = _group_probabilities(2, 2)
    expected = np.where(LABELS[:, None] == LABELS, p * 3 * groups, (1 - p) * 1.5 * groups)
    assert not shares[expected == 0].any()
    assert _deviation(shares, expected, 6_000) < 5


def test_another_design_fails_the_comparison() -> None:
    """Negative control: pairs of three classes are not pairs of two."""
    sampler = GroupConfig(m=2, n=2).batches(LABELS, n_batches=6_000)
    rng = np.random.default_rng(1)
    shares = _shares(tuple(batch[place] for place in rng.choice(4, 2, replace=False)) for batch in sampler)
    assert _deviation(shares, _group_probabilities(2, 3), 6_000) > 5


def test_small_classes_are_never_drawn() -> None:
    groups = GroupConfig(m=4, n=2).batches(LABELS, n_batches=60)
    assert {label for batch in groups for label in LABELS[batch].tolist()} == {2, 4, 6}
    pairs = RandomPairsConfig(p=0.5, n_pairs=2).batches(LABELS, n_batches=60)
    assert {label for batch in pairs for label in LABELS[batch].tolist()} == {2, 4, 6, 7}


def test_too_few_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs n 3 classes with m 5 images, the data has 2"):
        GroupConfig(m=5, n=3).batches(LABELS, n_batches=1)
    with pytest.raises(ConfigError, match="two classes of two or more images, the data has 1"):
        RandomPairsConfig(n_pairs=2).batches([0, 0, 1], n_batches=1)

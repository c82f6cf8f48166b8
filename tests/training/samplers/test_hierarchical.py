"""Batches of two super-labels."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vicinal.models.errors import ConfigError
from vicinal.training.samplers import Batches, HierarchicalConfig

SUPER_LABELS = np.repeat([10, 20, 30, 40, 50], 24)
# Six classes of four in each super-label.
LABELS = np.repeat(np.arange(30), 4)


def _batches(batch_size: int = 16, seed: int = 0) -> Batches:
    sampler = HierarchicalConfig(batch_size=batch_size, per_class=2)
    return sampler.batches(LABELS, SUPER_LABELS, n_batches=20, seed=seed)


def _meetings(batches: Batches, super_labels: NDArray[np.int64]) -> list[tuple[int, ...]]:
    return [tuple(np.unique(super_labels[batch]).tolist()) for batch in batches]


def test_each_batch_holds_the_same_number_of_images_of_each_class() -> None:
    for batch in _batches():
        assert set(Counter(LABELS[batch].tolist()).values()) == {2}
        assert len(set(batch)) == 16


@given(n_super=st.integers(2, 7), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_every_pair_of_super_labels_meets_once_before_any_meets_again(n_super: int, seed: int) -> None:
    super_labels = np.repeat(np.arange(n_super), 4)
    labels = np.repeat(np.arange(2 * n_super), 2)
    pairs = list(combinations(range(n_super), 2))
    sampler = HierarchicalConfig(batch_size=8, per_class=2).batches(
        labels, super_labels, n_batches=2 * len(pairs), seed=seed
    )
    meetings = _meetings(sampler, super_labels)
    assert sorted(meetings[: len(pairs)]) == sorted(meetings[len(pairs) :]) == pairs


def test_same_seed_gives_the_same_batches_in_every_pass() -> None:
    sampler = _batches(seed=4)
    assert list(sampler) == list(sampler) == list(_batches(seed=4)) != list(_batches(seed=5))


def _shares(sizes: list[int], n_batches: int, seed: int = 0) -> NDArray[np.float64]:
    """(S,) share of the half batches of each super-label, each of which has classes of two images."""
    labels = np.repeat(np.arange(sum(sizes) // 2), 2)
    super_labels = np.repeat(np.arange(len(sizes)), sizes)
    batches = HierarchicalConfig(batch_size=8, per_class=2).batches(
        labels, super_labels, n_batches=n_batches, seed=seed
    )
    meetings = _meetings(batches, super_labels)
    assert all(len(meeting) == 2 for meeting in meetings)
    return np.bincount(np.ravel(meetings), minlength=len(sizes)) / (2 * n_batches)


def _slow_shares(sizes: list[int]) -> list[float]:
    """In proportion to the images, but for what more than one half of every batch would be."""
    largest = max(sizes)
    counted = [min(one, sum(sizes) - largest) if one == largest else one for one in sizes]
    return [one / sum(counted) for one in counted]


@given(
    sizes=st.lists(st.integers(2, 20).map(lambda n: 4 * n), min_size=2, max_size=7), seed=st.integers(0, 99)
)
@settings(max_examples=30, deadline=None)
def test_each_cycle_has_every_super_label_as_often_as_its_images_ask_for(sizes: list[int], seed: int) -> None:
    """But for rounding: a cycle is as many batches as there are pairs of super-labels."""
    n_pairs = len(sizes) * (len(sizes) - 1) // 2
    drawn = _shares(sizes, n_pairs, seed) * 2 * n_pairs
    assert np.abs(drawn - 2 * n_pairs * np.array(_slow_shares(sizes))).max() < 1.0


def test_a_super_label_with_too_few_classes_repeats_them_with_other_images() -> None:
    """Eight classes are asked for; of six, two come twice, with their four images."""
    for batch in _batches(batch_size=32):
        assert len(set(batch)) == 32
        assert sorted(Counter(LABELS[batch].tolist()).values()) == [2] * 8 + [4] * 4


@pytest.mark.parametrize(
    ("labels", "super_labels", "message"),
    [
        ([0, 0, 1, 1], [5, 5, 5, 5], "two super-labels or more, the data sets have 1"),
        ([0, 0, 1, 1], [5, 6, 6, 6], "class 0 has images of super-labels 5 and 6"),
        ([0, 0, 1], [5, 5, 6], "1 classes have one image"),
        ([0, 0, 1, 1], [5, 5], "4 labels, 2 super-labels"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels: list[int], super_labels: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HierarchicalConfig(batch_size=4, per_class=2).batches(labels, super_labels, n_batches=1)

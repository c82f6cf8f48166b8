"""Class-balanced batches."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vicinal.models.errors import ConfigError
from vicinal.training.samplers import Batches, ClassBalancedConfig


@st.composite
def balanced_samplers(draw: st.DrawFn) -> tuple[NDArray[np.int64], ClassBalancedConfig, Batches]:
    """Shuffled labels of uneven classes, some smaller than `per_class`, and the batches of two passes."""
    sizes = draw(st.lists(st.integers(2, 9), min_size=2, max_size=15))
    per_class = draw(st.integers(2, 5))
    classes_per_batch = draw(st.integers(2, len(sizes)))
    seed = draw(st.integers(0, 1000))
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)) * 3, sizes))
    sampler = ClassBalancedConfig(batch_size=classes_per_batch * per_class, per_class=per_class)
    n_batches = 2 * -(-len(sizes) // classes_per_batch)
    return labels, sampler, sampler.batches(labels, n_batches=n_batches, seed=seed)


@given(drawn=balanced_samplers())
@settings(max_examples=50, deadline=None)
def test_each_class_gives_the_same_number_of_images_or_each_once(
    drawn: tuple[NDArray[np.int64], ClassBalancedConfig, Batches],
) -> None:
    """No image is its own positive."""
    labels, sampler, batches = drawn
    for batch in batches:
        assert len(set(batch)) == len(batch)
        counts = Counter(labels[batch].tolist())
        assert len(counts) == sampler.batch_size // sampler.per_class
        for label, count in counts.items():
            assert count == min(sampler.per_class, (labels == label).sum())


@given(drawn=balanced_samplers())
@settings(max_examples=50, deadline=None)
def test_every_class_appears_in_one_pass_over_the_classes(
    drawn: tuple[NDArray[np.int64], ClassBalancedConfig, Batches],
) -> None:
    """As many batches as hold all classes do hold all classes, the last one filled up from the next pass."""
    labels, sampler, batches = drawn
    n_classes = len(np.unique(labels))
    n_batches = -(-n_classes // (sampler.batch_size // sampler.per_class))
    first = [position for batch in list(batches)[:n_batches] for position in batch]
    assert np.array_equal(np.unique(labels[first]), np.unique(labels))


def test_class_with_one_image_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"1 classes have one image \(first: 7\)"):
        ClassBalancedConfig(batch_size=4, per_class=2).batches([1, 1, 7, 2, 2], n_batches=1)


def test_too_few_classes_say_which_batch_would_fit() -> None:
    with pytest.raises(ConfigError, match="needs 4 classes, the data has 3: use batch_size 6 or less"):
        ClassBalancedConfig(batch_size=8, per_class=2).batches([0, 0, 1, 1, 2, 2], n_batches=1)

"""Classes that a sampler cannot draw."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from vicinal.models.errors import ConfigError
from vicinal.training.datasets import LabelledImages
from vicinal.training.samplers import leave_out_small_classes


def _images(sizes: dict[str, int]) -> LabelledImages:
    labels = np.repeat(list(sizes), list(sizes.values()))
    pixels = np.zeros((len(labels), 1, 1, 3), np.uint8)
    return LabelledImages(pixels, labels, np.full(len(labels), "train"))


def test_small_classes_are_left_out_and_named() -> None:
    images = _images({"a:one": 5, "a:two": 4, "b:three": 2, "b:four": 9, "b:five": 1})
    kept, left_out = leave_out_small_classes(images, 4)
    assert left_out == ["b:five", "b:three"]
    assert Counter(kept.labels.tolist()) == {"a:one": 5, "a:two": 4, "b:four": 9}


def test_images_without_a_class_large_enough_are_refused() -> None:
    with pytest.raises(ConfigError, match="none of the 2 training classes has 2 images, the largest has 1"):
        leave_out_small_classes(_images({"a": 1, "b": 1}), 2)

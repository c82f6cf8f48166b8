"""Source-balanced batches: fixed shares of data sets of very different sizes."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.models.errors import ConfigError
from vicinal.training.samplers import SourceBalancedConfig

# 40 classes of a large set, 3 of a small one, 4 images each.
LABELS = np.repeat(np.arange(43), 4)
SOURCES = np.where(LABELS < 40, "large", "small")


def batches(shares, n_batches: int = 30, seed: int = 0) -> list[list[int]]:
    size = 2 * sum(shares.values())
    sampler = SourceBalancedConfig(batch_size=size, per_class=2, classes_per_source=shares)
    return list(sampler.batches(LABELS, SOURCES, n_batches=n_batches, seed=seed))


def test_every_batch_has_the_given_number_of_classes_of_each_source() -> None:
    for batch in batches({"large": 5, "small": 2}):
        counted = {name: len(set(LABELS[batch][SOURCES[batch] == name])) for name in ("large", "small")}
        assert counted == {"large": 5, "small": 2}


@pytest.mark.parametrize("shares", [{"large": 5}, {"large": 5, "small": 2, "other": 1}])
def test_sources_that_do_not_match_the_data_are_refused(shares) -> None:
    with pytest.raises(ConfigError, match="the data sets are large, small"):
        batches(shares)


def test_a_source_with_too_few_classes_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs 4 classes, the data has 3"):
        batches({"large": 5, "small": 4})

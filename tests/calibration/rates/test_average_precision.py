"""Average precision over the first R ranks."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.calibration.rates.average_precision import average_precisions


def test_average_precisions_are_those_of_going_down_the_ranks() -> None:
    rng = np.random.default_rng(5)
    is_mate, n_mates = rng.random((40, 12)) < 0.4, rng.integers(0, 20, 40)
    found = average_precisions(is_mate, n_mates)
    for row in range(40):
        cut, hits, total = min(int(n_mates[row]), 12), 0, 0.0
        for rank in range(cut):
            if is_mate[row, rank]:
                hits += 1
                total += hits / (rank + 1)
        assert found[row] == pytest.approx(total / cut if cut else 0.0)

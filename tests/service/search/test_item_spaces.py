"""What counts as not in the gallery for a query."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.service.search.item_spaces import is_excluded


@pytest.mark.parametrize("most", [0, 1, 5, 16, 17, 40])
@pytest.mark.parametrize("shape", [(7, 20), (7, 20, 3)])
def test_positions_are_excluded_for_their_query_alone(most: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(most)
    positions = rng.integers(-1, 60, shape)
    excluded = [rng.choice(60, rng.integers(0, most + 1), replace=False) for _ in positions]
    excluded[3] = rng.choice(60, most, replace=False)
    expected = [np.isin(row, out) for row, out in zip(positions, excluded, strict=True)]
    assert np.array_equal(is_excluded(positions, excluded), np.stack(expected))

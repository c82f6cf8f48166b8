"""Neighbor graph after changes: equal to the one that is built from scratch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.graph import neighbor_graph as graph_update
from vicinal.indexer.graph.neighbor_graph import NeighborGraph, build_neighbor_graph, update_neighbor_graph
from vicinal.models.similarity import normalize


def _directions(n: int, seed: int, n_centers: int = 6) -> FloatArray:
    """Clustered directions, exact duplicates among them."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_centers, 5))
    vectors = normalize(centers[rng.integers(0, n_centers, n)] + 0.3 * rng.normal(size=(n, 5)))
    return vectors[rng.integers(0, max(1, n), n)] if n else vectors


def _equal(a: NeighborGraph, b: NeighborGraph) -> bool:
    return np.array_equal(a.ids, b.ids) and np.array_equal(a.similarities, b.similarities)


@given(n=st.integers(0, 90), n_added=st.integers(0, 60), share=st.floats(0, 1), seed=st.integers(0, 10**6))
def test_the_updated_graph_is_the_one_built_from_scratch(
    n: int, n_added: int, share: float, seed: int
) -> None:
    before, added = _directions(n, seed), _directions(n_added, seed + 1)
    kept = np.flatnonzero(np.random.default_rng(seed).random(n) < share)
    now = np.concatenate([before[kept], added])
    updated = update_neighbor_graph(build_neighbor_graph(before, 6), kept, now)
    assert _equal(updated, build_neighbor_graph(now, 6))


@pytest.mark.parametrize(("n_kept", "n_added"), [(300, 20), (300, 0), (200, 20), (0, 20)])
def test_blocks_make_one_graph(monkeypatch: pytest.MonkeyPatch, n_kept: int, n_added: int) -> None:
    monkeypatch.setattr(graph_update, "_UPDATED", 7)
    before, kept = _directions(300, 0), np.sort(np.random.default_rng(1).permutation(300)[:n_kept])
    now = np.concatenate([before[kept], _directions(n_added, 2)])
    updated = update_neighbor_graph(build_neighbor_graph(before), kept, now)
    assert _equal(updated, build_neighbor_graph(now))

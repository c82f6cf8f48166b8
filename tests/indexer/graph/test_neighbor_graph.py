"""Neighbor graph against brute force in float64, with duplicates, ties and small galleries."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS, build_neighbor_graph
from vicinal.models.similarity import normalize


def _slow_neighbors(embeddings: FloatArray, i: int) -> list[tuple[float, int]]:
    """All others of one item, pair by pair: most similar first, ties by position."""
    wide = embeddings.astype(np.float64)
    others = [(float(np.vecdot(wide[j], wide[i])), j) for j in range(len(wide)) if j != i]
    rounded = [(float(np.float32(min(1.0, max(-1.0, similarity)))), j) for similarity, j in others]
    return sorted(rounded, key=lambda pair: (-pair[0], pair[1]))


def _slow_graph(embeddings: FloatArray, k: int) -> tuple[npt.NDArray[np.int32], FloatArray]:
    n = len(embeddings)
    ids = np.full((n, k), -1, np.int32)
    similarities = np.full((n, k), -np.inf, np.float32)
    for i in range(n):
        for rank, (similarity, j) in enumerate(_slow_neighbors(embeddings, i)[:k]):
            ids[i, rank], similarities[i, rank] = j, similarity
    return ids, similarities


def _assert_graph_is(embeddings: FloatArray, k: int) -> None:
    graph = build_neighbor_graph(embeddings, k)
    ids, similarities = _slow_graph(embeddings, k)
    assert np.array_equal(graph.similarities, similarities)
    assert np.array_equal(graph.ids, ids)


@st.composite
def galleries(draw: st.DrawFn) -> FloatArray:
    """Random directions, each up to four times, in any order."""
    n_directions, dim = draw(st.integers(1, 25)), draw(st.integers(2, 24))
    copies = draw(st.lists(st.integers(1, 4), min_size=n_directions, max_size=n_directions))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return normalize(rng.permutation(np.repeat(rng.normal(size=(n_directions, dim)), copies, axis=0)))


@given(embeddings=galleries(), k=st.integers(1, 40))
def test_graph_equals_brute_force(embeddings: FloatArray, k: int) -> None:
    _assert_graph_is(embeddings, k)


def test_graph_over_several_blocks_equals_brute_force() -> None:
    """1,100 items are more than one block of queries."""
    embeddings = normalize(np.random.default_rng(0).normal(size=(1100, 12)))
    graph = build_neighbor_graph(embeddings)
    for i in (0, 1, 500, 1023, 1024, 1099):
        expected = _slow_neighbors(embeddings, i)[:N_NEIGHBORS]
        assert graph.ids[i].tolist() == [j for _, j in expected]
        assert graph.similarities[i].tolist() == [similarity for similarity, _ in expected]


def test_ties_come_in_order_of_position() -> None:
    """Corners of a 4-cube: every similarity is a multiple of one half, so that ties are exact."""
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T
    _assert_graph_is(normalize(np.concatenate([corners, corners])), 31)


def test_dropping_the_first_neighbor_would_keep_the_item_itself() -> None:
    """Negative control: of duplicates the first found is not always the item that asks."""
    rng = np.random.default_rng(0)
    embeddings = normalize(np.repeat(rng.normal(size=(10, 8)), 2, axis=0))
    similarities = embeddings.astype(np.float64) @ embeddings.astype(np.float64).T
    naive = np.argsort(-similarities.astype(np.float32), axis=1, kind="stable")[:, 1:6]
    assert (naive == np.arange(20)[:, None]).any()
    assert not (build_neighbor_graph(embeddings, 5).ids == np.arange(20)[:, None]).any()


@pytest.mark.parametrize("n", [1, 2, 5, N_NEIGHBORS, N_NEIGHBORS + 1])
def test_places_without_a_neighbor_are_marked(n: int) -> None:
    graph = build_neighbor_graph(normalize(np.random.default_rng(0).normal(size=(n, 8))))
    empty = np.broadcast_to(np.arange(N_NEIGHBORS) >= n - 1, (n, N_NEIGHBORS))
    assert np.array_equal(graph.ids == -1, empty)
    assert np.array_equal(np.isneginf(graph.similarities), empty)

"""Neighbor lists found by cells: what is listed is exact, nearly all is found, and all where every cell is
visited.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.graph import cell_lists, neighbor_graph
from vicinal.indexer.graph.neighbor_graph import NeighborGraph, build_neighbor_graph
from vicinal.models.similarity import exact_similarities, normalize

N = 3000


@pytest.fixture(scope="module")
def embeddings() -> FloatArray:
    """Items of 150 labels in 20 groups."""
    rng = np.random.default_rng(0)
    groups = rng.normal(size=(20, 32))
    labels = groups[rng.integers(0, 20, 150)] + 0.7 * rng.normal(size=(150, 32))
    return normalize(labels[rng.integers(0, 150, N)] + 0.4 * rng.normal(size=(N, 32)))


@pytest.fixture(scope="module")
def exact(embeddings: FloatArray) -> NeighborGraph:
    return build_neighbor_graph(embeddings)


@pytest.fixture
def by_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of any size are found by cells."""
    monkeypatch.setattr(neighbor_graph, "EXACT_LIMIT", 0)


def recall(graph: NeighborGraph, true: NeighborGraph) -> float:
    hits = [len(set(a) & set(b)) / len(b) for a, b in zip(graph.ids.tolist(), true.ids.tolist(), strict=True)]
    return float(np.mean(hits))


@pytest.mark.usefixtures("by_cells")
def test_nearly_all_neighbors_are_found(embeddings: FloatArray, exact: NeighborGraph) -> None:
    graph = build_neighbor_graph(embeddings)
    assert 0.95 < recall(graph, exact) < 1


class OneAfterTheOther:
    """A cluster of this process alone, in whose hands nothing is left from one part to the next."""

    n_workers = 3
    provider = ""

    def share(self, value: Any) -> Any:
        return pickle.dumps(value)

    def map(self, function: Any, parts: Iterable[Any], *shared: Any) -> Iterator[Any]:
        for part in [*parts][::-1]:
            given = [pickle.loads(one) if isinstance(one, bytes) else one for one in shared]
            yield pickle.loads(pickle.dumps(function(*given, part)))

    def embedded(self, items: Any, embedder: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("limit", [0, N])
def test_parts_found_on_a_cluster_are_the_lists_of_all(
    embeddings: FloatArray, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(neighbor_graph, "EXACT_LIMIT", limit)
    monkeypatch.setattr(cell_lists, "_APART", 100)
    here, done = build_neighbor_graph(embeddings), list[int]()
    there = build_neighbor_graph(
        embeddings, cluster=OneAfterTheOther(), on_progress=lambda _stage, n, _all, *_: done.append(n)
    )
    np.testing.assert_array_equal(there.ids, here.ids)
    np.testing.assert_array_equal(there.similarities, here.similarities)
    assert done[-1] == N


@pytest.mark.usefixtures("by_cells")
def test_fewer_visits_find_fewer(
    embeddings: FloatArray, exact: NeighborGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the measure sees what is missed."""
    monkeypatch.setattr(cell_lists, "_N_VISITED", 1)
    assert recall(build_neighbor_graph(embeddings), exact) < 0.8


@pytest.mark.usefixtures("by_cells")
def test_what_is_listed_is_exact_and_in_order(embeddings: FloatArray) -> None:
    graph = build_neighbor_graph(embeddings)
    assert (graph.ids >= 0).all()
    np.testing.assert_array_equal(graph.similarities, exact_similarities(embeddings, embeddings[graph.ids]))
    assert (np.diff(graph.similarities, axis=1) <= 0).all()
    assert all(len(set(ids)) == len(ids) for ids in graph.ids.tolist())
    assert not (graph.ids == np.arange(N)[:, None]).any()


@given(
    n=st.integers(1, 20), dim=st.integers(2, 12), n_copies=st.integers(1, 3), seed=st.integers(0, 2**32 - 1)
)
def test_where_every_cell_is_visited_the_graph_is_the_exact_one(
    n: int, dim: int, n_copies: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    vectors = normalize(rng.permutation(np.repeat(rng.normal(size=(n, dim)), n_copies, axis=0))[:20])
    expected = build_neighbor_graph(vectors, 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbor_graph, "EXACT_LIMIT", 0)
        graph = build_neighbor_graph(vectors, 5)
    np.testing.assert_array_equal(graph.similarities, expected.similarities)
    np.testing.assert_array_equal(graph.ids, expected.ids)


def test_a_small_gallery_is_compared_in_full(embeddings: FloatArray, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> npt.NDArray[np.int32]:
        raise AssertionError

    monkeypatch.setattr(neighbor_graph, "cell_candidates", refuse)
    monkeypatch.setattr(neighbor_graph, "EXACT_LIMIT", N)
    build_neighbor_graph(embeddings)
    with pytest.raises(AssertionError):
        build_neighbor_graph(np.concatenate([embeddings, embeddings[:1]]))

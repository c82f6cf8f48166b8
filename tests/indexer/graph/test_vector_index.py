"""Vector index: exact where it says so, and never dependent on what else is asked."""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import GalleryError
from vicinal.indexer.graph.vector_index import (
    FLAT_LIMIT,
    Candidates,
    FaissIndex,
    automatic_factories,
    check_factory,
    products_at,
    shared_out,
)
from vicinal.indexer.storage.files import FileSeal
from vicinal.models.similarity import normalize

DIM = 32
N_CLUSTERED = 12_000
FACTORIES = ["Flat", "IVF8,Flat", "IVF8,SQ8", "IVF8,PQ16x4fs", "IVF8,PQ8x4fsr"]


def _random(n: int, dim: int = DIM, seed: int = 0) -> FloatArray:
    return normalize(np.random.default_rng(seed).normal(size=(n, dim)))


def _nearest(queries: FloatArray, embeddings: FloatArray, n: int) -> npt.NDArray[np.int64]:
    similarities = queries.astype(np.float64) @ embeddings.astype(np.float64).T
    return np.argsort(-similarities, axis=1, kind="stable")[:, :n]


def _recall(found: npt.NDArray[np.int64], nearest: npt.NDArray[np.int64]) -> float:
    kept = [np.isin(row, candidates).mean() for row, candidates in zip(nearest, found, strict=True)]
    return float(np.mean(kept))


def _saved(index: FaissIndex, path: Path) -> FaissIndex:
    index.save(path)
    return FaissIndex.open(path, index.spec, index.candidates, FileSeal.of(path))


@pytest.fixture(scope="module")
def embeddings() -> FloatArray:
    return _random(700)


@pytest.fixture(scope="module", params=FACTORIES)
def index(request: pytest.FixtureRequest, embeddings: FloatArray) -> FaissIndex:
    return FaissIndex.build(embeddings, request.param)


@pytest.fixture(scope="module")
def clustered() -> tuple[FloatArray, FloatArray]:
    """12,000 items in 60 clusters and 200 queries from the same clusters."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(60, DIM))
    n = N_CLUSTERED + 200
    vectors = normalize(centers[rng.integers(0, 60, n)] + 0.5 * rng.normal(size=(n, DIM)))
    return vectors[:N_CLUSTERED], vectors[N_CLUSTERED:]


@pytest.fixture(scope="module")
def without_groups() -> tuple[FloatArray, FloatArray]:
    """12,000 items in clusters of two or three, and 300 queries from the same clusters."""
    rng = np.random.default_rng(0)
    n_items, n_queries, dim = 12_000, 300, 128
    centers = rng.normal(size=(5000, 64))[rng.integers(0, 5000, n_items + n_queries)]
    latent = centers + 0.6 * rng.normal(size=centers.shape)
    noise = 4.0 * rng.normal(size=(len(latent), dim))
    vectors = normalize((latent @ rng.normal(size=(64, dim)) + noise).astype(np.float32))
    return vectors[:n_items], vectors[n_items:]


@given(n=st.integers(1, 60), dim=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))
def test_flat_index_finds_the_nearest_items(n: int, dim: int, seed: int) -> None:
    vectors, queries = _random(n, dim, seed), _random(3, dim, seed + 1)
    found = FaissIndex.build(vectors, "Flat").search(queries, min(n, 5))
    similarities = queries.astype(np.float64) @ vectors.astype(np.float64).T
    expected = -np.sort(-similarities, axis=1)[:, : min(n, 5)]
    assert np.take_along_axis(similarities, found, axis=1) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("n_items", "dim", "expected"),
    [
        (1, 512, ("Flat",)),
        (FLAT_LIMIT, 512, ("Flat",)),
        (FLAT_LIMIT + 1, 512, ("IVF256,PQ256x4fsr", "IVF1,PQ256x4fsr")),
        (60_000, 512, ("IVF512,PQ128x4fsr", "IVF1,PQ256x4fsr")),
        (50_000_000, 512, ("IVF16384,PQ128x4fsr", "IVF1,PQ256x4fsr")),
        (60_000, 254, ("IVF512,PQ127x4fsr", "IVF1,PQ127x4fsr")),
        (60_000, 9, ("IVF512,SQ8",)),
    ],
)
def test_auto_is_exact_for_few_items_and_quantizes_many(
    n_items: int, dim: int, expected: tuple[str, ...]
) -> None:
    assert automatic_factories(n_items, dim) == expected


@pytest.mark.slow
def test_items_without_groups_get_one_list_and_all_nearest_are_among_the_candidates(
    without_groups: tuple[FloatArray, FloatArray], tmp_path: Path
) -> None:
    items, queries = without_groups
    index = FaissIndex.build(items)
    opened = _saved(index, tmp_path / "saved.index")
    assert (index.spec, index.n_probed, index.can_select) == ("IVF1,PQ64x4fsr", 1, True)
    lists = FaissIndex.build(items, automatic_factories(*items.shape)[0])
    assert lists.n_probed > lists.as_faiss.nlist / 3
    missed, missed_in_lists = {}, {}
    for n in (10, 100):
        nearest = _nearest(queries, items, n)
        missed[n], missed_in_lists[n] = (
            1.0 - _recall(one.search(queries, one.n_fetched(n)), nearest) for one in (opened, lists)
        )
    assert max(missed.values()) < 0.015
    # Negative control: four times as many, though half of all items are looked at.
    assert missed_in_lists[100] > 2 * missed[100]


def test_opened_index_gives_identical_results(
    index: FaissIndex, embeddings: FloatArray, tmp_path: Path
) -> None:
    opened = _saved(index, tmp_path / "saved.index")
    assert opened.spec == index.spec
    assert np.array_equal(opened.search(embeddings[:50], 20), index.search(embeddings[:50], 20))


def test_as_many_lists_are_looked_into_as_hold_the_nearest(
    clustered: tuple[FloatArray, FloatArray],
) -> None:
    """Of clusters that stand alone few, of items without any order nearly all."""
    vectors, queries = clustered
    in_clusters = FaissIndex.build(vectors, "IVF128,Flat")
    without_order = FaissIndex.build(_random(3000), "IVF128,Flat")
    assert _recall(in_clusters.search(queries, 10), _nearest(queries, vectors, 10)) > 0.98
    assert in_clusters.n_probed < 16 < 64 < without_order.n_probed <= 128


@pytest.mark.slow
def test_as_many_candidates_are_fetched_as_hold_the_nearest(
    clustered: tuple[FloatArray, FloatArray],
) -> None:
    """Of codes that tell items apart few, of coarse codes many; a flat index needs none beyond the wanted."""
    vectors, queries = clustered
    fine, coarse = (FaissIndex.build(vectors, f"IVF64,{codes}") for codes in ("SQ8", "PQ4x4fs"))
    assert fine.n_fetched(8) <= 20 < 100 < coarse.n_fetched(8) == coarse.candidates.of_few <= 400
    assert fine.n_fetched(100) < 150 < 200 < coarse.n_fetched(100) <= 400
    for n in (10, 100):
        assert _recall(fine.search(queries, fine.n_fetched(n)), _nearest(queries, vectors, n)) > 0.98
    for n in (20, 50):
        assert _recall(coarse.search(queries, coarse.n_fetched(n)), _nearest(queries, vectors, n)) > 0.95
    assert FaissIndex.build(vectors, "Flat").n_fetched(8) == 8


@pytest.mark.parametrize("spec", ["HNSW16", "HNSW16,SQ8"])
def test_a_graph_of_before_is_searched_on(embeddings: FloatArray, tmp_path: Path, spec: str) -> None:
    graph = faiss.index_factory(DIM, spec, faiss.METRIC_INNER_PRODUCT)
    graph.train(embeddings)
    graph.add(embeddings)
    opened = _saved(FaissIndex(graph, spec, Candidates(20, 100)), tmp_path / "graph.index")
    found = opened.search(embeddings[:40], opened.n_fetched(10))
    assert _recall(found, _nearest(embeddings[:40], embeddings, 10)) > 0.98
    assert not opened.can_select


def test_parts_are_shared_out_in_order_and_errors_come_through() -> None:
    assert shared_out(lambda part: part**2, range(50)) == [part**2 for part in range(50)]
    assert shared_out(lambda part: part, []) == []
    with pytest.raises(ZeroDivisionError):
        shared_out(lambda part: 1 // part, [2, 1, 0])


def test_products_are_those_of_the_rows_that_are_named(embeddings: FloatArray, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", embeddings)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    positions = np.array([[3, -1, 699, 3], [-1, 0, 1, 2]])
    found = products_at(embeddings[[5, 6]], rows, positions)
    expected = np.einsum("bd,bwd->bw", embeddings[[5, 6]], embeddings[positions])
    assert found == pytest.approx(np.where(positions < 0, -np.inf, expected), abs=1e-6)


@pytest.mark.parametrize(
    "factory",
    [
        *("Flat", "SQ8", "PQ8x4fs"),
        *("IVF16,Flat", "IVF16,SQ8", "IVF16,PQ8x4fs", "IVF16,PQ8x4fsr"),
    ],
)
def test_every_kind_finds_the_same_alone_and_in_a_batch(embeddings: FloatArray, factory: str) -> None:
    index = FaissIndex.build(embeddings, factory)
    alone = np.concatenate([index.search(query[None], 30) for query in embeddings[:100]])
    for n_queries in (2, 15, 16, 17, 19, 20, 32, 100):
        assert np.array_equal(index.search(embeddings[:n_queries], 30), alone[:n_queries])


REFUSED = [
    *("nonsense", "", "IVF", "IVFx", "IVF0,Flat", "IVF16", "Flat,Flat", " Flat", "Flat\n", "Flat\0"),
    *("OPQ16,PQ16", "PCA64,Flat", "IDMap,Flat", "IVF16(IVF16,Flat),Flat", "SQ8,Flat"),
    *("IVF65537,Flat", "PQ16x12", "PQ16x0", "SQ6x", "PQ0", "IVF\uff11\uff16,Flat"),
    *("A" * 100_000, "IVF" + "9" * 100_000 + ",Flat", "(" * 50, "IVF1," * 12 + "Flat"),
]


@pytest.mark.parametrize("factory", REFUSED, ids=lambda factory: ascii(factory[:30]))
def test_what_is_no_known_kind_of_a_size_is_refused_in_a_sentence(
    factory: str, embeddings: FloatArray
) -> None:
    for refuse in (lambda: check_factory(factory, 512), lambda: FaissIndex.build(embeddings[:50], factory)):
        with pytest.raises(GalleryError, match="expected auto, Flat, ") as caught:
            refuse()
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("factory", ["graph", "HNSW16", "HNSW16,SQ8"])
def test_a_graph_is_refused_with_what_to_choose(factory: str) -> None:
    with pytest.raises(GalleryError, match=f"index '{factory}' is no more: choose auto, or milvus"):
        check_factory(factory, 512)


@pytest.mark.parametrize("factory", ["PQ4", "IVF2,PQ4"])
def test_no_order_of_codes_is_found_for_a_search_that_is_not_made(
    factory: str, embeddings: FloatArray
) -> None:
    rows = np.concatenate([embeddings] * (1 + 500 // len(embeddings)))
    built = FaissIndex.build(rows, factory).as_faiss
    # Faiss itself would find one.
    plain = faiss.index_factory(embeddings.shape[1], factory)
    assert [faiss.downcast_index(one).do_polysemous_training for one in (built, plain)] == [False, True]

"""Vector index: exact where it says so, and never dependent on what else is asked."""

from __future__ import annotations

import threading
from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.disks import short_files
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import GalleryError, StorageError
from vicinal.indexer.graph import vector_index
from vicinal.indexer.graph.vector_index import (
    FLAT_LIMIT,
    Candidates,
    FaissIndex,
    automatic_factories,
    check_factory,
    n_threads,
    products_at,
    shared_out,
)
from vicinal.indexer.storage.files import FileSeal
from vicinal.models.similarity import normalize

DIM = 32
N_CLUSTERED = 12_000
FACTORIES = ["Flat", "graph", "IVF8,Flat", "IVF8,SQ8", "IVF8,PQ16x4fs", "IVF8,PQ8x4fsr"]


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


@pytest.fixture(scope="module")
def large_index(clustered: tuple[FloatArray, FloatArray]) -> FaissIndex:
    return FaissIndex.build(clustered[0])


@given(n=st.integers(1, 60), dim=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_flat_index_finds_the_nearest_items(n: int, dim: int, seed: int) -> None:
    vectors, queries = _random(n, dim, seed), _random(3, dim, seed + 1)
    found = FaissIndex.build(vectors, "Flat").search(queries, min(n, 5))
    similarities = queries.astype(np.float64) @ vectors.astype(np.float64).T
    expected = -np.sort(-similarities, axis=1)[:, : min(n, 5)]
    assert np.take_along_axis(similarities, found, axis=1) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("n_items", [1, 500, FLAT_LIMIT])
def test_auto_is_exact_up_to_the_flat_limit(n_items: int) -> None:
    assert automatic_factories(n_items, 512) == ("Flat",)


@pytest.mark.parametrize(
    ("n_items", "expected"),
    [
        (FLAT_LIMIT + 1, "IVF256,PQ256x4fsr"),
        (60_000, "IVF512,PQ128x4fsr"),
        (1_000_000, "IVF2048,PQ128x4fsr"),
        (50_000_000, "IVF16384,PQ128x4fsr"),
    ],
)
def test_auto_quantizes_four_dimensions_a_code_of_many_long_vectors(n_items: int, expected: str) -> None:
    assert automatic_factories(n_items, 512) == (expected, "IVF1,PQ256x4fsr")


@pytest.mark.parametrize("dim", [2, 128, 254, 510])
def test_auto_quantizes_two_dimensions_of_short_vectors_a_code(dim: int) -> None:
    codes = f"PQ{dim // 2}x4fsr"
    assert automatic_factories(60_000, dim) == (f"IVF512,{codes}", f"IVF1,{codes}")


@pytest.mark.parametrize("dim", [1, 9, 511])
def test_auto_codes_odd_dimensions_one_by_one(dim: int) -> None:
    assert automatic_factories(60_000, dim) == ("IVF512,SQ8",)


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


@pytest.mark.slow
def test_one_list_is_searched_among_some_items(without_groups: tuple[FloatArray, FloatArray]) -> None:
    items, queries = without_groups
    among = np.random.default_rng(1).random(len(items)) < 0.2
    found = FaissIndex.build(items).search(queries, 60, among)
    assert among[found].all()
    nearest = np.flatnonzero(among)[_nearest(queries, items[among], 10)]
    assert _recall(found, nearest) > 0.99


def test_index_of_odd_dimension_finds_items_by_their_own_embedding() -> None:
    vectors = _random(700, dim=9)
    index = FaissIndex.build(vectors, "IVF8,SQ8")
    assert np.mean(index.search(vectors[:100], 1)[:, 0] == np.arange(100)) > 0.95


def test_only_the_flat_index_says_that_it_is_exact(index: FaissIndex) -> None:
    assert index.is_exact == (index.spec == "Flat")


@pytest.mark.slow
def test_large_index_keeps_the_ten_nearest_among_its_candidates(
    large_index: FaissIndex, clustered: tuple[FloatArray, FloatArray]
) -> None:
    """Recall@10 as a search sees it: some hundred candidates, which are then scored exactly."""
    vectors, queries = clustered
    found = large_index.search(queries, 150)
    assert large_index.spec == "IVF256,PQ16x4fsr"
    assert _recall(found, _nearest(queries, vectors, 10)) > 0.9


@pytest.mark.slow
def test_too_few_candidates_fail_the_recall_check(
    large_index: FaissIndex, clustered: tuple[FloatArray, FloatArray]
) -> None:
    """Negative control: the codes alone do not rank the ten nearest well enough."""
    vectors, queries = clustered
    found = large_index.search(queries, 10)
    assert _recall(found, _nearest(queries, vectors, 10)) < 0.9


def test_opened_index_gives_identical_results(
    index: FaissIndex, embeddings: FloatArray, tmp_path: Path
) -> None:
    opened = _saved(index, tmp_path / "saved.index")
    assert opened.spec == index.spec
    assert np.array_equal(opened.search(embeddings[:50], 20), index.search(embeddings[:50], 20))


@pytest.mark.slow
def test_opened_large_index_gives_identical_results(
    large_index: FaissIndex, clustered: tuple[FloatArray, FloatArray], tmp_path: Path
) -> None:
    opened = _saved(large_index, tmp_path / "saved.index")
    queries = clustered[1]
    assert np.array_equal(opened.search(queries, 50), large_index.search(queries, 50))


@given(chosen=st.lists(st.integers(0, 699), min_size=1, max_size=40))
@settings(max_examples=20, deadline=None)
def test_query_finds_the_same_alone_and_in_a_batch(
    index: FaissIndex, embeddings: FloatArray, chosen: list[int]
) -> None:
    together = index.search(embeddings[chosen], 12)
    alone = np.concatenate([index.search(embeddings[[one]], 12) for one in chosen])
    assert np.array_equal(together, alone)


@pytest.mark.slow
def test_auto_finds_the_nearest_of_a_gallery_just_too_large_to_scan(
    without_groups: tuple[FloatArray, FloatArray],
) -> None:
    """The ten nearest lie in many lists, of which an eighth held .88."""
    items, queries = without_groups
    index = FaissIndex.build(items, "IVF256,PQ64x4fsr")
    nearest = _nearest(queries, items, 10)
    assert _recall(index.search(queries, 400), nearest) > 0.99
    # The forty that four times as many would be held .97.
    assert 40 < index.n_fetched(10) == index.candidates.of_few < 160
    assert _recall(index.search(queries, index.n_fetched(10)), nearest) > 0.98


@pytest.mark.slow
def test_as_many_lists_are_looked_into_as_hold_the_nearest(
    clustered: tuple[FloatArray, FloatArray],
) -> None:
    """Of clusters that stand alone few, of items without any order nearly all."""
    vectors, queries = clustered
    in_clusters = FaissIndex.build(vectors, "IVF128,Flat")
    without_order = FaissIndex.build(_random(3000), "IVF128,Flat")
    assert _recall(in_clusters.search(queries, 10), _nearest(queries, vectors, 10)) > 0.98
    assert in_clusters.n_probed < 16 < 64 < without_order.n_probed <= 128


def test_copies_of_one_item_need_one_list() -> None:
    copies = np.repeat(_random(1), 100, axis=0)
    assert FaissIndex.build(copies, "IVF1,Flat").n_probed == 1


def test_one_item_can_be_built_and_found() -> None:
    vectors = _random(1)
    assert FaissIndex.build(vectors, "IVF1,Flat").search(vectors, 1).tolist() == [[0]]


def test_kind_without_lists_looks_into_none(embeddings: FloatArray) -> None:
    assert FaissIndex.build(embeddings, "SQ8").n_probed == 0


def test_opened_index_looks_into_as_many_lists(large_index: FaissIndex, tmp_path: Path) -> None:
    opened = _saved(large_index, tmp_path / "saved.index")
    assert opened.n_probed == large_index.n_probed > 1
    assert opened.candidates == large_index.candidates


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


@pytest.mark.slow
def test_graph_is_followed_as_far_as_holds_the_nearest(
    clustered: tuple[FloatArray, FloatArray],
) -> None:
    vectors, queries = clustered
    near, far = (FaissIndex.build(vectors, kind) for kind in ("graph", "HNSW4,SQ8"))
    assert near.spec == "HNSW16,SQ8"
    assert near.effort <= 64 < far.effort
    assert near.n_fetched(8) <= 20
    assert 100 <= near.n_fetched(100) < 120
    nearest = _nearest(queries, vectors, 10)
    for index in (near, far):
        assert _recall(index.search(queries, index.n_fetched(10)), nearest) > 0.98
    assert _recall(near.search(queries, near.n_fetched(100)), _nearest(queries, vectors, 100)) > 0.98
    # Negative control: with the effort of the other graph.
    far.effort = near.effort
    assert _recall(far.search(queries, far.n_fetched(10)), nearest) < 0.97


def test_opened_graph_is_mapped_and_followed_as_far(embeddings: FloatArray, tmp_path: Path) -> None:
    path = tmp_path / "saved.index"
    index = FaissIndex.build(embeddings, "HNSW4,SQ8")
    opened = _saved(index, path)
    assert opened.effort == index.effort > 0
    assert (opened.candidates, opened.can_select) == (index.candidates, True)
    assert str(path) in Path("/proc/self/maps").read_text()


@pytest.mark.skipif(
    tuple(map(int, faiss.__version__.split(".")[:3])) < (1, 15, 1),
    reason="before 1.15.1, Faiss links items by several threads in the order in which they come",
)
def test_graph_is_the_same_by_any_number_of_threads(embeddings: FloatArray) -> None:
    rows = np.concatenate([embeddings, _random(2000, seed=3)])
    linked = []
    try:
        for n in (1, 2, 5):
            faiss.omp_set_num_threads(n)
            built = FaissIndex.build(rows, "graph").as_faiss
            linked.append(faiss.vector_to_array(built.hnsw.neighbors).copy())
    finally:
        faiss.omp_set_num_threads(1)
    assert [np.array_equal(one, linked[0]) for one in linked] == [True] * 3


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 0.5, 0.1, 0.01])
def test_graph_is_searched_among_some_items(clustered: tuple[FloatArray, FloatArray], share: float) -> None:
    vectors, queries = clustered
    index = FaissIndex.build(vectors, "graph")
    among = np.random.default_rng(1).random(len(vectors)) < share
    found = index.search(queries, index.n_fetched(10), among)
    assert among[found].all()
    assert _recall(found, np.flatnonzero(among)[_nearest(queries, vectors[among], 10)]) > 0.98
    alone = np.concatenate([index.search(query[None], index.n_fetched(10), among) for query in queries])
    assert np.array_equal(alone, found)


def test_graph_finds_items_that_are_all_far_from_a_query() -> None:
    """Two clusters, opposite each other: whoever asks at one may see the other alone."""
    offsets = 0.2 * _random(1000)
    vectors = normalize(np.where(np.arange(1000)[:, None] < 500, 1.0, -1.0) / np.sqrt(DIM) + offsets)
    among = np.arange(1000) >= 500
    found = FaissIndex.build(vectors, "graph").search(vectors[:20], 30, among)
    assert among[found].all()
    assert _recall(found, 500 + _nearest(vectors[:20], vectors[among], 10)) > 0.95


def test_graph_gives_all_items_where_all_are_asked_for(embeddings: FloatArray) -> None:
    copies = np.concatenate([embeddings[:50], np.repeat(embeddings[:1], 300, axis=0)])
    found = FaissIndex.build(copies, "graph").search(embeddings[:3], 400)
    assert np.array_equal(np.sort(found[:, :350], axis=1), np.tile(np.arange(350), (3, 1)))
    assert (found[:, 350:] == -1).all()


def test_candidates_grow_with_what_is_wanted() -> None:
    candidates = Candidates(40, 220)
    assert [candidates.fetched(n) for n in (1, 10, 11, 55, 100, 101, 200)] == [40, 40, 42, 130, 220, 223, 440]
    assert [Candidates(1, 100).fetched(n) for n in (1, 9, 10, 50, 100, 1000)] == [1, 9, 10, 50, 100, 1000]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_items_are_measured_too(n: int) -> None:
    index = FaissIndex.build(_random(n), "SQ8")
    assert index.n_fetched(5) >= 5
    assert index.search(_random(1), 1).shape == (1, 1)


def test_parts_are_shared_out_in_order_and_errors_come_through() -> None:
    assert shared_out(lambda part: part**2, range(50)) == [part**2 for part in range(50)]
    assert shared_out(lambda part: part, []) == []
    with pytest.raises(ZeroDivisionError):
        shared_out(lambda part: 1 // part, [2, 1, 0])


def test_what_was_shared_out_is_not_shared_out_again() -> None:
    faiss.omp_set_num_threads(3)
    try:
        assert n_threads() == 3
        inside = shared_out(
            lambda _: (n_threads(), shared_out(lambda _: threading.get_ident(), [0, 1])), [0, 1]
        )
    finally:
        faiss.omp_set_num_threads(1)
    assert [(n, len(set(threads))) for n, threads in inside] == [(1, 1), (1, 1)]
    assert threading.get_ident() not in {thread for _, threads in inside for thread in threads}


def test_products_are_those_of_the_rows_that_are_named(embeddings: FloatArray, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", embeddings)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    positions = np.array([[3, -1, 699, 3], [-1, 0, 1, 2]])
    found = products_at(embeddings[[5, 6]], rows, positions)
    expected = np.einsum("bd,bwd->bw", embeddings[[5, 6]], embeddings[positions])
    assert found == pytest.approx(np.where(positions < 0, -np.inf, expected), abs=1e-6)


def test_search_leaves_the_threads_of_faiss_as_they_were(index: FaissIndex, embeddings: FloatArray) -> None:
    faiss.omp_set_num_threads(3)
    try:
        index.search(embeddings[:40], 5)
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "factory",
    [
        "SQ8",
        "PQ8x4fs",
        "HNSW16",
        "HNSW16,SQ8",
        "IVF16,Flat",
        "IVF16,SQ8",
        "IVF16,PQ8",
        "IVF16,PQ8x4",
        "IVF16,PQ8x4fs",
        "IVF16,PQ8x4fsr",
    ],
)
def test_every_kind_finds_the_same_alone_and_in_a_batch(
    embeddings: FloatArray, factory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_index, "_CODES_A_STEP", 1)
    index = FaissIndex.build(embeddings, factory)
    alone = np.concatenate([index.search(query[None], 30) for query in embeddings[:100]])
    for n_queries in (2, 15, 16, 17, 19, 20, 32, 100):
        assert np.array_equal(index.search(embeddings[:n_queries], 30), alone[:n_queries])


def test_duplicates_are_found_the_same_alone_and_in_a_batch() -> None:
    """Equal similarities, which a product of two large matrices would round apart."""
    copies = np.repeat(_random(1, dim=512), 300, axis=0)
    index = FaissIndex.build(copies, "Flat")
    alone = index.search(copies[:1], 40)
    assert (index.search(copies, 40) == alone).all()


def test_no_queries_give_no_rows(index: FaissIndex) -> None:
    assert index.search(np.empty((0, DIM), np.float32), 5).shape == (0, 5)


def test_positions_beyond_the_index_are_minus_one(embeddings: FloatArray) -> None:
    found = FaissIndex.build(embeddings[:5], "Flat").search(embeddings[:2], 8)
    assert (np.sort(found[:, :5], axis=1) == np.arange(5)).all()
    assert (found[:, 5:] == -1).all()


def test_lists_that_are_not_probed_leave_minus_one(
    large_index: FaissIndex, clustered: tuple[FloatArray, FloatArray]
) -> None:
    found = large_index.search(clustered[1][:1], N_CLUSTERED)[0]
    n_found = int(np.argmax(found == -1))
    assert 0 < n_found < N_CLUSTERED
    assert len(np.unique(found[:n_found])) == n_found
    assert (found[n_found:] == -1).all()


def test_more_lists_than_items_cannot_be_trained(embeddings: FloatArray) -> None:
    with pytest.raises(GalleryError, match="Faiss cannot build 'IVF9999,Flat' over 50 items"):
        FaissIndex.build(embeddings[:50], "IVF9999,Flat")


@pytest.mark.parametrize(
    "factory",
    [
        *(
            "nonsense",
            "",
            "IVF",
            "IVFx",
            "IVF0,Flat",
            "IVF16",
            "Flat,Flat",
            "flat",
            " Flat",
            "Flat\n",
            "IVF16,HNSW8",
        ),
        *(
            "OPQ16,PQ16",
            "PCA64,Flat",
            "IDMap,Flat",
            "IDMap2,Flat",
            "LSH",
            "RFlat",
            "IVF16(IVF16,Flat),Flat",
            "NSG32",
            "Graph",
            "graph,SQ8",
            "HNSW16,PQ8",
        ),
        *(
            "IVF100000000,Flat",
            "IVF65537,Flat",
            "HNSW65",
            "HNSW100000",
            "HNSW1",
            "PQ16x12",
            "PQ16x0",
            "SQ6x",
            "PQ0",
        ),
        *(
            "A" * 100_000,
            "IVF" + "9" * 100_000 + ",Flat",
            "(" * 50,
            "IVF1," * 12 + "Flat",
            "IVF\uff11\uff16,Flat",
            "Flat\0",
        ),
    ],
    ids=lambda factory: ascii(factory[:30]),
)
def test_what_is_no_known_kind_of_a_size_is_refused_in_a_sentence(
    factory: str, embeddings: FloatArray
) -> None:
    for refuse in (lambda: check_factory(factory, 512), lambda: FaissIndex.build(embeddings[:50], factory)):
        with pytest.raises(GalleryError, match="expected auto, graph, Flat, ") as caught:
            refuse()
        assert len(str(caught.value)) < 400


def test_sub_quantizers_divide_the_length() -> None:
    check_factory("PQ16x4fs", 512)
    for factory in ("PQ5x4fs", "IVF16,PQ1024"):
        with pytest.raises(GalleryError, match="divides: 512"):
            check_factory(factory, 512)


@pytest.mark.slow
@pytest.mark.parametrize(
    "factory",
    [
        "Flat",
        "SQ4",
        "SQ8",
        "SQfp16",
        "PQ8",
        "PQ8x4",
        "PQ8x4fs",
        "PQ8x8",
        "HNSW8",
        "HNSW8,Flat",
        "HNSW8,SQ8",
        "graph",
        "IVF4,Flat",
        "IVF4,SQ8",
        "IVF4,PQ8x4fs",
        "IVF4,PQ4",
        "auto",
    ],
)
def test_every_kind_that_is_allowed_can_be_built(factory: str, embeddings: FloatArray) -> None:
    """Negative control of the refusals."""
    check_factory(factory, embeddings.shape[1])
    rows = np.concatenate([embeddings] * (1 + 2000 // len(embeddings)))
    found = FaissIndex.build(rows, factory).search(rows[:1], 1)
    assert found.shape == (1, 1)


@pytest.mark.parametrize("factory", ["PQ4", "IVF2,PQ4"])
def test_no_order_of_codes_is_found_for_a_search_that_is_not_made(
    factory: str, embeddings: FloatArray
) -> None:
    rows = np.concatenate([embeddings] * (1 + 500 // len(embeddings)))
    built = FaissIndex.build(rows, factory).as_faiss
    # Faiss itself would find one.
    plain = faiss.index_factory(embeddings.shape[1], factory)
    assert [faiss.downcast_index(one).do_polysemous_training for one in (built, plain)] == [False, True]


@pytest.mark.parametrize("n_items", [1, 10_001, 1_000_000, 100_000_000])
def test_what_auto_stands_for_is_allowed(n_items: int) -> None:
    for dim in (3, 64, 512):
        for factory in automatic_factories(n_items, dim):
            check_factory(factory, dim)


def test_missing_file_is_refused(index: FaissIndex, tmp_path: Path) -> None:
    path = tmp_path / "absent.index"
    index.save(path)
    seal = FileSeal.of(path)
    path.unlink()
    with pytest.raises(GalleryError, match=r"absent\.index' is missing or damaged"):
        FaissIndex.open(path, index.spec, index.candidates, seal)


@pytest.mark.slow
@pytest.mark.parametrize("longest", [0, 1, 25, 31, 45, 4096])
def test_an_index_that_finds_no_room_is_an_error(index: FaissIndex, tmp_path: Path, longest: int) -> None:
    with short_files(longest), pytest.raises(StorageError, match=r"full\.index' cannot be written"):
        index.save(tmp_path / "full.index")

"""k-reciprocal re-ranking against sets and dictionaries written down straight from the formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp, inf

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.calibration.arrays import FloatArray
from vicinal.models.similarity import exact_similarities, normalize
from vicinal.refine.k_reciprocal import ItemLists, ReciprocalGraph, k_reciprocal_scores, reciprocal_encodings

Scores = npt.NDArray[np.float64]
N_LISTED = 32


def similarity_matrix(queries: FloatArray, items: FloatArray) -> FloatArray:
    return exact_similarities(queries, np.broadcast_to(items, (len(queries), *items.shape)))


def graph_of(gallery: FloatArray, k1: int, *, stored: bool = True) -> ReciprocalGraph:
    """Lists of the 32 nearest others, ties by position, as the index stores them."""
    matrix = np.pad(similarity_matrix(gallery, gallery), ((0, 0), (0, N_LISTED + 1)), constant_values=-inf)
    np.fill_diagonal(matrix, -inf)
    ids = np.argsort(-matrix, axis=1, kind="stable")[:, :N_LISTED]
    similarities = np.take_along_axis(matrix, ids, axis=1)
    lists = ItemLists(gallery, np.where(np.isfinite(similarities), ids, -1), similarities)
    graph = ReciprocalGraph(lists, len(gallery), k1)
    return replace(graph, encodings=reciprocal_encodings(graph)) if stored else graph


def score_gallery(
    queries: FloatArray, graph: ReciprocalGraph, k2: int, lam: float, removed: list[list[int]] | None = None
) -> Scores:
    """Scores of every item for each query, in gallery order, by the fast way."""
    similarities = similarity_matrix(queries, graph.lists.vectors(np.arange(graph.n)))
    for row, gone in enumerate(removed or []):
        similarities[row, gone] = -inf
    order = np.argsort(-similarities, axis=1, kind="stable")
    ranked = np.take_along_axis(similarities, order, axis=1)
    views = [graph.without(gone) for gone in removed] if removed else graph
    scores, _ = k_reciprocal_scores(
        queries, np.where(np.isfinite(ranked), order, -1), ranked, views, k2=k2, lam=lam
    )
    unranked = np.empty_like(scores)
    np.put_along_axis(unranked, order, scores, axis=1)
    return unranked


def dense_k_reciprocal_scores(
    similarities: npt.ArrayLike, to_items: npt.ArrayLike, k1: int, k2: int, lam: float
) -> list[float]:
    """Score of each item for one query, from the similarities of the items and of the query to the items."""
    between = np.asarray(similarities, dtype=float).tolist()
    asked = np.asarray(to_items, dtype=float).tolist()
    items = range(len(asked))

    def kth_largest(values: list[float], k: int) -> float:
        return sorted(values, reverse=True)[k - 1] if k <= len(values) else -inf

    def neighbors(i: int, k: int) -> set[int]:
        if k == 0:
            return set()
        radius = kth_largest([between[i][j] for j in items if j != i], k)
        return {j for j in items if j != i and between[i][j] >= radius}

    def reciprocal_sets(k: int) -> list[set[int]]:
        near = [neighbors(i, k) for i in items]
        return [{j for j in near[i] if i in near[j]} | {i} for i in items]

    whole, half = reciprocal_sets(k1), reciprocal_sets(max(1, k1 // 2))

    def encode(members: set[int], similarity: list[float]) -> dict[int, float]:
        expanded = set(members)
        for m in members:
            if 3 * len(half[m] & members) > 2 * len(half[m]):
                expanded |= half[m]
        weights = {j: exp(-(2 - 2 * similarity[j])) for j in expanded}
        return {j: weight / sum(weights.values()) for j, weight in weights.items()}

    def mean(rows: list[dict[int, float]]) -> dict[int, float]:
        return {j: sum(row.get(j, 0.0) for row in rows) / len(rows) for row in rows for j in row}

    def jaccard(first: dict[int, float], second: dict[int, float]) -> float:
        keys = set(first) | set(second)
        smaller = sum(min(first.get(j, 0.0), second.get(j, 0.0)) for j in keys)
        return smaller / sum(max(first.get(j, 0.0), second.get(j, 0.0)) for j in keys)

    exactly_itself = [[1.0 if i == j else between[i][j] for j in items] for i in items]
    encodings = [encode(whole[i], exactly_itself[i]) for i in items]
    averaged = [mean([encodings[j] for j in {i} | neighbors(i, k2 - 1)]) for i in items]
    near_query = {j for j in items if asked[j] >= kth_largest(asked, k1 + 1)}
    reciprocal = {
        j for j in near_query if asked[j] >= kth_largest([between[j][i] for i in items if i != j], k1)
    }
    averaged_over = {j for j in items if k2 > 1 and asked[j] >= kth_largest(asked, k2 - 1)}
    query = mean([encode(reciprocal, asked), *(encodings[j] for j in averaged_over)])
    return [(1 - lam) * jaccard(query, averaged[j]) + lam * exp(2 * asked[j] - 2) for j in items]


def dense_query_scores(query: FloatArray, gallery: FloatArray, k1: int, k2: int, lam: float) -> list[float]:
    between = similarity_matrix(gallery, gallery)
    return dense_k_reciprocal_scores(between, similarity_matrix(query[None], gallery)[0], k1, k2, lam)


def published_scores(queries: FloatArray, gallery: FloatArray, lam: float = 0.3) -> Scores:
    """Negative control: distances divided by their maximum over all that is asked for, as published."""
    scores = score_gallery(queries, graph_of(gallery, 6), 3, 0.0)
    distances = 2.0 - 2.0 * similarity_matrix(queries, gallery)
    return (1 - lam) * scores + lam * (1.0 - distances / distances.max())


def depends_on_the_batch(score: Callable[[FloatArray], Scores], queries: FloatArray) -> bool:
    alone = np.concatenate([score(query[None]) for query in queries])
    return score(queries).tobytes() != alone.tobytes()


def clustered(n: int, n_centers: int, seed: int = 0, spread: float = 0.3) -> FloatArray:
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_centers, 8))
    return normalize(centers[rng.integers(0, n_centers, n)] + spread * rng.normal(size=(n, 8)))


@st.composite
def galleries(draw: st.DrawFn, smallest: int = 1) -> FloatArray:
    """Galleries with duplicates and exact ties, as many as the lists can hold."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        # Corners of a 4-cube have norm 2, so that every similarity is a multiple of 1/2.
        return normalize(rng.choice([-1.0, 1.0], size=(draw(st.integers(smallest, N_LISTED + 1)), 4)))
    n = draw(st.integers(smallest, 50))
    vectors = np.asarray(clustered(n, 1 + n // 8, seed=int(rng.integers(1000))))
    vectors[rng.integers(0, n, n // 4)] = vectors[rng.integers(0, n, n // 4)]
    return vectors


def near_one_of(gallery: FloatArray, seed: int = 0) -> FloatArray:
    rng = np.random.default_rng(seed)
    vector = gallery[rng.integers(len(gallery))]
    return normalize(vector + 0.1 * rng.normal(size=(1, len(vector))))[0]


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(galleries(), st.integers(2, 20), st.integers(1, 8), st.booleans())
def test_a_query_scores_as_in_the_slow_formula(
    gallery: FloatArray, k1: int, k2: int, is_duplicate: bool
) -> None:
    """Galleries of one item, smaller than k1, with ties and with copies of the query among them."""
    query = gallery[0] if is_duplicate else near_one_of(gallery)
    fast = score_gallery(query[None], graph_of(gallery, k1), k2, 0.3)[0]
    np.testing.assert_allclose(fast, dense_query_scores(query, gallery, k1, k2, 0.3), atol=1e-6)


@pytest.mark.parametrize(("n", "k1", "k2"), [(130, 20, 6), (130, 7, 1), (90, 32, 12)])
def test_larger_galleries_score_as_in_the_slow_formula(n: int, k1: int, k2: int) -> None:
    gallery = clustered(n, 9, seed=n)
    query = near_one_of(gallery)
    fast = score_gallery(query[None], graph_of(gallery, k1), k2, 0.1)[0]
    np.testing.assert_allclose(fast, dense_query_scores(query, gallery, k1, k2, 0.1), atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(galleries(smallest=2), st.integers(2, 20), st.integers(1, 6))
def test_an_item_as_its_own_query_scores_as_if_it_were_not_in_the_gallery(
    gallery: FloatArray, k1: int, k2: int
) -> None:
    scores = score_gallery(gallery[:1], graph_of(gallery, k1), k2, 0.3, [[0]])[0]
    expected = dense_query_scores(gallery[0], gallery[1:], k1, k2, 0.3)
    np.testing.assert_allclose(scores[1:], expected, atol=1e-6)


@pytest.mark.parametrize("n_removed", [1, 5, 12])
def test_removed_items_count_as_not_in_the_gallery(n_removed: int) -> None:
    """As many as 20 reciprocal neighbors leave room for in lists of 32."""
    gallery, removed = clustered(80, 3, seed=4), list(range(0, 2 * n_removed, 2))
    query = near_one_of(gallery)
    scores = score_gallery(query[None], graph_of(gallery, 20), 6, 0.3, [removed])[0]
    expected = dense_query_scores(query, np.delete(gallery, removed, axis=0), 20, 6, 0.3)
    np.testing.assert_allclose(np.delete(scores, removed), expected, atol=1e-6)


def test_stored_encodings_that_still_know_the_query_are_noticed() -> None:
    """Negative control of the two tests above: only the candidates leave the item out."""
    gallery = clustered(60, 5)
    graph = graph_of(gallery, 6)
    similarities = similarity_matrix(gallery[:1], gallery)[:, 1:]
    order = np.argsort(-similarities, axis=1, kind="stable")
    ranked = np.take_along_axis(similarities, order, axis=1)
    wrong, _ = k_reciprocal_scores(gallery[:1], order + 1, ranked, graph, k2=3)
    right = np.array(dense_query_scores(gallery[0], gallery[1:], 6, 3, 0.3))[order]
    assert np.abs(wrong - right).max() > 1e-3


@settings(max_examples=30, deadline=None)
@given(galleries(), st.integers(2, 20), st.integers(1, 6))
def test_a_query_scores_the_same_alone_and_in_a_batch(gallery: FloatArray, k1: int, k2: int) -> None:
    graph, queries = graph_of(gallery, k1), np.stack([near_one_of(gallery, seed) for seed in range(6)])
    assert not depends_on_the_batch(lambda batch: score_gallery(batch, graph, k2, 0.3), queries)


def test_the_published_form_scores_otherwise_in_a_batch() -> None:
    """Negative control: the check above must notice it."""
    gallery = clustered(40, 5)
    queries = np.stack([near_one_of(gallery, seed) for seed in range(6)])
    assert depends_on_the_batch(lambda batch: published_scores(batch, gallery), queries)


@settings(max_examples=30, deadline=None)
@given(galleries(), st.integers(0, 1000))
def test_scores_follow_a_permutation_of_the_gallery(gallery: FloatArray, seed: int) -> None:
    order, query = np.random.default_rng(seed).permutation(len(gallery)), near_one_of(gallery)[None]
    scores = score_gallery(query, graph_of(gallery, 5), 4, 0.3)
    shuffled = score_gallery(query, graph_of(gallery[order], 5), 4, 0.3)
    np.testing.assert_allclose(shuffled, scores[:, order], atol=1e-6)


def test_items_far_from_everything_change_no_score() -> None:
    gallery, query = clustered(50, 5), near_one_of(clustered(50, 5))[None]
    wider = np.pad(gallery, ((0, 0), (0, 8)))
    far = np.pad(clustered(40, 2, seed=7, spread=0.05), ((0, 0), (8, 0)))
    scores = score_gallery(np.pad(query, ((0, 0), (0, 8))), graph_of(wider, 4), 3, 0.3)
    grown = graph_of(np.concatenate([wider, far]), 4)
    among_more = score_gallery(np.pad(query, ((0, 0), (0, 8))), grown, 3, 0.3)[:, :50]
    np.testing.assert_array_equal(among_more, scores)


@settings(max_examples=40, deadline=None)
@given(galleries(), st.integers(1, 8), st.floats(0.0, 1.0))
def test_scores_stay_between_zero_and_one(gallery: FloatArray, k2: int, lam: float) -> None:
    queries = np.concatenate([gallery[:3], near_one_of(gallery)[None], -gallery[:1]])
    scores = score_gallery(queries, graph_of(gallery, 6), k2, lam)
    assert 0.0 <= scores.min() <= scores.max() <= 1.0


def test_a_copy_of_an_item_gets_the_encoding_of_the_item() -> None:
    gallery = clustered(60, 6)
    scores = score_gallery(gallery, graph_of(gallery, 5), 1, 0.3)
    np.testing.assert_allclose(np.diag(scores), 1.0, atol=1e-6)


def test_the_score_falls_as_the_query_moves_away_from_the_cluster() -> None:
    rng = np.random.default_rng(0)
    ends = np.eye(8)[:2]
    gallery = normalize(np.repeat(ends, 8, axis=0) + 0.05 * rng.normal(size=(16, 8)))
    path = normalize(np.stack([(1 - t) * ends[0] + t * ends[1] for t in (0.0, 0.2, 0.8, 1.0)]))
    scores = score_gallery(path, graph_of(gallery, 6), 3, 0.3)
    first, second = scores[:, :8].max(axis=1), scores[:, 8:].max(axis=1)
    assert (np.diff(first) < 0).all()
    assert (np.diff(second) > 0).all()


def test_only_the_similarity_scores_an_item_of_another_cluster() -> None:
    gallery = np.concatenate([normalize(np.eye(8)[:1] + 0.01 * np.eye(8)[i]) for i in range(8)] * 2)
    gallery[8:] = gallery[8:, ::-1]
    scores = score_gallery(gallery[:1], graph_of(gallery, 4), 3, 0.3)[0]
    closeness = np.exp(2.0 * similarity_matrix(gallery[:1], gallery)[0].astype(float) - 2.0)
    np.testing.assert_allclose(scores[8:], 0.3 * closeness[8:])
    assert (scores[:8] > 0.3 * closeness[:8]).all()


def test_more_duplicates_than_the_lists_hold_still_score_in_range() -> None:
    gallery = np.concatenate([np.repeat(clustered(1, 1), 80, axis=0), clustered(40, 3, seed=2)])
    scores = score_gallery(gallery[:1], graph_of(gallery, 20), 6, 0.3)[0]
    assert 0.0 <= scores.min() <= scores.max() <= 1.0
    assert scores[:80].min() > scores[80:].max()


def test_encodings_are_the_same_bits_in_blocks_and_for_some_items_alone() -> None:
    """What is stored and what is computed for one query are exchangeable."""
    graph, rows = graph_of(clustered(600, 50), 8, stored=False), np.array([599, 3, 512, 511])
    stored, computed = reciprocal_encodings(graph).take(rows), graph.encode(rows)
    assert stored.values.tobytes() == computed.values.tobytes()
    assert stored.indices.tobytes() == computed.indices.tobytes()


def test_encodings_of_later_items_are_computed_beside_the_stored_ones() -> None:
    """As for items that were added to a gallery since the encodings were stored."""
    graph = graph_of(clustered(60, 5), 8)
    assert graph.encodings is not None
    partly, rows = replace(graph, encodings=graph.encodings.take(np.arange(40))), np.array([59, 3, 41, 39])
    assert partly.encode(rows).values.tobytes() == graph.encode(rows).values.tobytes()
    assert partly.encode(rows).indices.tobytes() == graph.encode(rows).indices.tobytes()


def test_gone_neighbors_count_as_not_in_the_gallery() -> None:
    """Lists that name a removed item as -1 and keep its similarity, as those of a changed gallery do."""
    gallery = clustered(80, 3, seed=4)
    graph, query = graph_of(gallery, 20), near_one_of(gallery)
    lists = ItemLists(gallery, np.where(graph.lists.ids < 5, -1, graph.lists.ids), graph.lists.similarities)
    gone = replace(graph, lists=lists, encodings=None, has_gone=True)
    similarities = similarity_matrix(query[None], gallery[5:])
    order = np.argsort(-similarities, axis=1, kind="stable")
    ranked = np.take_along_axis(similarities, order, axis=1)
    scores, _ = k_reciprocal_scores(query[None], order + 5, ranked, gone)
    expected = np.array(dense_query_scores(query, gallery[5:], 20, 6, 0.3))[order]
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_every_encoding_sums_to_one() -> None:
    encodings = graph_of(clustered(100, 7), 10).encodings
    assert encodings is not None
    sums = np.bincount(encodings.owners, encodings.values)
    np.testing.assert_allclose(sums, np.ones(100), atol=1e-6)


def test_progress_reaches_the_number_of_items() -> None:
    seen: list[tuple[int, int]] = []
    graph = graph_of(clustered(600, 40), 4, stored=False)
    reciprocal_encodings(graph, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(512, 600), (600, 600)]


def test_padding_never_scores() -> None:
    graph = graph_of(clustered(4, 1), 3)
    similarities = np.array([[0.9, 0.1, -inf, -inf]], np.float32)
    scores, jaccard = k_reciprocal_scores(
        graph.lists.vectors(np.arange(1)), np.array([[0, 1, -1, -1]]), similarities, graph
    )
    assert np.isneginf(scores[0, 2:]).all()
    assert not jaccard[0, 2:].any()


def test_a_query_without_candidates_has_no_scores() -> None:
    graph = graph_of(clustered(3, 1), 3)
    none = np.full((1, 2), -inf, np.float32)
    scores, _ = k_reciprocal_scores(
        graph.lists.vectors(np.arange(1)), np.full((1, 2), -1), none, graph.without([0, 1, 2])
    )
    assert np.isneginf(scores).all()


@pytest.mark.parametrize(
    ("k1", "message"), [(1, "k1 must be at least 2"), (33, "32 neighbors, which leaves no 33-th")]
)
def test_a_neighborhood_that_the_lists_cannot_hold_is_refused(k1: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        graph_of(clustered(5, 1), k1)


@pytest.mark.parametrize(("k2", "message"), [(0, "k2 must be at least 1"), (34, "leaves no 33-th")])
def test_an_average_that_the_lists_cannot_hold_is_refused(k2: int, message: str) -> None:
    graph = graph_of(clustered(5, 1), 3)
    vector, similarity = graph.lists.vectors(np.arange(1)), np.ones((1, 1), np.float32)
    with pytest.raises(ValueError, match=message):
        k_reciprocal_scores(vector, np.zeros((1, 1), int), similarity, graph, k2=k2)

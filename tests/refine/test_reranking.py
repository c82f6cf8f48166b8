"""Contextual re-ranking against the dense formula, the reference vectors and its own properties."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.calibration.arrays import FloatArray
from vicinal.models.similarity import exact_similarities, normalize, reaches
from vicinal.refine import reranking
from vicinal.refine.reranking import (
    contextual_scores,
    dense_contextual_scores,
    kth_similarities,
    neighborhood,
    rerank,
)
from vicinal.service.search.pipeline import Rerank


def similarity_matrix(embeddings: FloatArray) -> FloatArray:
    matrix = exact_similarities(embeddings, np.broadcast_to(embeddings, (len(embeddings), *embeddings.shape)))
    np.fill_diagonal(matrix, 1.0)
    return matrix


def neighbor_lists(matrix: FloatArray) -> tuple[np.ndarray, FloatArray]:
    """Ids and descending similarities of the others, 32 wide as in the index."""
    others = np.pad(matrix, ((0, 0), (0, 33)), constant_values=-np.inf)
    np.fill_diagonal(others, -np.inf)
    ids = np.argsort(-others, axis=1, kind="stable")[:, :32]
    similarities = np.take_along_axis(others, ids, axis=1)
    return np.where(np.isfinite(similarities), ids, -1), similarities


def score_gallery(queries, gallery, k, beta, eps, *, leave_one_out=False):
    """Scores of every item for each query, in gallery order, by the fast way."""
    similarities = exact_similarities(queries, np.broadcast_to(gallery, (len(queries), *gallery.shape)))
    if leave_one_out:
        np.fill_diagonal(similarities, -np.inf)
    order = np.argsort(-similarities, axis=1, kind="stable")
    ranked = np.take_along_axis(similarities, order, axis=1)
    ids, lists = neighbor_lists(similarity_matrix(gallery))
    removed = (ids[order] == np.arange(len(queries))[:, None, None]) if leave_one_out else None
    kth = kth_similarities(lists[order], k, removed)
    scores, _ = contextual_scores(ranked, gallery[order], kth, k=k, beta=beta, eps=eps)
    unranked = np.empty_like(scores)
    np.put_along_axis(unranked, order, scores, axis=1)
    return unranked


def dense_query_scores(query, gallery, k, beta, eps):
    matrix = similarity_matrix(np.concatenate([gallery, query[None]]))
    return dense_contextual_scores(matrix, k, beta, eps)[-1, :-1]


def slow_score(matrix, query, item, k, beta, eps):
    """Sets of Python integers, straight from the formula."""

    def neighborhood(i):
        distances = [2.0 - 2.0 * float(s) for s in matrix[i]]
        radius = sorted(distances)[min(k, len(distances)) - 1]
        return {j for j, distance in enumerate(distances) if distance <= radius + eps}

    mine, theirs = neighborhood(query), neighborhood(item)
    contextual = len(mine & theirs) / len(mine) if item in mine else 0.0
    return beta * contextual + (1.0 - beta) * np.exp(2.0 * float(matrix[query, item]) - 2.0)


@st.composite
def galleries(draw: st.DrawFn) -> FloatArray:
    """Galleries with duplicates and exact ties: few distinct directions, or many random ones."""
    n = draw(st.integers(5, 60))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    if draw(st.booleans()):
        # Corners of a 4-cube have norm 2, so that every similarity is a multiple of 1/2.
        vectors = rng.choice([-1.0, 1.0], size=(n, 4))
    else:
        vectors = rng.normal(size=(n, 8))
        vectors[rng.integers(0, n, n // 3)] = vectors[rng.integers(0, n, n // 3)]
    return normalize(vectors)


@pytest.mark.parametrize("eps", [0.0, 0.05])
def test_dense_scores_agree_with_the_reference_vectors(vectors_dir: Path, eps: float) -> None:
    reference = np.load(vectors_dir / "contextual_rerank.npz")
    prefix = "k4_eps0_" if eps == 0 else "k4_eps005_"
    scores = dense_contextual_scores(reference["S"], 4, 0.1, eps)
    np.testing.assert_allclose(scores, reference[f"{prefix}score"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("k", "eps"), [(3, 0.0), (4, 0.1), (50, 0.0)])
def test_dense_scores_agree_with_sets_of_neighbors(k: int, eps: float) -> None:
    matrix = similarity_matrix(normalize(np.random.default_rng(3).normal(size=(12, 5))))
    slow = [[slow_score(matrix, i, j, k, 0.3, eps) for j in range(12)] for i in range(12)]
    np.testing.assert_allclose(dense_contextual_scores(matrix, k, 0.3, eps), slow, atol=1e-12)


@settings(max_examples=150, deadline=None)
@given(galleries(), st.integers(2, 33), st.sampled_from([0.0, 0.05, 0.5]), st.booleans())
def test_a_query_scores_as_in_the_dense_formula(gallery, k, eps, is_duplicate) -> None:
    query = gallery[0] if is_duplicate else normalize(gallery[:1] + gallery[-1:] * 0.5 + 0.01)[0]
    fast = score_gallery(query[None], gallery, k, 0.3, eps)[0]
    np.testing.assert_allclose(fast, dense_query_scores(query, gallery, k, 0.3, eps), atol=1e-6)


@settings(max_examples=100, deadline=None)
@given(galleries(), st.integers(2, 32), st.sampled_from([0.0, 0.05]))
def test_leave_one_out_is_the_dense_formula_on_the_gallery(gallery, k, eps) -> None:
    fast = score_gallery(gallery, gallery, k, 0.2, eps, leave_one_out=True)
    dense = dense_contextual_scores(similarity_matrix(gallery), k, 0.2, eps)
    off_diagonal = ~np.eye(len(gallery), dtype=bool)
    np.testing.assert_allclose(fast[off_diagonal], dense[off_diagonal], atol=1e-6)


def test_ignoring_the_query_in_its_neighbors_lists_is_noticed() -> None:
    """Negative control: k-th similarities that the query cannot change differ from the dense formula."""
    rng = np.random.default_rng(0)
    gallery = normalize(rng.normal(size=(40, 6)))
    query = normalize(gallery[:1] + 0.1 * rng.normal(size=(1, 6)))
    similarities = exact_similarities(query, gallery[None])
    order = np.argsort(-similarities, axis=1)
    kth = kth_similarities(neighbor_lists(similarity_matrix(gallery))[1], 4)
    frozen = np.repeat(kth[..., 1:], 2, axis=-1)
    ranked = np.take_along_axis(similarities, order, axis=1)
    wrong, _ = contextual_scores(ranked, gallery[order], frozen[order], k=4, beta=0.3)
    right = dense_query_scores(query[0], gallery, 4, 0.3, 0.0)[order]
    assert np.abs(wrong - right).max() > 1e-3


def test_removed_items_leave_the_neighbor_lists_as_if_they_were_not_in_the_gallery() -> None:
    gallery = normalize(np.random.default_rng(4).normal(size=(30, 5)))
    ids, lists = neighbor_lists(similarity_matrix(gallery))
    smaller = kth_similarities(neighbor_lists(similarity_matrix(gallery[6:]))[1], 5)
    np.testing.assert_array_equal(kth_similarities(lists[6:], 5, ids[6:] < 6), smaller)


@settings(max_examples=50, deadline=None)
@given(galleries(), st.integers(2, 20))
def test_a_query_scores_the_same_alone_and_in_a_batch(gallery, k) -> None:
    queries = normalize(np.random.default_rng(1).normal(size=(7, gallery.shape[1])))
    batch = score_gallery(queries, gallery, k, 0.3, 0.05)
    alone = np.concatenate([score_gallery(query[None], gallery, k, 0.3, 0.05) for query in queries])
    np.testing.assert_array_equal(batch, alone)


def test_embeddings_of_the_neighborhood_are_enough() -> None:
    rng = np.random.default_rng(6)
    gallery, queries = normalize(rng.normal(size=(60, 8))), normalize(rng.normal(size=(4, 8)))
    similarities = exact_similarities(queries, np.broadcast_to(gallery, (4, 60, 8)))
    order = np.argsort(-similarities, axis=1)
    ranked = np.take_along_axis(similarities, order, axis=1)
    kth = kth_similarities(neighbor_lists(similarity_matrix(gallery))[1][order], 6)
    width = int(neighborhood(ranked, 6, 0.1).sum(axis=1).max())
    whole = contextual_scores(ranked, gallery[order], kth, k=6, beta=0.3, eps=0.1)
    less = contextual_scores(ranked, gallery[order[:, :width]], kth[:, :width], k=6, beta=0.3, eps=0.1)
    assert 5 <= width < 60
    np.testing.assert_array_equal(less, whole)
    with pytest.raises(ValueError, match=f"a neighborhood has {width} candidates, got embeddings of 4"):
        contextual_scores(ranked, gallery[order[:, :4]], kth[:, :4], k=6, beta=0.3, eps=0.1)


@pytest.mark.parametrize("k", [1, 34])
def test_a_neighborhood_that_the_lists_cannot_hold_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match="between 2 and 33"):
        kth_similarities(np.zeros((3, 32), np.float32), k)


@given(st.integers(2, 30), st.integers(2, 12), st.integers(0, 9))
@settings(max_examples=30, deadline=None)
def test_candidates_of_any_search_are_scored_as_in_a_gallery_of_them(n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    gallery, query = normalize(rng.normal(size=(n, 6))), normalize(rng.normal(size=(1, 6)))[0]
    expected = dense_query_scores(query, gallery, k, 0.3, 0.05)
    # Rows of length 1 are normalized once more, which may change their last bit. Lengths do not count.
    for length in (1.0, 7.0):
        scores = rerank(length * query, gallery / length, k=k, beta=0.3)
        np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_the_defaults_of_reranking_are_those_of_a_gallery_s_searches() -> None:
    own = signature(rerank).parameters
    chosen = Rerank()
    assert {name: own[name].default for name in ("k", "beta", "eps")} == chosen.model_dump(
        include={"k", "beta", "eps"}
    )


@pytest.mark.parametrize(
    ("query", "candidates"), [((2, 3), (4, 3)), ((3,), (4, 2)), ((3,), (3,)), ((3,), (2, 4, 3))]
)
def test_candidates_of_another_shape_are_refused(query: tuple[int, ...], candidates: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected \(d,\) and \(m, d\)"):
        rerank(np.ones(query), np.ones(candidates))


CLOSE = {"k": 6, "beta": 0.3, "eps": 0.015}


def close_gallery() -> FloatArray:
    """Items that lie in most of each other's neighborhoods, as of a weak model; four of them are copies."""
    rng = np.random.default_rng(0)
    gallery = normalize(np.round(3.0 + 0.35 * rng.normal(size=(90, 16)), 1))
    gallery[40:43] = gallery[7]
    return gallery


def close_scores(rows: Sequence[int], **settings: float) -> FloatArray:
    """Scores in gallery order for some items, which leave out themselves and two of their neighbors."""
    gallery = close_gallery()
    ids, lists = neighbor_lists(similarity_matrix(gallery))
    gone = np.array([[row, *ids[row, 1:3]] for row in rows])
    similarities = similarity_matrix(gallery)[rows]
    np.put_along_axis(similarities, gone, -np.inf, axis=1)
    order = np.argsort(-similarities, axis=1, kind="stable")
    removed = (ids[order][..., None] == gone[:, None, None]).any(axis=-1)
    kth = kth_similarities(lists[order], CLOSE["k"], removed)
    ranked = np.take_along_axis(similarities, order, axis=1)
    scores, _ = contextual_scores(ranked, gallery, kth, places=order, **{**CLOSE, **settings})
    unranked = np.empty_like(scores)
    np.put_along_axis(unranked, order, scores, axis=1)
    return unranked


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of items that asked for their neighborhood together, one number each time."""
    told: list[int] = []

    def spy(vectors, least, asked, asking=None):
        told.append(0 if asking is None else len(asking))
        return reaches(vectors, least, asked, asking)

    monkeypatch.setattr(reranking, "reaches", spy)
    return told


@pytest.mark.parametrize("eps", [0.0, 0.015, 0.05, 4.0])
def test_wide_neighborhoods_that_are_compared_once_score_as_each_alone(
    counted: list[int], eps: float
) -> None:
    """To the last bit, whatever a query leaves out."""
    rows = list(range(0, 60, 2))
    together = close_scores(rows, eps=eps)
    assert (len(counted), counted[0] > 90) == (1, eps > 0.0)
    alone = np.concatenate([close_scores([row], eps=eps) for row in rows])
    assert not any(counted[1:])
    assert together.tobytes() == alone.tobytes()


def test_wide_neighborhoods_that_are_compared_once_score_as_in_the_dense_formula(counted: list[int]) -> None:
    gallery, rows = close_gallery(), list(range(30))
    for row, scores in zip(rows, close_scores(rows), strict=True):
        left = np.flatnonzero(np.isfinite(scores))
        expected = dense_query_scores(gallery[row], gallery[left], **CLOSE)
        np.testing.assert_allclose(scores[left], expected, atol=1e-6)
    assert counted[0] > 90


def test_neighborhoods_that_are_not_those_of_a_query_s_own_radius_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: a table with one radius an item, that of the first query."""
    rows = list(range(30))
    right = close_scores(rows)

    def one_radius(vectors, least, asked, asking):
        first, of_item = np.unique(asking, return_index=True, return_inverse=True)[1:]
        return reaches(vectors, least[:, first[of_item]], asked, asking)

    monkeypatch.setattr(reranking, "reaches", one_radius)
    assert close_scores(rows).tobytes() != right.tobytes()

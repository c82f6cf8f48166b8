"""Scorer: every score equals the dense formula on the gallery and the query, on all ways through it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.pipelines import CONTEXTUAL
from tests.service.types import WriteGallery
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.views.selection import Selection
from vicinal.models.similarity import exact_similarities, normalize, reaches
from vicinal.refine.reranking import dense_contextual_scores
from vicinal.service.search.pipeline import Pipeline, Rerank
from vicinal.service.search.scorer import ScoredCandidates, Scorer

NOBODY = np.empty(0, np.int64)
OFF = Pipeline(rerank=Rerank(method="off"))
K5 = Pipeline(rerank=Rerank(k=5, beta=0.4))
SLACK = Pipeline(rerank=Rerank(k=6, beta=0.3, eps=0.1))


def random_unit(n: int, dim: int = 8, seed: int = 0) -> FloatArray:
    return normalize(np.random.default_rng(seed).normal(size=(n, dim)))


def clustered(n: int, n_centers: int, seed: int = 0, spread: float = 0.3) -> FloatArray:
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_centers, 8))
    return normalize(centers[rng.integers(0, n_centers, n)] + spread * rng.normal(size=(n, 8)))


def crowd(n_duplicates: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """A gallery of 3 items, many copies of one further away and random ones, and queries near the 3."""
    rng = np.random.default_rng(seed)
    center = rng.normal(size=8)
    few = normalize(center + 0.02 * rng.normal(size=(3, 8)))
    copies = np.repeat(normalize(center[None] + 0.2 * rng.normal(size=(1, 8))), n_duplicates, axis=0)
    gallery = np.concatenate([few, copies, random_unit(60, seed=seed + 1)])
    queries = np.concatenate([few[:1], copies[:1], near(few[:2])])
    return gallery[rng.permutation(len(gallery))], queries


def near(vector: FloatArray, seed: int = 9) -> FloatArray:
    return normalize(vector + 0.05 * np.random.default_rng(seed).normal(size=vector.shape))


def dense_scores(query: FloatArray, gallery: FloatArray, pipeline: Pipeline) -> npt.NDArray[np.float64]:
    """Scores of all items of a gallery: the plain formula on S = G + {query}."""
    members = np.concatenate([gallery, query[None]])
    matrix = exact_similarities(members, np.broadcast_to(members, (len(members), *members.shape)))
    np.fill_diagonal(matrix, 1.0)
    rerank = pipeline.rerank
    return dense_contextual_scores(matrix, rerank.k, rerank.beta, rerank.eps)[-1, :-1]


def by_position(scored: ScoredCandidates, row: int = 0) -> dict[int, float]:
    found = scored.positions[row] >= 0
    return dict(zip(scored.positions[row][found].tolist(), scored.scores[row][found].tolist(), strict=True))


def assert_dense(
    scored: ScoredCandidates, queries: FloatArray, gallery: FloatArray, pipeline: Pipeline
) -> None:
    for row, query in enumerate(queries):
        expected = dense_scores(query, gallery, pipeline)
        for position, score in by_position(scored, row).items():
            assert score == pytest.approx(expected[position], abs=1e-6)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 90), seed=st.integers(0, 10**6), pipeline=st.sampled_from([CONTEXTUAL, K5, SLACK]))
def test_every_score_is_the_dense_score(
    write_gallery: WriteGallery, n: int, seed: int, pipeline: Pipeline
) -> None:
    """Galleries smaller than k and of one item among them."""
    gallery = clustered(n, 1 + seed % 9, seed)
    queries = clustered(3, 5, seed + 1)
    scored = Scorer(write_gallery(gallery), pipeline).score(queries, n)
    assert (scored.positions >= 0).all()
    assert_dense(scored, queries, gallery, pipeline)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [CONTEXTUAL, K5, SLACK], ids=lambda one: one.key)
@pytest.mark.parametrize("n_duplicates", [130, 450])
def test_more_exact_duplicates_than_candidates_score_as_the_dense_formula(
    write_gallery: WriteGallery, pipeline: Pipeline, n_duplicates: int
) -> None:
    gallery, queries = crowd(n_duplicates)
    scored = Scorer(write_gallery(gallery), pipeline).score(queries, 100)
    assert_dense(scored, queries, gallery, pipeline)


def test_without_the_crowded_path_duplicates_would_score_wrongly(
    write_gallery: WriteGallery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control of the test above."""
    monkeypatch.setattr(Scorer, "_crowded", lambda _self, found: np.zeros(len(found), dtype=bool))
    gallery, queries = crowd(130)
    scored = Scorer(write_gallery(gallery), K5).score(queries, 100)
    with pytest.raises(AssertionError):
        assert_dense(scored, queries, gallery, K5)


def test_a_neighborhood_that_slack_widens_beyond_the_candidates_is_scored_whole(
    write_gallery: WriteGallery,
) -> None:
    wide = Pipeline(rerank=Rerank(k=4, beta=0.5, eps=0.8))
    gallery, queries = clustered(300, 2, spread=0.15), clustered(2, 2, seed=0, spread=0.1)
    scored = Scorer(write_gallery(gallery), wide).score(queries, 30)
    assert_dense(scored, queries, gallery, wide)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(n=st.integers(2, 80), seed=st.integers(0, 10**6), n_excluded=st.integers(1, 10))
def test_excluded_items_count_as_not_in_the_gallery(
    write_gallery: WriteGallery, n: int, seed: int, n_excluded: int
) -> None:
    rng = np.random.default_rng(seed)
    gallery, query = clustered(n, 4, seed), clustered(1, 4, seed + 1)
    excluded = rng.choice(n, min(n_excluded, n - 1), replace=False)
    kept = np.setdiff1d(np.arange(n), excluded)
    scored = by_position(Scorer(write_gallery(gallery), K5).score(query, n, excluded=[excluded]))
    expected = dense_scores(query[0], gallery[kept], K5)
    assert scored == pytest.approx(dict(zip(kept.tolist(), expected.tolist(), strict=True)), abs=1e-6)


def test_an_item_as_its_own_query_scores_as_if_it_were_not_in_the_gallery(
    write_gallery: WriteGallery,
) -> None:
    gallery = clustered(70, 8)
    scorer = Scorer(write_gallery(gallery), CONTEXTUAL)
    scored = scorer.score(gallery, 69, excluded=[np.array([i]) for i in range(70)])
    for own in range(70):
        expected = dense_scores(gallery[own], np.delete(gallery, own, axis=0), CONTEXTUAL)
        found = by_position(scored, own)
        assert [found[i] for i in range(70) if i != own] == pytest.approx(expected.tolist(), abs=1e-6)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), pipeline=st.sampled_from([CONTEXTUAL, SLACK, OFF]))
def test_a_query_scores_the_same_alone_and_in_a_batch(
    write_gallery: WriteGallery, seed: int, pipeline: Pipeline
) -> None:
    """To the last bit, also past the smallest chunks and beside crowded queries."""
    crowded, among_them = crowd(120, seed)
    gallery = np.concatenate([crowded, clustered(60, 4, seed)])
    queries = np.concatenate([among_them, clustered(36, 4, seed + 1)])
    scorer = Scorer(write_gallery(gallery), pipeline)
    batch = scorer.score(queries, 50)
    for row in range(0, 40, 3):
        alone = scorer.score(queries[row : row + 1], 50)
        assert alone.positions.tobytes() == batch.positions[row : row + 1].tobytes()
        assert alone.scores.tobytes() == batch.scores[row : row + 1].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [CONTEXTUAL, SLACK, OFF])
def test_scores_do_not_depend_on_how_many_are_scored_together(
    write_gallery: WriteGallery, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, widths = clustered(150, 4, 1), []
    scored = {}
    for values in (0, 2**23):
        monkeypatch.setattr("vicinal.service.search.scorer._MOST_VALUES", values)
        monkeypatch.setattr("vicinal.service.search.scorer._CHUNKS_A_THREAD", 1)
        scorer = Scorer(write_gallery(clustered(180, 4)), pipeline)
        nearest = scorer.space.nearest
        monkeypatch.setattr(
            scorer.space, "nearest", lambda few, *rest, n=nearest: widths.append(len(few)) or n(few, *rest)
        )
        scored[values] = scorer.score(queries, 50)
    assert (min(widths), max(widths)) == (15, 75)
    few, many = scored.values()
    assert (few.positions == many.positions).all()
    assert few.scores.tobytes() == many.scores.tobytes()


def test_the_check_for_equal_bits_notices_one_wrong_bit(write_gallery: WriteGallery) -> None:
    """Negative control of the test above."""
    scored = Scorer(write_gallery(random_unit(20)), CONTEXTUAL).score(random_unit(1, seed=3), 20)
    assert np.nextafter(scored.scores, 1.0).tobytes() != scored.scores.tobytes()


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_order_of_the_gallery_does_not_change_a_score(write_gallery: WriteGallery, seed: int) -> None:
    gallery, query = clustered(60, 5, seed), clustered(1, 5, seed + 1)
    order = np.random.default_rng(seed).permutation(60)
    straight = by_position(Scorer(write_gallery(gallery), K5).score(query, 60))
    permuted = by_position(Scorer(write_gallery(gallery[order]), K5).score(query, 60))
    assert {int(order[i]): score for i, score in permuted.items()} == straight


def test_candidates_come_best_first_and_ties_by_position(write_gallery: WriteGallery) -> None:
    gallery = np.repeat(random_unit(5), 3, axis=0)
    scored = Scorer(write_gallery(gallery), K5).score(random_unit(1, seed=2), 15)
    keys = list(zip(-scored.scores[0], -scored.similarities[0], scored.positions[0], strict=True))
    assert keys == sorted(keys)


def test_an_approximate_index_scores_its_candidates_exactly(write_gallery: WriteGallery) -> None:
    """Where it finds the whole neighborhood, the scores are those of the flat index."""
    gallery, queries = clustered(400, 8), clustered(3, 8, seed=6)
    exact = Scorer(write_gallery(gallery), CONTEXTUAL).score(queries, 10)
    approximate = Scorer(write_gallery(gallery, index="SQ8"), CONTEXTUAL).score(queries, 10)
    np.testing.assert_array_equal(approximate.scores, exact.scores)


def close_together(n: int, seed: int = 0) -> FloatArray:
    """Items of a model that tells little apart: every neighborhood holds hundreds."""
    return normalize(2.5 + 0.3 * np.random.default_rng(seed).normal(size=(n, 8)))


def crowded_searches(n: int) -> tuple[FloatArray, FloatArray, list[npt.NDArray[np.int64]]]:
    """Gallery, queries and what they leave out: items without themselves and others, and strange ones."""
    gallery = close_together(n)
    out = [np.unique([i, *range(i // 5 * 5, i // 5 * 5 + i % 5)]) for i in range(0, 60, 4)]
    return gallery, np.concatenate([gallery[0:60:4], close_together(5, seed=1)]), [*out, *[NOBODY] * 5]


@pytest.fixture
def asked_together(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each comparison of neighborhoods, whether it was made once for several queries."""
    told: list[bool] = []

    def spy(vectors, least, asked, asking=None):
        told.append(asking is not None)
        return reaches(vectors, least, asked, asking)

    monkeypatch.setattr("vicinal.refine.reranking.reaches", spy)
    return told


@pytest.mark.parametrize("pipeline", [CONTEXTUAL, SLACK], ids=lambda one: one.key)
@pytest.mark.parametrize("index", ["Flat", "SQ8"])
@pytest.mark.parametrize("selection", [None, Selection(np.arange(0, 700, 3))])
def test_crowded_queries_score_the_same_alone_and_together(
    write_gallery: WriteGallery,
    asked_together: list[bool],
    pipeline: Pipeline,
    index: str,
    selection: Selection | None,
) -> None:
    gallery, queries, excluded = crowded_searches(700)
    scorer = Scorer(write_gallery(gallery, index=index), pipeline)
    together = scorer.score(queries, 100, excluded=excluded, selection=selection)
    assert any(asked_together) == (selection is None)
    asked_together.clear()
    for row in range(len(queries)):
        part = slice(row, row + 1)
        alone = scorer.score(queries[part], 100, excluded=excluded[part], selection=selection)
        assert alone.positions.tobytes() == together.positions[part].tobytes()
        assert alone.scores.tobytes() == together.scores[part].tobytes()
        assert alone.contextual.tobytes() == together.contextual[part].tobytes()
    assert not any(asked_together)


@pytest.mark.parametrize(("n", "widths"), [(380, [100, 200, 400]), (700, [100, 200, 400])])
def test_neighborhoods_are_cut_where_they_are_for_one_query(
    write_gallery: WriteGallery, monkeypatch: pytest.MonkeyPatch, n: int, widths: list[int]
) -> None:
    monkeypatch.setattr("vicinal.service.search.scorer._MOST_NEIGHBORS", 256)
    gallery, queries, excluded = crowded_searches(n)
    scorer = Scorer(write_gallery(gallery), Pipeline(rerank=Rerank(k=6, beta=0.3, eps=1.0)))
    asked, nearest = set(), scorer.space.nearest
    monkeypatch.setattr(scorer.space, "nearest", lambda few, n, *rest: asked.add(n) or nearest(few, n, *rest))
    together = scorer.score(queries, 100, excluded=excluded)
    assert sorted(asked) == widths
    alone = [scorer.score(queries[i : i + 1], 100, excluded=excluded[i : i + 1]) for i in range(len(queries))]
    assert together.scores.tobytes() == b"".join(one.scores.tobytes() for one in alone)

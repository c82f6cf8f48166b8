"""Scorer with refinement: scores equal those of a plain loop that refines everything and compares all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.types import WriteGallery
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.views.refined_snapshot import RefinedSnapshot, write_refined
from vicinal.indexer.views.refined_view import RefinedView
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.bundle import ModelBundle
from vicinal.models.similarity import exact_similarities, normalize
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.refine.reranking import dense_contextual_scores
from vicinal.service.search.item_spaces import open_refiner
from vicinal.service.search.pipeline import Pipeline, Refine, Rerank
from vicinal.service.search.scorer import ScoredCandidates, Scorer

DIM = 24
SIDES = ["gallery", "query", "both"]
OFF, CONTEXTUAL = Rerank(method="off"), Rerank(k=4, beta=0.4)


def clustered(n: int, n_centers: int = 6, seed: int = 0) -> FloatArray:
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(n_centers).normal(size=(n_centers, DIM))
    return normalize(centers[rng.integers(0, n_centers, n)] + 0.6 * rng.normal(size=(n, DIM)))


@pytest.fixture(scope="module", params=[{}, {"form": "gated", "level": True}], ids=["plain", "level"])
def refiner(with_refiner: Callable[..., ModelBundle], request: pytest.FixtureRequest) -> ContextRefiner:
    return ContextRefiner(with_refiner(**request.param))


@dataclass(frozen=True)
class SlowSearch:
    """All of a search by plain loops.

    Attributes:
        refiner: The refiner.
        sides: What is refined.
        rerank: How scores are made.
    """

    refiner: ContextRefiner
    pipeline: Pipeline

    def context_of(self, vector: FloatArray, others: FloatArray) -> list[int]:
        order = np.argsort(-exact_similarities(vector, others), kind="stable")
        return order[: self.refiner.n_neighbors].tolist()

    def refined(self, vector: FloatArray, others: FloatArray, *, as_query: bool = False) -> FloatArray:
        context = self.context_of(vector, others)
        radii = [self.radii_of(place, others) for place in context] if as_query else None
        found = self.refiner.attend(
            vector[None],
            others[context][None],
            radii=None if radii is None else [radii],
            n_steps=self.pipeline.refine.steps,
        )
        return found.queries[0]

    def radii_of(self, place: int, gallery: FloatArray) -> list[float]:
        """Similarity of an item to its 1st, 4th and 8th nearest others, or to the last there is."""
        others = np.delete(gallery, place, axis=0)
        ranked = np.sort(exact_similarities(gallery[place], others))[::-1].tolist()
        return [ranked[min(number, len(ranked)) - 1] if ranked else 0.0 for number in (1, 4, 8)]

    def scores(self, query: FloatArray, gallery: FloatArray) -> npt.NDArray[np.float64]:
        """Final score of every item."""
        items, matched, refine = gallery, query, self.pipeline.refine
        if refine.of_gallery:
            everyone = range(len(gallery))
            items = np.stack([self.refined(gallery[i], np.delete(gallery, i, axis=0)) for i in everyone])
        if refine.of_query:
            matched = self.refined(query, gallery, as_query=True)
        if self.pipeline.rerank.method == "off":
            return np.exp(2.0 * exact_similarities(matched, items).astype(np.float64) - 2.0)
        members = np.concatenate([items, matched[None]])
        matrix = exact_similarities(members, np.broadcast_to(members, (len(members), *members.shape)))
        np.fill_diagonal(matrix, 1.0)
        rerank = self.pipeline.rerank
        return dense_contextual_scores(matrix, rerank.k, rerank.beta, rerank.eps)[-1, :-1]


def pipeline_of(refiner: ContextRefiner, sides: str, rerank: Rerank = OFF, steps: int = 3) -> Pipeline:
    return Pipeline(refine=Refine(sides=sides, steps=steps, refiner=refiner.fingerprint), rerank=rerank)


@pytest.fixture(scope="module")
def write_refined_gallery(write_gallery: WriteGallery, refiner: ContextRefiner) -> WriteGallery:
    """Writes a snapshot whose items are refined in some numbers of steps."""

    def write(embeddings: FloatArray, steps: tuple[int, ...] = (3,), index: str = "auto") -> Snapshot:
        snapshot = write_gallery(embeddings, index=index, bundle=refiner.bundle.fingerprint)
        for n_steps in steps:
            write_refined(snapshot, refiner, n_steps)
        return snapshot

    return write


def scorer_of(gallery: Snapshot | GalleryView, pipeline: Pipeline, refiner: ContextRefiner) -> Scorer:
    snapshot = gallery if isinstance(gallery, Snapshot) else gallery.snapshot
    return Scorer(gallery, pipeline, open_refiner(pipeline, refiner, "shoes", snapshot))


def by_position(scored: ScoredCandidates, row: int = 0) -> dict[int, float]:
    found = scored.positions[row] >= 0
    return dict(zip(scored.positions[row][found].tolist(), scored.scores[row][found].tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("rerank", [OFF, CONTEXTUAL], ids=["plain", "contextual"])
@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("n", [1, 3, 60])
def test_every_score_is_that_of_the_slow_search(
    write_refined_gallery: WriteGallery, refiner: ContextRefiner, sides: str, rerank: Rerank, n: int
) -> None:
    """A gallery of one item and one with fewer than k among them."""
    gallery, queries, pipeline = clustered(n), clustered(3, seed=1), pipeline_of(refiner, sides, rerank)
    scored = scorer_of(write_refined_gallery(gallery), pipeline, refiner).score(queries, n)
    slow = SlowSearch(refiner, pipeline)
    for row, query in enumerate(queries):
        expected = dict(enumerate(slow.scores(query, gallery).tolist()))
        assert by_position(scored, row) == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("rerank", [OFF, CONTEXTUAL], ids=["plain", "contextual"])
@pytest.mark.parametrize("sides", SIDES)
def test_an_item_as_its_own_query_scores_as_if_it_had_never_been_in_the_gallery(
    write_refined_gallery: WriteGallery, refiner: ContextRefiner, sides: str, rerank: Rerank
) -> None:
    """Neither found nor a neighbor, nor in the context that any other item was refined with."""
    gallery, pipeline = clustered(50), pipeline_of(refiner, sides, rerank)
    scorer, slow = scorer_of(write_refined_gallery(gallery), pipeline, refiner), SlowSearch(refiner, pipeline)
    own = np.array([4, 17, 33])
    scored = scorer.score(gallery[own], 49, excluded=list(own[:, None]), items=own)
    for row, position in enumerate(own):
        others = np.delete(np.arange(50), position)
        expected = dict(zip(others.tolist(), slow.scores(gallery[position], gallery[others]), strict=True))
        assert by_position(scored, row) == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), n_excluded=st.integers(1, 12), sides=st.sampled_from(SIDES))
def test_excluded_items_count_as_not_in_the_gallery(
    write_refined_gallery: WriteGallery, refiner: ContextRefiner, seed: int, n_excluded: int, sides: str
) -> None:
    gallery, query = clustered(30, seed=seed), clustered(1, seed=seed + 1)
    excluded = np.random.default_rng(seed).choice(30, n_excluded, replace=False)
    kept = np.setdiff1d(np.arange(30), excluded)
    pipeline = pipeline_of(refiner, sides, CONTEXTUAL)
    scored = scorer_of(write_refined_gallery(gallery), pipeline, refiner).score(
        query, 30, excluded=[excluded]
    )
    expected = SlowSearch(refiner, pipeline).scores(query[0], gallery[kept])
    assert by_position(scored) == pytest.approx(dict(zip(kept.tolist(), expected, strict=True)), abs=1e-6)


def test_leaving_refined_items_as_they_are_is_noticed(
    write_refined_gallery: WriteGallery, refiner: ContextRefiner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control of the two tests above: the item that is left out still refines the others."""
    monkeypatch.setattr(RefinedView, "_users_of", lambda _self, _positions: np.empty(0, np.int64))
    gallery, pipeline = clustered(50), pipeline_of(refiner, "both")
    scorer, own = scorer_of(write_refined_gallery(gallery), pipeline, refiner), np.array([4])
    scored = scorer.score(gallery[own], 49, excluded=[own], items=own)
    expected = SlowSearch(refiner, pipeline).scores(gallery[4], np.delete(gallery, 4, axis=0))
    found = by_position(scored)
    assert [found[i] for i in range(50) if i != 4] != pytest.approx(expected.tolist(), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("index", ["auto", "IVF4,Flat"])
def test_an_item_as_a_query_is_refined_as_its_stored_embedding_was(
    write_refined_gallery: WriteGallery, refiner: ContextRefiner, index: str
) -> None:
    """Also where the index is approximate, and would find another context."""
    gallery, pipeline = clustered(200), pipeline_of(refiner, "both")
    snapshot, own = write_refined_gallery(gallery, index=index), np.arange(0, 200, 7)
    stored = RefinedSnapshot.open(snapshot, refiner.fingerprint, 3)
    scored = scorer_of(snapshot, pipeline, refiner).score(
        gallery[own], 5, excluded=list(own[:, None]), items=own
    )
    # A level shortens queries and turns none.
    lengths = np.linalg.norm(scored.queries, axis=1, keepdims=True)
    assert lengths.max() <= 1.0 + 1e-6
    assert scored.queries == pytest.approx(np.asarray(stored.embeddings[own]) * lengths, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("rerank", [OFF, CONTEXTUAL], ids=lambda one: one.method)
@pytest.mark.parametrize("sides", SIDES)
def test_a_query_scores_the_same_alone_and_in_a_batch(
    write_refined_gallery: WriteGallery, refiner: ContextRefiner, sides: str, rerank: Rerank
) -> None:
    queries, pipeline = clustered(40, seed=5), pipeline_of(refiner, sides, rerank)
    scorer = scorer_of(write_refined_gallery(clustered(150)), pipeline, refiner)
    batch = scorer.score(queries, 20)
    for row in range(0, 40, 7):
        alone = scorer.score(queries[row : row + 1], 20)
        assert alone.positions.tobytes() == batch.positions[row : row + 1].tobytes()
        assert alone.scores.tobytes() == batch.scores[row : row + 1].tobytes()
        assert alone.initial_similarities.tobytes() == batch.initial_similarities[row : row + 1].tobytes()

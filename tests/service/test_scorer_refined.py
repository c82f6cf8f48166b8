"""Scorer with refinement: scores equal those of a plain loop that refines everything and compares all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from indexer.refined_snapshot import write_refined
from indexer.snapshot import Snapshot
from indexer.view import GalleryView
from models.bundle import ModelBundle
from models.similarity import FloatArray, exact_similarities, normalize
from refine.context_refiner import ContextRefiner
from refine.reranking import dense_contextual_scores
from service.pipeline import Pipeline, Refine, Rerank
from service.refinement import open_refinement
from service.scorer import ScoredCandidates, Scorer

WriteGallery = Callable[..., Snapshot]
DIM = 24
SIDES = ["gallery", "query", "both"]
OFF, CONTEXTUAL = Rerank(method="off"), Rerank(k=4, beta=0.4)


def clustered(n: int, n_centers: int = 6, seed: int = 0) -> FloatArray:
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(n_centers).normal(size=(n_centers, DIM))
    return normalize(centers[rng.integers(0, n_centers, n)] + 0.6 * rng.normal(size=(n, DIM)))


@pytest.fixture(scope="module")
def refiner(refiner_bundle: ModelBundle) -> ContextRefiner:
    return ContextRefiner(refiner_bundle)


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

    def context_of(self, vector: FloatArray, others: FloatArray) -> FloatArray:
        order = np.argsort(-exact_similarities(vector, others), kind="stable")
        return others[order[: self.refiner.n_neighbors]]

    def refined(self, vector: FloatArray, others: FloatArray) -> FloatArray:
        context = self.context_of(vector, others)
        steps = self.refiner.refine(vector[None], context[None], n_steps=self.pipeline.refine.steps)
        return steps[0, -1]

    def scores(self, query: FloatArray, gallery: FloatArray) -> npt.NDArray[np.float64]:
        """Final score of every item."""
        items, matched, refine = gallery, query, self.pipeline.refine
        if refine.of_gallery:
            everyone = range(len(gallery))
            items = np.stack([self.refined(gallery[i], np.delete(gallery, i, axis=0)) for i in everyone])
        if refine.of_query:
            matched = self.refined(query, gallery)
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
    return Scorer(gallery, pipeline, open_refinement(pipeline, refiner, "shoes", snapshot))


def by_position(scored: ScoredCandidates, row: int = 0) -> dict[int, float]:
    found = scored.positions[row] >= 0
    return dict(zip(scored.positions[row][found].tolist(), scored.scores[row][found].tolist(), strict=True))


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

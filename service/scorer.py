"""Scorer: from embeddings to the scored candidates of one gallery version.

The matcher and the calibrator run this very code; a threshold is only worth something if both do.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from indexer.snapshot import Snapshot
from models.similarity import FloatArray, exact_similarities
from refine.reranking import contextual_scores, kth_similarities, neighborhood_radius
from service.pipeline import Pipeline

__all__ = ["ScoredCandidates", "Scorer", "similarity_score"]

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]
Element = TypeVar("Element", bound=np.generic)

# Candidates that are scored exactly when fewer are asked for: a match must not depend on the limit.
_LEAST_CANDIDATES = 100
# An approximate index gets this many times the candidates, so that exact re-scoring has a choice.
_OVERSAMPLING = 4
# Largest neighborhood that is compared pair by pair: a cluster of more exact duplicates is cut here.
_MOST_NEIGHBORS = 1024
_CHUNK = 32
_NOBODY: Positions = np.empty(0, np.int64)


@dataclass(frozen=True)
class ScoredCandidates:
    """Candidates of a batch of queries, best first, ties by similarity and then by position.

    Attributes:
        positions: (B, n) positions in the gallery, -1 for padding.
        scores: (B, n) final scores in [0, 1], -inf for padding.
        similarities: (B, n) exact cosine similarities, -inf for padding.
        contextual: (B, n) contextual similarities in [0, 1]; zeros when re-ranking is off.
        seconds: Time by stage: search, rescore, rerank.
    """

    positions: Positions
    scores: Floats
    similarities: FloatArray
    contextual: Floats
    seconds: dict[str, float] = field(default_factory=dict)


class Scorer:
    """Scores queries against one snapshot.

    Args:
        snapshot: The gallery version.
        pipeline: How scores are made.
    """

    def __init__(self, snapshot: Snapshot, pipeline: Pipeline) -> None:
        self.snapshot = snapshot
        self.pipeline = pipeline

    def score(
        self,
        queries: FloatArray,
        n_candidates: int,
        *,
        excluded: Sequence[Positions] | None = None,
    ) -> ScoredCandidates:
        """Fetch, re-score and re-rank the candidates of each query.

        A query scores the same alone and in any batch.

        Args:
            queries: (B, d) float32, L2-normalized.
            n_candidates: Candidates returned a query; fewer where the gallery is smaller.
            excluded: For each query, positions that count as not in the gallery: neither candidates nor
                neighbors of candidates. For a query that is an item of the gallery, its own position.
        """
        everyone = [_NOBODY] * len(queries) if excluded is None else list(excluded)
        chunks = [
            self._score_chunk(
                queries[start : start + _CHUNK],
                n_candidates,
                everyone[start : start + _CHUNK],
            )
            for start in range(0, len(queries), _CHUNK)
        ]
        return _concatenate(chunks, n_candidates)

    def _score_chunk(
        self, queries: FloatArray, n_candidates: int, excluded: list[Positions]
    ) -> ScoredCandidates:
        clock = _Clock()
        n_wanted = max(n_candidates, _LEAST_CANDIDATES)
        positions, similarities, embeddings = self._nearest(queries, n_wanted, excluded, clock)
        crowded = self._crowded(similarities)
        scored = self._rerank(positions, similarities, embeddings, excluded, n_candidates, clock)
        if not crowded.any():
            return scored
        # Many items at the same distance: these queries need more candidates to be scored exactly.
        rows = [
            self._score_crowded(queries[i], n_candidates, 2 * n_wanted, excluded[i])
            if crowded[i]
            else _row(scored, i)
            for i in range(len(queries))
        ]
        return _concatenate(rows, n_candidates, scored.seconds)

    def _score_crowded(
        self, query: FloatArray, n_candidates: int, n_wanted: int, excluded: Positions
    ) -> ScoredCandidates:
        clock = _Clock()
        while True:
            found = self._nearest(query[None], n_wanted, [excluded], clock)
            if n_wanted >= _MOST_NEIGHBORS or not self._crowded(found[1]).any():
                return self._rerank(*found, [excluded], n_candidates, clock)
            n_wanted *= 2

    def _nearest(
        self, queries: FloatArray, n_wanted: int, excluded: list[Positions], clock: _Clock
    ) -> tuple[Positions, FloatArray, FloatArray]:
        """The n_wanted most similar items of each query, re-scored exactly, most similar first."""
        index = self.snapshot.index
        n_fetched = n_wanted * (1 if index.is_exact else _OVERSAMPLING)
        n_fetched = min(len(self.snapshot), n_fetched + max(len(out) for out in excluded))
        found = index.search(queries, n_fetched)
        clock.lap("search")
        embeddings = np.asarray(self.snapshot.embeddings[found])
        similarities = exact_similarities(queries, embeddings)
        out = np.stack([np.isin(row, gone) for row, gone in zip(found, excluded, strict=True)])
        similarities[out | (found < 0)] = -np.inf
        order = np.lexsort((found, -similarities), axis=1)[:, :n_wanted]
        positions = np.take_along_axis(found, order, axis=1)
        similarities = np.take_along_axis(similarities, order, axis=1)
        # Whole rows at a time: take_along_axis would gather every number on its own.
        embeddings = embeddings[np.arange(len(queries))[:, None], order]
        clock.lap("rescore")
        return np.where(np.isfinite(similarities), positions, -1), similarities, embeddings

    def _crowded(self, similarities: FloatArray) -> npt.NDArray[np.bool_]:
        """Whether the last candidate still lies in the query's neighborhood, so that it may be cut short."""
        rerank, width = self.pipeline.rerank, similarities.shape[1]
        if rerank.method == "off" or width >= len(self.snapshot) or width < rerank.k:
            return np.zeros(len(similarities), dtype=bool)
        radius = neighborhood_radius(similarities, rerank.k, rerank.eps)
        return np.isfinite(similarities[:, -1]) & (similarities[:, -1] >= radius)

    def _rerank(
        self,
        positions: Positions,
        similarities: FloatArray,
        embeddings: FloatArray,
        excluded: list[Positions],
        n_candidates: int,
        clock: _Clock,
    ) -> ScoredCandidates:
        rerank = self.pipeline.rerank
        if rerank.method == "off":
            scores = similarity_score(similarities)
            contextual = np.zeros_like(scores)
        else:
            kth = self._kth_similarities(positions, excluded)
            scores, contextual = contextual_scores(
                similarities, embeddings, kth, k=rerank.k, beta=rerank.beta, eps=rerank.eps
            )
        order = np.lexsort((positions, -similarities, -scores), axis=1)[:, :n_candidates]
        ranked = ScoredCandidates(
            positions=np.take_along_axis(positions, order, axis=1),
            scores=np.take_along_axis(scores, order, axis=1),
            similarities=np.take_along_axis(similarities, order, axis=1),
            contextual=np.take_along_axis(contextual, order, axis=1),
            seconds=clock.seconds,
        )
        clock.lap("rerank")
        return ranked

    def _kth_similarities(self, positions: Positions, excluded: list[Positions]) -> FloatArray:
        lists = np.asarray(self.snapshot.neighbor_similarities[positions])
        removed = None
        if any(len(out) for out in excluded):
            ids = self.snapshot.neighbor_ids[positions]
            removed = np.stack([np.isin(row, out) for row, out in zip(ids, excluded, strict=True)])
        return kth_similarities(lists, self.pipeline.rerank.k, removed)


def similarity_score(similarities: npt.ArrayLike, beta: float = 0.0) -> Floats:
    """Score of a pair without contextual similarity: `(1 - beta) exp(2 s - 2)`; 0 stands at -inf."""
    s = np.asarray(similarities, dtype=np.float64)
    return np.where(np.isfinite(s), (1.0 - beta) * np.exp(2.0 * s - 2.0), -np.inf)


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {"search": 0.0, "rescore": 0.0, "rerank": 0.0}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] += now - self._last
        self._last = now


def _row(scored: ScoredCandidates, i: int) -> ScoredCandidates:
    one = slice(i, i + 1)
    return ScoredCandidates(
        scored.positions[one], scored.scores[one], scored.similarities[one], scored.contextual[one]
    )


def _concatenate(
    parts: Sequence[ScoredCandidates], width: int, seconds: dict[str, float] | None = None
) -> ScoredCandidates:
    width = max((part.positions.shape[1] for part in parts), default=width)
    total = dict(seconds or {"search": 0.0, "rescore": 0.0, "rerank": 0.0})
    for part in parts:
        for stage, spent in part.seconds.items():
            total[stage] += spent
    return ScoredCandidates(
        positions=_stack([part.positions for part in parts], width, np.int64(-1)),
        scores=_stack([part.scores for part in parts], width, np.float64(-np.inf)),
        similarities=_stack([part.similarities for part in parts], width, np.float32(-np.inf)),
        contextual=_stack([part.contextual for part in parts], width, np.float64(0.0)),
        seconds=total,
    )


def _stack(blocks: Sequence[npt.NDArray[Element]], width: int, filling: Element) -> npt.NDArray[Element]:
    stacked = np.full((sum(len(block) for block in blocks), width), filling)
    row = 0
    for block in blocks:
        stacked[row : row + len(block), : block.shape[1]] = block
        row += len(block)
    return stacked

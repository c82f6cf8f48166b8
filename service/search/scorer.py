"""Scorer: from embeddings to the scored candidates of one state of a gallery, for matcher and calibrator."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import FloatArray, Floats, Ints, Mask
from vicinal.indexer.graph.vector_index import n_threads, shared_out
from vicinal.indexer.views.contexts import context_radii, query_contexts
from vicinal.indexer.views.selection import Selection
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import exact_similarities, most_similar
from vicinal.refine.errors import RefinementError
from vicinal.refine.reranking import contextual_scores, neighborhood, neighborhood_radius
from vicinal.service.search.item_spaces import InitialSpace, OpenedRefiner, RefinedItemSpace, is_excluded
from vicinal.service.search.pipeline import Pipeline

Element = TypeVar("Element", bound=np.generic)

# A search decides among this many candidates, however few are asked for: no match depends on the limit.
N_DECIDED_CANDIDATES = 100
# Largest neighborhood that is compared pair by pair: a cluster of more exact duplicates is cut here.
_MOST_NEIGHBORS = 1024
# Queries that a thread scores at a time: as many as leave each thread some chunks, because every chunk costs
# calls for which threads wait for each other. The most are those whose candidates take 32 MiB.
_FEWEST_TOGETHER, _MOST_TOGETHER, _CHUNKS_A_THREAD, _MOST_VALUES = 16, 128, 4, 2**23
_NOBODY: Ints = np.empty(0, np.int64)


@dataclass(frozen=True)
class ScoredCandidates:
    """Candidates of a batch of queries, best first, ties by similarity and then by position."""

    positions: Ints  # (B, n) positions in the gallery, -1 for padding
    scores: Floats  # (B, n) final scores in [0, 1], -inf for padding
    # (B, n) exact cosine similarities of the embeddings that were matched, -inf for padding
    similarities: FloatArray
    contextual: Floats  # (B, n) contextual similarities in [0, 1]; zeros when re-ranking is off
    initial_similarities: FloatArray  # (B, n) the same of the embeddings before refinement
    queries: FloatArray  # (B, d) the embeddings that were searched for: refined where the pipeline says so
    seconds: dict[str, float] = field(default_factory=dict)  # Time by stage: refine, search, rescore, rerank

    def take(self, rows: Ints) -> ScoredCandidates:
        """Candidates of some queries."""
        arrays = {name: value[rows] for name, value in vars(self).items() if name != "seconds"}
        return replace(self, **arrays)

    def without(self, is_gone: Mask, n: int) -> ScoredCandidates:
        """The first n that are left where some are gone, with the same scores."""
        order = np.argsort(is_gone, axis=1, kind="stable")[:, :n]
        at = np.arange(len(order))[:, None], order
        no_more = is_gone[at]
        return replace(
            self,
            positions=np.where(no_more, -1, self.positions[at]),
            scores=np.where(no_more, -np.inf, self.scores[at]),
            similarities=np.where(no_more, np.float32(-np.inf), self.similarities[at]),
            contextual=np.where(no_more, 0.0, self.contextual[at]),
            initial_similarities=np.where(no_more, np.float32(-np.inf), self.initial_similarities[at]),
        )


@dataclass(frozen=True)
class _Nearest:
    """Items of a batch of queries, re-scored exactly, most similar first."""

    queries: FloatArray  # (B, d)
    positions: Ints  # (B, n), -1 for padding
    similarities: FloatArray  # (B, n), -inf for padding
    vectors: FloatArray  # (v, d) embeddings, in no order
    places: Ints  # (B, n) where those of the items stand among them

    def take(self, rows: Mask) -> _Nearest:
        """Items of some queries."""
        arrays = {name: value[rows] for name, value in vars(self).items() if name != "vectors"}
        return replace(self, **arrays)


@dataclass(frozen=True)
class _Limits:
    """Bounds of a search."""

    n_candidates: int  # a query
    n_wanted: int  # a query, scored exactly
    selection: Selection | None  # all items when None

    @property
    def n_most(self) -> int:
        """Most items of a query that are scored exactly: twice as many and so on up to a neighborhood."""
        n = 2 * self.n_wanted
        while n < _MOST_NEIGHBORS:
            n *= 2
        return n


class Scorer:
    """Scores queries against one state of a gallery."""

    def __init__(
        self, gallery: GalleryView | Snapshot, pipeline: Pipeline, refinement: OpenedRefiner | None = None
    ) -> None:
        self.view = gallery if isinstance(gallery, GalleryView) else GalleryView.of(gallery)
        self.pipeline = pipeline
        self.refinement = refinement
        refine = pipeline.refine
        refined = refinement.space if refinement is not None and refine.of_gallery else None
        if refine.sides != "off" and (refinement is None or (refine.of_gallery and refined is None)):
            raise RefinementError(f"pipeline '{pipeline.key}' refines, and no refiner was opened for it")
        self.space = InitialSpace(self.view) if refined is None else RefinedItemSpace(refined.view(self.view))
        # Whether the best of a query are the same among any number of candidates that hold its neighborhood.
        is_exact = refined is None and self.view.snapshot.index.is_exact
        self.is_settled = is_exact and pipeline.rerank.method == "contextual"

    def score(
        self,
        queries: FloatArray,
        n_candidates: int,
        *,
        excluded: Sequence[Ints] | None = None,
        selection: Selection | None = None,
        items: Ints | None = None,
    ) -> ScoredCandidates:
        """Refine each query, and fetch, re-score and re-rank its candidates. A query scores the same in any
        batch, an item with any selection. Queries that are items, (B,), leave themselves out.
        """
        everyone = [_NOBODY] * len(queries) if excluded is None else list(excluded)
        limits = _Limits(n_candidates, max(n_candidates, N_DECIDED_CANDIDATES), selection)
        started = time.perf_counter()
        matched = self._matched(queries, everyone, items)
        spent = time.perf_counter() - started
        parts = [
            slice(*bounds) for bounds in pairwise(_even_bounds(len(queries), queries.shape[1], n_threads()))
        ]
        started = time.perf_counter()
        chunks = shared_out(lambda part: self._score_chunk(matched[part], everyone[part], limits), parts)
        scored = _concatenate(chunks, n_candidates, took=time.perf_counter() - started)
        if self.pipeline.refine.sides == "off":
            return scored
        return replace(
            scored,
            initial_similarities=self._initial_similarities(queries, scored.positions),
            seconds={"refine": spent, **scored.seconds} if self.pipeline.refine.of_query else scored.seconds,
        )

    def _matched(self, queries: FloatArray, excluded: list[Ints], items: Ints | None) -> FloatArray:
        """(B, d) the embeddings to search for."""
        if self.refinement is None or not self.pipeline.refine.of_query or not len(queries):
            return queries
        refiner = self.refinement.refiner
        contexts = query_contexts(self.view, queries, refiner.n_neighbors, excluded, items)
        radii = context_radii(self.view, contexts, excluded) if refiner.has_level else None
        refined = refiner.attend(
            queries,
            self.view.vectors(contexts),
            contexts >= 0,
            radii=radii,
            n_steps=self.pipeline.refine.steps,
        )
        return np.ascontiguousarray(refined.queries)

    def _initial_similarities(self, queries: FloatArray, positions: Ints) -> FloatArray:
        similarities = np.full(positions.shape, -np.inf, np.float32)
        for start in range(0, len(queries), _FEWEST_TOGETHER):
            part = slice(start, start + _FEWEST_TOGETHER)
            similarities[part] = exact_similarities(queries[part], self.view.vectors(positions[part]))
        similarities[positions < 0] = -np.inf
        return similarities

    def _score_chunk(self, queries: FloatArray, excluded: list[Ints], limits: _Limits) -> ScoredCandidates:
        clock = _Clock()
        left, done, parts = [(np.arange(len(queries)), limits.n_wanted)], [], []
        while left:
            rows, n_wanted = left.pop()
            nearest = self._nearest(queries[rows], n_wanted, [excluded[i] for i in rows], clock)
            crowded = self._crowded(nearest.similarities) & (n_wanted < limits.n_most)
            if not crowded.all():
                done.append(rows[~crowded])
                kept = [excluded[i] for i in done[-1]]
                parts.append(self._rerank(nearest.take(~crowded), kept, limits, clock))
            # Many items at the same distance: these queries need more candidates to be scored exactly.
            left += self._wider(rows[crowded], n_wanted, excluded, limits)
        scored = _concatenate(parts, limits.n_candidates, clock.seconds)
        return scored.take(np.argsort(np.concatenate(done)))

    def _wider(
        self, rows: Ints, n_wanted: int, excluded: list[Ints], limits: _Limits
    ) -> list[tuple[Ints, int]]:
        """Queries to search for again, and for how many candidates: twice as many, or all where they are few.

        Those stand together that compare once what their neighborhoods have in common.
        """
        snapshot, is_alone = self.view.snapshot, len(rows) == 1 or limits.selection is not None
        is_alone |= self.pipeline.rerank.method != "contextual"
        are_few = self.is_settled and len(self.view) <= limits.n_most and not is_alone
        n_wanted = limits.n_most if are_few and n_wanted > limits.n_wanted else 2 * n_wanted
        n_values = max(1, min(n_wanted, len(self.view)) * snapshot.manifest.dim)
        n_together = 1 if is_alone else max(1, 2 * _MOST_VALUES // n_values)
        # Which of equally near items an index finds also follows from how many are left out.
        is_cut = n_wanted == limits.n_most < len(self.view)
        n_out = np.array([len(excluded[i]) * is_cut for i in rows])
        groups = [rows[n_out == n] for n in np.unique(n_out)]
        return [(one[i : i + n_together], n_wanted) for one in groups for i in range(0, len(one), n_together)]

    def _nearest(
        self,
        queries: FloatArray,
        n_wanted: int,
        excluded: list[Ints],
        clock: _Clock,
        selection: Selection | None = None,
    ) -> _Nearest:
        """The n_wanted most similar items of each query, re-scored exactly, most similar first."""
        found = self.space.nearest(queries, n_wanted, excluded, selection)
        clock.lap("search")
        out = (found < 0) | is_excluded(found, excluded)
        if found.shape[1] > n_wanted:
            # Most of what an approximate index gives is not among the nearest, and is not copied.
            products = self.space.products(queries, found, excluded)
            products[out] = -np.inf
            kept = np.arange(len(found))[:, None], most_similar(products, n_wanted, queries.shape[1])
            found, out = found[kept], out[kept]
        vectors, places, similarities = self._compared(queries, found, excluded)
        similarities[out] = -np.inf
        nearest = _in_order(_Nearest(queries, found, similarities, vectors, places), n_wanted)
        clock.lap("rescore")
        return nearest

    def _compared(
        self, queries: FloatArray, found: Ints, excluded: list[Ints]
    ) -> tuple[FloatArray, Ints, FloatArray]:
        """(v, d) embeddings, (B, w) where those of each query's items stand, and their exact similarities."""
        are_fixed = isinstance(self.space, InitialSpace) or not any(map(len, excluded))
        if are_fixed and len(found) > 1 and found.shape[1] >= 2 * N_DECIDED_CANDIDATES:
            is_found = np.zeros(self.view.n_positions, bool)
            is_found[found] = True
            items = np.flatnonzero(is_found)
            if len(items) <= 2 * found.shape[1]:
                # As where many items lie close together: queries have found nearly the same ones.
                place_of = np.empty(self.view.n_positions, np.int64)
                place_of[items] = np.arange(len(items))
                vectors, places = self.space.vectors(items[None], [_NOBODY])[0], place_of[found]
                similarities = exact_similarities(queries, vectors[None])
                return vectors, places, similarities[np.arange(len(found))[:, None], places]
        each = self.space.vectors(found, excluded)
        places = np.arange(found.size).reshape(found.shape)
        return each.reshape(found.size, each.shape[-1]), places, exact_similarities(queries, each)

    def _crowded(self, similarities: FloatArray) -> Mask:
        """Tell whether the last candidate lies in the query's neighborhood, so that it may be cut short."""
        rerank, width = self.pipeline.rerank, similarities.shape[1]
        if rerank.method == "off" or width >= len(self.view) or width <= rerank.n_listed:
            return np.zeros(len(similarities), dtype=bool)
        radius = neighborhood_radius(similarities, rerank.k, rerank.eps)
        return np.isfinite(similarities[:, -1]) & (similarities[:, -1] >= radius)

    def _rerank(
        self, nearest: _Nearest, excluded: list[Ints], limits: _Limits, clock: _Clock
    ) -> ScoredCandidates:
        if limits.selection is not None:
            among = self._nearest(nearest.queries, limits.n_wanted, excluded, clock, limits.selection)
            nearest = _united(nearest, among)
        positions, similarities = nearest.positions, nearest.similarities
        scores, contextual = self._scores(nearest, excluded)
        if limits.selection is not None:
            # Items outside were there to make the neighborhoods, and are no candidates.
            outside = ~limits.selection.holds(positions)
            scores = np.where(outside, -np.inf, scores)
            positions = np.where(outside, -1, positions)
            similarities = np.where(outside, np.float32(-np.inf), similarities)
            contextual = np.where(outside, 0.0, contextual)
        order = np.lexsort((positions, -similarities, -scores), axis=1)[:, : limits.n_candidates]
        # Not by take_along_axis, which takes longer than all else here.
        at = np.arange(len(order))[:, None], order
        ranked = ScoredCandidates(
            positions=positions[at],
            scores=scores[at],
            similarities=similarities[at],
            contextual=contextual[at],
            initial_similarities=similarities[at],
            queries=nearest.queries,
        )
        clock.lap("rerank")
        return ranked

    def _scores(self, nearest: _Nearest, excluded: list[Ints]) -> tuple[Floats, Floats]:
        """(B, n) scores, -inf for padding, and (B, n) contextual similarities."""
        rerank, positions, similarities = self.pipeline.rerank, nearest.positions, nearest.similarities
        if rerank.method == "off":
            scores = similarity_score(similarities)
            return scores, np.zeros_like(scores)
        width = int(neighborhood(similarities, rerank.k, rerank.eps).sum(axis=1).max(initial=0))
        kth = self.space.kth_similarities(positions[:, :width], excluded, rerank.k)
        k, beta, eps = rerank.k, rerank.beta, rerank.eps
        return contextual_scores(
            similarities, nearest.vectors, kth, k=k, beta=beta, eps=eps, places=nearest.places
        )


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


def _in_order(nearest: _Nearest, n: int) -> _Nearest:
    """The n most similar items of each query, ties by position."""
    order = np.lexsort((nearest.positions, -nearest.similarities), axis=1)[:, :n]
    at = np.arange(len(order))[:, None], order
    similarities, positions, places = nearest.similarities[at], nearest.positions[at], nearest.places[at]
    kept = np.where(np.isfinite(similarities), positions, -1)
    return _Nearest(nearest.queries, kept, similarities, nearest.vectors, places)


def _united(first: _Nearest, second: _Nearest) -> _Nearest:
    """The items of both, each once."""
    again = np.stack([np.isin(b, a) for a, b in zip(first.positions, second.positions, strict=True)])
    similarities = np.where(again, np.float32(-np.inf), second.similarities)
    both = _Nearest(
        first.queries,
        np.concatenate([first.positions, second.positions], axis=1),
        np.concatenate([first.similarities, similarities], axis=1),
        np.concatenate([first.vectors, second.vectors]),
        np.concatenate([first.places, second.places + len(first.vectors)], axis=1),
    )
    return _in_order(both, both.positions.shape[1])


def _even_bounds(n: int, dim: int, threads: int) -> list[int]:
    """Bounds of chunks of n queries, all of about one size, to be shared out to threads."""
    most = min(_MOST_TOGETHER, max(_FEWEST_TOGETHER, _MOST_VALUES // (N_DECIDED_CANDIDATES * dim)))
    n_chunks = min(-(-n // _FEWEST_TOGETHER), max(_CHUNKS_A_THREAD * threads, -(-n // most)))
    return [n * i // n_chunks for i in range(n_chunks + 1)] if n else []


def _concatenate(
    parts: Sequence[ScoredCandidates],
    width: int,
    seconds: dict[str, float] | None = None,
    *,
    took: float = np.inf,
) -> ScoredCandidates:
    """All of some parts, whose stages took this long together at most: threads work on several at once."""
    total = dict(seconds or {"search": 0.0, "rescore": 0.0, "rerank": 0.0})
    for part in parts:
        for stage, spent in part.seconds.items():
            total[stage] += spent
    together = sum(total.values())
    if together > took:
        total = {stage: spent * took / together for stage, spent in total.items()}
    if len(parts) == 1:
        return replace(parts[0], seconds=total)
    width = max((part.positions.shape[1] for part in parts), default=width)
    none = np.float32(-np.inf)
    return ScoredCandidates(
        positions=stack_rows([part.positions for part in parts], np.int64(-1), width),
        scores=stack_rows([part.scores for part in parts], np.float64(-np.inf), width),
        similarities=stack_rows([part.similarities for part in parts], none, width),
        contextual=stack_rows([part.contextual for part in parts], np.float64(0.0), width),
        initial_similarities=stack_rows([part.initial_similarities for part in parts], none, width),
        queries=np.concatenate([part.queries for part in parts]) if parts else np.empty((0, 0), np.float32),
        seconds=total,
    )


def stack_rows(
    blocks: Sequence[npt.NDArray[Element]], filling: Element, width: int = 0
) -> npt.NDArray[Element]:
    """(sum of rows, w) the blocks one below the other, as wide as the widest of them."""
    width = max((block.shape[1] for block in blocks), default=width)
    stacked = np.full((sum(map(len, blocks)), width), filling)
    row = 0
    for block in blocks:
        stacked[row : row + len(block), : block.shape[1]] = block
        row += len(block)
    return stacked

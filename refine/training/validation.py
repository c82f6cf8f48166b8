"""Validation of a refiner: searches among held-out classes, and the verdict they give (numpy).

Known classes have half of their items in a gallery and half as queries; absent classes have none in it. A
refined gallery item attends to its neighbors in the gallery, a refined query to its own in the initial space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vicinal.models.errors import EvaluationError
from vicinal.models.evaluation import retrieval_metrics
from vicinal.models.refiner_manifest import RerankVerdict, Sides
from vicinal.models.similarity import FloatArray
from vicinal.refine.context_refiner import Neighbors
from vicinal.refine.errors import RefinerTrainingError
from vicinal.refine.nearest import nearest_items
from vicinal.refine.neighbor_features import RADIUS_RANKS, neighborhood_radii
from vicinal.refine.reranking import contextual_scores, kth_similarities
from vicinal.refine.training.config import RerankConfig, ValidationConfig
from vicinal.refine.training.embedding_set import EmbeddingSet

__all__ = [
    "SIDES",
    "Refine",
    "Validation",
    "SideFigures",
    "Verdict",
    "choose_sides",
    "fnir_at_fpir",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SIDES: tuple[Sides, ...] = ("off", "gallery", "query", "both")
# Candidates that are re-ranked; the service scores no fewer.
_CANDIDATES = 100
_CHUNK = 64


@dataclass(frozen=True)
class SideFigures:
    """Figures of one choice of what is refined.

    Attributes:
        fnir: False negative identification rate at the stated false positive one: share of the queries with a
            mate none of whose mates passes the threshold.
        map_at_r: MAP@R of the queries with a mate.
        hit_rate_1: Hit rate R@1 of the queries with a mate.
    """

    fnir: float
    map_at_r: float
    hit_rate_1: float

    @property
    def order(self) -> tuple[float, float]:
        """What a lower value of is better: FNIR, and where that is equal, MAP@R."""
        return self.fnir, -self.map_at_r


@dataclass(frozen=True)
class Verdict:
    """What the validation says to do by default.

    Attributes:
        sides: What to refine.
        rerank: Whether to re-rank what was refined.
        figures: By what is refined, the figures of `SideFigures`; `rerank` has the FNIR of the chosen sides
            with re-ranking.
    """

    sides: Sides
    rerank: RerankVerdict
    figures: dict[str, dict[str, float]]


class Refine(Protocol):
    """A refiner, as a validation asks it."""

    def __call__(self, rows: FloatArray, neighborhood: Neighbors, *, as_queries: bool) -> FloatArray:
        """(n, d) refined embeddings of (n, d) rows; queries may have a length below 1."""


@dataclass(frozen=True)
class _Search:
    """One gallery and its queries, as positions in the set.

    Attributes:
        gallery: (m,) items.
        queries: (n,) queries with a mate, then those without.
        n_known: Queries with a mate.
        contexts: (m + n, k) neighbors of gallery and queries, as positions in the gallery, -1 for none.
        radii: (m, 3) similarity of each gallery item to its nearest others in it; see
            `refine.neighbor_features`.
    """

    gallery: Ints
    queries: Ints
    n_known: int
    contexts: Ints
    radii: FloatArray


class Validation:
    """Searches among classes that the refiner was not trained on.

    Args:
        held_out: Embeddings of these classes; each space is searched by itself, and all are counted together.
        n_neighbors: Neighbors k of a context.
        config: Draws, and the rate to compare at.
        seed: Seed of the draws.

    Raises:
        RefinerTrainingError: There are too few queries without a mate for the rate, or none with one.
    """

    def __init__(
        self, held_out: EmbeddingSet, n_neighbors: int, config: ValidationConfig, *, seed: int
    ) -> None:
        self.config = config
        self._unit = held_out.embeddings
        self._classes = held_out.class_ids
        rng = np.random.default_rng(seed)
        self._searches = [
            self._prepare(*roles, n_neighbors)
            for positions in held_out.positions_by_space()
            for roles in _deal(positions, self._classes, config.draws, rng)
        ]
        self._check()

    @property
    def n_known(self) -> int:
        """Queries with a mate."""
        return sum(search.n_known for search in self._searches)

    @property
    def n_absent(self) -> int:
        """Queries without a mate."""
        return sum(len(search.queries) - search.n_known for search in self._searches)

    def measure(self, refine: Refine) -> dict[Sides, SideFigures]:
        """Figures by what is refined."""
        refined = [self._refine(search, refine) for search in self._searches]
        return {sides: self._measure_sides(refined, sides) for sides in SIDES}

    def decide(self, refine: Refine, figures: Mapping[Sides, SideFigures]) -> Verdict:
        """Choose what to refine by the lowest FNIR, then MAP@R, then least work, and whether to re-rank.

        Args:
            refine: The refiner.
            figures: What `measure` gave for it.
        """
        sides = choose_sides(figures)
        refined = [(search, self._refine(search, refine)) for search in self._searches]
        fnir = self._fnir([self._reranked(search, *_pick(one, sides)) for search, one in refined])
        named: dict[str, dict[str, float]] = {name: asdict(one) for name, one in figures.items()}
        counts = {"n_known": float(self.n_known), "n_absent": float(self.n_absent)}
        rerank: RerankVerdict = "contextual" if fnir < figures[sides].fnir else "off"
        return Verdict(sides, rerank, {**named, "rerank": {"fnir": fnir}, "queries": counts})

    def _prepare(self, gallery: Ints, known: Ints, absent: Ints, k: int) -> _Search:
        queries = np.concatenate([known, absent])
        rows = np.concatenate([gallery, queries])
        # Nothing but a gallery item itself is left out of a context.
        contexts, similarities = nearest_items(
            self._unit[rows],
            self._unit[gallery],
            max(k, *RADIUS_RANKS),
            query_groups=rows,
            item_groups=gallery,
        )
        radii = neighborhood_radii(similarities[: len(gallery)])
        return _Search(gallery, queries, len(known), contexts[:, :k], radii)

    def _check(self) -> None:
        needed = int(np.ceil(1.0 / self.config.fpir))
        if not self.n_known or self.n_absent < needed:
            raise RefinerTrainingError(
                f"the validation classes give {self.n_known} queries with a mate and {self.n_absent} "
                f"without; FPIR {100 * self.config.fpir:g} % needs some and at least {needed}: hold out a "
                "larger share of the classes, or give more classes to validate on"
            )

    def _refine(
        self, search: _Search, refine: Refine
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Gallery and queries, as they are and refined."""
        gallery = self._unit[search.gallery]
        rows = np.concatenate([gallery, self._unit[search.queries]])
        n = len(gallery)

        def of(part: slice) -> Neighbors:
            places = np.maximum(search.contexts[part], 0)
            return Neighbors(gallery[places], search.contexts[part] >= 0, search.radii[places])

        return (
            gallery,
            rows[n:],
            refine(gallery, of(slice(n)), as_queries=False),
            refine(rows[n:], of(slice(n, None)), as_queries=True),
        )

    def _measure_sides(self, refined: Sequence[tuple[FloatArray, ...]], sides: Sides) -> SideFigures:
        trials, metrics, weights = [], [], []
        for search, one in zip(self._searches, refined, strict=True):
            gallery, queries = _pick(one, sides)
            trials.append(self._best(search, queries @ gallery.T))
            if search.n_known:
                known = slice(search.n_known)
                measured = retrieval_metrics(
                    queries[known],
                    self._classes[search.queries[known]],
                    gallery_embeddings=gallery,
                    gallery_labels=self._classes[search.gallery],
                    ks=(1,),
                )
                metrics.append((measured.map_at_r, measured.hit_rate[1]))
                weights.append(search.n_known)
        map_at_r, hit_rate = np.average(metrics, axis=0, weights=weights).tolist()
        return SideFigures(self._fnir(trials), map_at_r, hit_rate)

    def _best(self, search: _Search, scores: npt.NDArray[np.floating]) -> tuple[Floats, Floats]:
        """Best score with a mate of each query that has one, and best score of each that has none."""
        n = search.n_known
        mates = self._classes[search.queries[:n], None] == self._classes[search.gallery]
        best_mates = np.where(mates, scores[:n], -np.inf).max(axis=1, initial=-np.inf)
        return best_mates.astype(np.float64), scores[n:].max(axis=1, initial=-np.inf).astype(np.float64)

    def _fnir(self, trials: Sequence[tuple[Floats, Floats]]) -> float:
        mates, absent = (np.concatenate(scores) for scores in zip(*trials, strict=True))
        return fnir_at_fpir(mates, absent, self.config.fpir)

    def _reranked(self, search: _Search, gallery: FloatArray, queries: FloatArray) -> tuple[Floats, Floats]:
        rerank = self.config.rerank
        own = np.arange(len(gallery))
        _, nearest = nearest_items(gallery, gallery, rerank.k, query_groups=own, item_groups=own)
        kth = kth_similarities(nearest, rerank.k)
        scores = [
            _contextual(queries[start : start + _CHUNK], gallery, kth, rerank)
            for start in range(0, len(queries), _CHUNK)
        ]
        return self._best(search, np.concatenate(scores))


def choose_sides(figures: Mapping[Sides, SideFigures]) -> Sides:
    """The sides with the lowest FNIR; of equal ones those with the highest MAP@R, then with less work."""
    return min(SIDES, key=lambda sides: (*figures[sides].order, SIDES.index(sides)))


def fnir_at_fpir(best_mate_scores: npt.ArrayLike, best_absent_scores: npt.ArrayLike, fpir: float) -> float:
    """False negative identification rate at a false positive one (ISO/IEC 19795-1).

    The threshold is the lowest that holds the rate; a query with a mate counts when no mate passes it.

    Args:
        best_mate_scores: (n,) best score of each query with one of its mates, -inf where none was found.
        best_absent_scores: (m,) best score of each query without a mate.
        fpir: Highest share of the queries without a mate that may be answered, in (0, 1).

    Raises:
        EvaluationError: One of the two is empty.
    """
    mates, absent = (np.asarray(one, dtype=np.float64) for one in (best_mate_scores, best_absent_scores))
    if not len(mates) or not len(absent):
        raise EvaluationError("FNIR at an FPIR needs queries with and without a mate")
    allowed = int(np.floor(fpir * len(absent) + 1e-9))
    # A score is accepted above the best one that has to be turned down.
    turned_down = np.sort(absent)[::-1][allowed]
    return float((mates <= turned_down).mean())


def _deal(
    positions: Ints, classes: Ints, draws: int, rng: np.random.Generator
) -> list[tuple[Ints, Ints, Ints]]:
    """Gallery, known and absent queries of each draw within one space."""
    names, sizes = np.unique(classes[positions], return_counts=True)
    single = positions[np.isin(classes[positions], names[sizes == 1])]
    dealt = []
    for _ in range((draws + 1) // 2):
        halves = np.array_split(rng.permutation(names[sizes > 1]), 2)
        for known, others in (halves, halves[::-1]):
            gallery, queries = _halve(positions[np.isin(classes[positions], known)], classes, rng)
            absent = positions[np.isin(classes[positions], others)]
            dealt.append((gallery, queries, np.concatenate([absent, single])))
    return [roles for roles in dealt[:draws] if len(roles[0])]


def _halve(positions: Ints, classes: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Half of each class's items, rounded up, and the others."""
    shuffled = rng.permutation(positions)
    ordered = shuffled[np.argsort(classes[shuffled], kind="stable")]
    _, starts, sizes = np.unique(classes[ordered], return_index=True, return_counts=True)
    ranks = np.arange(len(ordered)) - np.repeat(starts, sizes)
    first = ranks < np.repeat((sizes + 1) // 2, sizes)
    return ordered[first], ordered[~first]


def _pick(one: tuple[FloatArray, ...], sides: Sides) -> tuple[FloatArray, FloatArray]:
    gallery, queries, refined_gallery, refined_queries = one
    return (
        refined_gallery if sides in ("gallery", "both") else gallery,
        refined_queries if sides in ("query", "both") else queries,
    )


def _contextual(queries: FloatArray, gallery: FloatArray, kth: FloatArray, config: RerankConfig) -> Floats:
    """(n, m) contextual scores of the candidates, -inf for items that are none."""
    found, similarities = nearest_items(
        queries,
        gallery,
        min(_CANDIDATES, len(gallery)),
        query_groups=np.full(len(queries), -1),
        item_groups=np.arange(len(gallery)),
    )
    scores, _ = contextual_scores(
        similarities, gallery[found], kth[found], k=config.k, beta=config.beta, eps=config.eps
    )
    full = np.full((len(queries), len(gallery)), -np.inf)
    np.put_along_axis(full, found, scores, axis=1)
    return full

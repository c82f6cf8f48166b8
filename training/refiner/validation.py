"""Validation of a refiner: searches among held-out classes, their verdict, and what is gained (numpy).

Known classes have half of their items in a gallery and half as queries; absent classes have none in it. A
refined gallery item attends to its neighbors in the gallery, a refined query to its own in the initial space.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import NamedTuple, Protocol, Self

import numpy as np

from vicinal.calibration.arrays import AnyFloats, FloatArray, Floats, Ints, Mask
from vicinal.calibration.rates.average_precision import average_precisions
from vicinal.calibration.rates.paired_bootstrap import LabelDraws, Searches, mean_figure, paired_interval
from vicinal.models.refiner_manifest import RerankVerdict, Sides
from vicinal.refine.context_refiner import ContextRefiner, Neighbors
from vicinal.refine.errors import RefinerTrainingError
from vicinal.refine.neighbor_features import neighborhood_radii
from vicinal.refine.reranking import contextual_scores, kth_similarities
from vicinal.training.evaluation import deal_roles, fnir_at_fpir, threshold_at_fpir
from vicinal.training.refiner.config import MOST_NEIGHBORS, RerankConfig, ValidationConfig
from vicinal.training.refiner.embedding_set import EmbeddingSet, nearest_items

SIDES: tuple[Sides, ...] = ("off", "gallery", "query", "both")
# Candidates that are re-ranked; the service scores no fewer.
_CANDIDATES = 100
_CHUNK = 64
# Queries whose similarities to a whole gallery are held at a time.
_ROWS = 512


@dataclass(frozen=True)
class SideFigures:
    """Figures of one choice of what is refined: the R@1 of queries with a mate, their FNIR at the stated
    FPIR, the share none of whose mates passes the threshold, and that threshold, the lowest that holds the
    FPIR.
    """

    fnir: float
    map_at_r: float
    hit_rate_1: float
    threshold: float

    @property
    def order(self) -> tuple[float, float]:
        """Key of which a lower one is better: FNIR, and where that is equal, MAP@R."""
        return self.fnir, -self.map_at_r


@dataclass(frozen=True)
class Verdict:
    """Default that the validation decides on: what to refine, and whether to re-rank it.

    The figures are by what is refined; `rerank` has FNIR and threshold of the chosen sides with re-ranking.
    """

    sides: Sides
    rerank: RerankVerdict
    figures: dict[str, dict[str, float]]


class Line(NamedTuple):
    """Way to search: the sides that are refined, and whether results are re-ranked."""

    sides: Sides
    rerank: RerankVerdict = "off"


@dataclass(frozen=True)
class Outcomes:
    """Answers to the queries of some searches, with the class of each.

    Of the (n,) queries with a mate: the best final score of a mate, -inf or 0 where none was found, the
    average precision over the first R items, R the number of its mates, and 1 where the best item is a mate,
    else 0. Of the (m,) queries without one the best final score.
    """

    mates: Floats
    mate_classes: Ints
    precisions: Floats
    hits: Floats
    others: Floats
    other_classes: Ints

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Join the answers of several searches, in their order."""
        return cls(*(np.concatenate([getattr(one, field.name) for one in parts]) for field in fields(cls)))

    @property
    def codes(self) -> tuple[Ints, Ints]:
        """Classes of the queries with a mate and of those without, by numbers that they share."""
        classes = np.concatenate([self.mate_classes, self.other_classes])
        codes = np.unique(classes, return_inverse=True)[1].astype(np.int64)
        return codes[: len(self.mate_classes)], codes[len(self.mate_classes) :]

    def figures(self, fpir: float) -> SideFigures:
        """Figures of all the queries."""
        fnir = fnir_at_fpir(self.mates, self.others, fpir)
        threshold = threshold_at_fpir(self.others, fpir)
        return SideFigures(fnir, float(self.precisions.mean()), float(self.hits.mean()), threshold)


class Refine(Protocol):
    """A refiner, as a validation asks it."""

    def __call__(self, rows: FloatArray, neighborhood: Neighbors, *, as_queries: bool) -> FloatArray:
        """(n, d) refined embeddings of (n, d) rows; queries may have a length below 1."""


def refine_by(refiner: ContextRefiner) -> Refine:
    """A refiner of a bundle as a validation asks it."""

    def refine(rows: FloatArray, neighborhood: Neighbors, *, as_queries: bool) -> FloatArray:
        refined = refiner.attend(
            rows, neighborhood.contexts, neighborhood.mask, radii=neighborhood.radii if as_queries else None
        )
        return refined.queries if as_queries else refined.embeddings

    return refine


@dataclass(frozen=True)
class _Search:
    """Gallery (m,) and its queries (n,), those with a mate first, as positions in the set.

    `contexts` are (m + n, 32) neighbors of gallery and queries, as positions in the gallery, -1 for none, and
    `radii` those of the gallery items, (m, 3); see `refine.neighbor_features`.
    """

    gallery: Ints
    queries: Ints
    n_known: int
    contexts: Ints
    radii: FloatArray


class Validation:
    """Searches among classes that the refiner was not trained on.

    Each space is searched by itself, and all are counted together. Embeddings `beside`, of other classes,
    stand in every gallery of their space and are no queries.
    """

    def __init__(
        self,
        held_out: EmbeddingSet,
        n_neighbors: int,
        config: ValidationConfig,
        *,
        seed: int,
        beside: EmbeddingSet | None = None,
    ) -> None:
        self.config = config
        self.n_neighbors = n_neighbors
        items = held_out if beside is None else held_out.beside(beside)
        self._unit = items.embeddings
        self._classes = items.class_ids
        rng = np.random.default_rng(seed)
        others = np.arange(len(held_out), len(items))
        self._searches = [
            self._prepare(
                np.concatenate([roles.gallery, others[items.spaces[others] == space]]),
                roles.known,
                roles.absent,
            )
            for space in np.unique(held_out.spaces)
            for roles in deal_roles(
                np.flatnonzero(held_out.spaces == space),
                self._classes,
                draws=config.draws,
                rng=rng,
                visits=items.visits,
            )
        ]

    @property
    def n_known(self) -> int:
        """Queries with a mate."""
        return sum(search.n_known for search in self._searches)

    @property
    def n_absent(self) -> int:
        """Queries without a mate."""
        return sum(len(search.queries) - search.n_known for search in self._searches)

    def require_queries(self) -> None:
        """Refuse classes that say nothing at the rate to compare at."""
        needed = int(np.ceil(1.0 / self.config.fpir))
        if not self.n_known or self.n_absent < needed:
            raise RefinerTrainingError(
                f"the validation classes give {self.n_known} queries with a mate and {self.n_absent} "
                f"without; FPIR {100 * self.config.fpir:g} % needs some and at least {needed}: hold out a "
                "larger share of the classes, or give more classes to validate on"
            )

    def outcomes(
        self, refine: Refine | None, lines: Sequence[Line], *, n_neighbors: int | None = None
    ) -> dict[Line, Outcomes]:
        """Answers to the queries by what is done with the searches; a refiner gets k neighbors by default."""
        parts: dict[Line, list[Outcomes]] = {line: [] for line in lines}
        for search in self._searches:
            plain = self._unit[search.gallery], self._unit[search.queries]
            k = n_neighbors or self.n_neighbors
            refined = plain if refine is None else _refined(search, refine, k, *plain)
            for line, found in parts.items():
                gallery, _ = refined if line.sides in ("gallery", "both") else plain
                _, queries = refined if line.sides in ("query", "both") else plain
                found.append(self._outcomes(search, line, gallery, queries))
        return {line: Outcomes.join(found) for line, found in parts.items()}

    def outcomes_by_side(self, refine: Refine) -> dict[Sides, Outcomes]:
        """Answers to the queries without re-ranking, by what is refined."""
        found = self.outcomes(refine, [Line(sides) for sides in SIDES if sides != "off"])
        return {"off": self._unrefined, **{line.sides: one for line, one in found.items()}}

    def measure(self, refine: Refine) -> dict[Sides, SideFigures]:
        """Figures by what is refined."""
        return {sides: one.figures(self.config.fpir) for sides, one in self.outcomes_by_side(refine).items()}

    def decide(self, refine: Refine, figures: Mapping[Sides, SideFigures]) -> Verdict:
        """Choose what to refine by the lowest FNIR, then MAP@R, then least work, and whether to re-rank."""
        line = Line(choose_sides(figures), "contextual")
        return verdict_of(figures, self.outcomes(refine, [line])[line], self.config.fpir)

    @cached_property
    def _unrefined(self) -> Outcomes:
        # The same at every step of a training.
        line = Line("off")
        return self.outcomes(None, [line])[line]

    def _prepare(self, gallery: Ints, known: Ints, absent: Ints) -> _Search:
        queries = np.concatenate([known, absent])
        rows = np.concatenate([gallery, queries])
        # Nothing but a gallery item itself is left out of a context.
        contexts, similarities = nearest_items(
            self._unit[rows],
            self._unit[gallery],
            MOST_NEIGHBORS,
            query_groups=rows,
            item_groups=gallery,
        )
        radii = neighborhood_radii(similarities[: len(gallery)])
        return _Search(gallery, queries, len(known), contexts, radii)

    def _outcomes(self, search: _Search, line: Line, gallery: FloatArray, queries: FloatArray) -> Outcomes:
        is_plain = line.rerank == "off"
        score = (lambda some: some @ gallery.T) if is_plain else _reranking(gallery, self.config.rerank)
        rows = _ROWS if is_plain else _CHUNK
        parts = [
            self._found(search, start, score(queries[start : start + rows]))
            for start in range(0, len(queries), rows)
        ]
        best_mates, best, precisions, hits = map(np.concatenate, zip(*parts, strict=True))
        if is_plain:
            # The final score of a search that does not re-rank (CSO, appendix I.5, without context).
            best_mates, best = np.exp(2.0 * best_mates - 2.0), np.exp(2.0 * best - 2.0)
        n, classes = search.n_known, self._classes[search.queries]
        return Outcomes(best_mates, classes[:n], precisions, hits, best[n:], classes[n:])

    def _found(self, search: _Search, start: int, scores: AnyFloats) -> tuple[Floats, Floats, Floats, Floats]:
        """Best score of a mate of each query that has one, best score of each, and again of those with a mate
        average precision and hit, from scores (q, m).
        """
        best = scores.max(axis=1, initial=-np.inf).astype(np.float64)
        n = min(len(scores), max(0, search.n_known - start))
        own = self._classes[search.queries[start : start + n]]
        known, mates = scores[:n], own[:, None] == self._classes[search.gallery]
        best_mates = np.where(mates, known, -np.inf).max(axis=1, initial=-np.inf).astype(np.float64)
        ranked = _ranked_mates(known, mates)
        hits = ranked[:, 0].astype(np.float64) if n else np.empty(0)
        return best_mates, best, average_precisions(ranked, mates.sum(axis=1)), hits


def verdict_of(figures: Mapping[Sides, SideFigures], reranked: Outcomes, fpir: float) -> Verdict:
    """Decide what to do by default; `reranked` has the sides that `choose_sides` takes."""
    sides, found = choose_sides(figures), reranked.figures(fpir)
    named: dict[str, dict[str, float]] = {name: asdict(one) for name, one in figures.items()}
    counts = {"n_known": float(len(reranked.mates)), "n_absent": float(len(reranked.others))}
    rerank: RerankVerdict = "contextual" if found.fnir < figures[sides].fnir else "off"
    reranking = {"fnir": found.fnir, "threshold": found.threshold}
    return Verdict(sides, rerank, {**named, "rerank": reranking, "queries": counts})


def choose_sides(figures: Mapping[Sides, SideFigures]) -> Sides:
    """The sides with the lowest FNIR; of equal ones those with the highest MAP@R, then with less work."""
    return min(SIDES, key=lambda sides: (*figures[sides].order, SIDES.index(sides)))


def _ranked_mates(scores: AnyFloats, is_mate: Mask) -> Mask:
    """(n, w) whether the first w ranks are mates, w the most mates, >= 1; (n, m) scores are -inf for none."""
    width = min(scores.shape[1], max(1, int(is_mate.sum(axis=1).max(initial=0))))
    # Sorting whole rows would take longer than all the rest.
    first = np.argpartition(-scores, width - 1, axis=1)[:, :width]
    order = np.argsort(-np.take_along_axis(scores, first, axis=1), axis=1, kind="stable")
    places = np.take_along_axis(first, order, axis=1)
    found = np.take_along_axis(is_mate, places, axis=1)
    return found & np.isfinite(np.take_along_axis(scores, places, axis=1))


def _refined(
    search: _Search, refine: Refine, k: int, gallery: FloatArray, queries: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Gallery and queries, refined by k neighbors."""
    contexts, n = search.contexts[:, :k], len(gallery)

    def of(part: slice) -> Neighbors:
        places = np.maximum(contexts[part], 0)
        return Neighbors(gallery[places], contexts[part] >= 0, search.radii[places])

    return (
        refine(gallery, of(slice(n)), as_queries=False),
        refine(queries, of(slice(n, None)), as_queries=True),
    )


def _reranking(gallery: FloatArray, config: RerankConfig) -> Callable[[FloatArray], AnyFloats]:
    """Function from queries (n, d) to (n, m) contextual scores of their candidates, -inf for other items."""
    own = np.arange(len(gallery))
    _, nearest = nearest_items(gallery, gallery, config.k, query_groups=own, item_groups=own)
    kth = kth_similarities(nearest, config.k)

    def scores_of(queries: FloatArray) -> AnyFloats:
        n_candidates, nothing = min(_CANDIDATES, len(gallery)), np.full(len(queries), -1)
        found, similarities = nearest_items(
            queries, gallery, n_candidates, query_groups=nothing, item_groups=own
        )
        scores, _ = contextual_scores(
            similarities, gallery[found], kth[found], k=config.k, beta=config.beta, eps=config.eps
        )
        full = np.full((len(queries), len(gallery)), -np.inf)
        np.put_along_axis(full, found, scores, axis=1)
        return full

    return scores_of


@dataclass(frozen=True)
class PairedDifference:
    """Figure before and after, on the same queries, with the 95 % interval of after - before over classes."""

    before: float
    after: float
    low: float
    high: float


@dataclass(frozen=True)
class Gain:
    """Difference between two searches in R@1, and in FNIR at the compared FPIR, each with its threshold."""

    fnir: PairedDifference
    map_at_r: PairedDifference
    hit_rate_1: PairedDifference

    def flat(self) -> dict[str, float]:
        """All numbers by name, such as `fnir_before`."""
        return {f"{name}_{key}": value for name, one in asdict(self).items() for key, value in one.items()}


def measure_gain(before: Outcomes, after: Outcomes, fpir: float, *, seed: int) -> Gain:
    """Compare what the same queries got, by a paired bootstrap over classes with new thresholds each draw."""
    known, absent = before.codes
    figures = [
        figure
        for one in (before, after)
        for figure in (
            Searches(one.mates, known, one.others, absent).error_when_held("fpir", fpir),
            mean_figure(one.precisions, known),
            mean_figure(one.hits, known),
        )
    ]
    draws = LabelDraws(known, absent, seed)
    measured, drawn = draws.measured(figures).reshape(2, 3), draws.drawn(figures).reshape(2, 3, -1)
    return Gain(
        *(
            PairedDifference(
                float(measured[0, i]), float(measured[1, i]), *paired_interval(drawn[0, i], drawn[1, i])
            )
            for i in range(3)
        )
    )

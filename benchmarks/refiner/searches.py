"""Searches of the refiner study: who searches whom, what a method answers, and what that is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.losses.measures import Labelled
from vicinal.refine.context_refiner import Neighbors
from vicinal.refine.neighbor_features import neighborhood_radii
from vicinal.refine.reranking import contextual_scores, kth_similarities
from vicinal.training.evaluation import auroc, fnir_at_fpir
from vicinal.training.refiner.embedding_set import nearest_items

__all__ = [
    "ASKED_FPIR",
    "SIDES",
    "Method",
    "Outcome",
    "Refined",
    "Search",
    "chosen_sides",
    "cross_opis",
    "deal",
    "figures",
    "outcome",
    "refined",
    "reranked_outcome",
    "search_of",
    "threshold_at",
]

Embeddings = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.str_]
# Gallery embeddings and query embeddings of a search.
Refined = tuple[Embeddings, Embeddings]

SIDES = ("off", "gallery", "query", "both")
ASKED_FPIR = 0.05
_MOST_NEIGHBORS = 32
_CHUNK = 64
_CANDIDATES = 100
# The neighbors of more would not fit into the processor's caches.
_REFINED_AT_ONCE = 512


@dataclass(frozen=True)
class Search:
    """A gallery and its queries, with the neighbors that may refine them.

    Attributes:
        gallery: (m, d) items.
        gallery_labels: (m,).
        queries: (n, d) queries with a mate, then those without.
        query_labels: (n,).
        n_known: Queries with a mate.
        item_neighbors: (m, 32) nearest others of each item, -1 where there are fewer.
        query_neighbors: (n, 32) nearest items of each query.
        radii: (m, 3) of the items.
    """

    gallery: Embeddings
    gallery_labels: Labels
    queries: Embeddings
    query_labels: Labels
    n_known: int
    item_neighbors: npt.NDArray[np.int64]
    query_neighbors: npt.NDArray[np.int64]
    radii: Embeddings

    @classmethod
    def of(
        cls, gallery: Sequence[npt.NDArray], known: Sequence[npt.NDArray], absent: Sequence[npt.NDArray]
    ) -> Search:
        """From embeddings and labels of the three roles."""
        items, queries = gallery[0], np.concatenate([known[0], absent[0]])
        own = np.arange(len(items))
        near, similarities = nearest_items(items, items, _MOST_NEIGHBORS, query_groups=own, item_groups=own)
        of_queries, _ = nearest_items(
            queries, items, _MOST_NEIGHBORS, query_groups=np.full(len(queries), -1), item_groups=own
        )
        return cls(
            items,
            gallery[1],
            queries,
            np.concatenate([known[1], absent[1]]),
            len(known[0]),
            near,
            of_queries,
            neighborhood_radii(similarities),
        )


@dataclass(frozen=True)
class Method:
    """What is done to embeddings before they are compared.

    Attributes:
        refine: (n, d) rows, their neighbors, and whether they are queries, to (n, d) embeddings.
        k: Neighbors.
    """

    refine: Callable[[Embeddings, Neighbors, bool], Embeddings]
    k: int


@dataclass(frozen=True)
class Outcome:
    """What the queries of one search got.

    Attributes:
        mate: (n_known,) best score with a mate.
        top: (n_known,) best score.
        hit: (n_known,) whether the best is a mate.
        precision: (n_known,) average precision at R.
        absent: (n_absent,) best score of each query without a mate.
    """

    mate: Floats
    top: Floats
    hit: Floats
    precision: Floats
    absent: Floats


def search_of(embeddings: Embeddings, part: Labelled) -> Search:
    """The search of a protocol's part."""
    return Search.of(
        *(
            (embeddings[part.roles == role], part.labels[part.roles == role])
            for role in ("gallery", "query", "absent")
        )
    )


def deal(embeddings: Embeddings, labels: Labels, seed: int = 0) -> list[Search]:
    """Two searches among held-out classes: half of them known, the other half absent, and the other way."""
    rng = np.random.default_rng(seed)
    halves = np.array_split(rng.permutation(np.unique(labels)), 2)
    searches = []
    for classes in halves:
        known = np.flatnonzero(np.isin(labels, classes))
        shuffled = rng.permutation(known)
        order = shuffled[np.argsort(labels[shuffled], kind="stable")]
        _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
        rank = np.arange(len(order)) - np.repeat(starts, sizes)
        first = rank < np.repeat((sizes + 1) // 2, sizes)
        absent = np.flatnonzero(~np.isin(labels, classes))
        roles = (order[first], order[~first], absent)
        searches.append(Search.of(*((embeddings[rows], labels[rows]) for rows in roles)))
    return searches


def refined(search: Search, method: Method) -> Refined:
    """The gallery and the queries as a method makes them."""

    def of(rows: Embeddings, near: npt.NDArray[np.int64], as_queries: bool) -> Embeddings:
        parts = []
        for start in range(0, len(rows), _REFINED_AT_ONCE):
            listed = near[start : start + _REFINED_AT_ONCE, : method.k]
            places = np.maximum(listed, 0)
            neighbors = Neighbors(search.gallery[places], listed >= 0, search.radii[places])
            parts.append(method.refine(rows[start : start + _REFINED_AT_ONCE], neighbors, as_queries))
        return np.concatenate(parts)

    return (
        of(search.gallery, search.item_neighbors, False),
        of(search.queries, search.query_neighbors, True),
    )


def chosen_sides(search: Search, both: Refined, sides: str) -> Refined:
    """What is compared when only some sides are refined."""
    return (
        both[0] if sides in ("gallery", "both") else search.gallery,
        both[1] if sides in ("query", "both") else search.queries,
    )


def outcome(search: Search, compared: Refined) -> Outcome:
    """Compare every query with every item."""
    return _outcome(search, compared[1] @ compared[0].T)


def reranked_outcome(search: Search, compared: Refined, *, k: int = 8, beta: float = 0.1) -> Outcome:
    """The same with contextual re-ranking of the nearest 100, as the service does."""
    gallery, queries = compared
    own = np.arange(len(gallery))
    _, near = nearest_items(gallery, gallery, k, query_groups=own, item_groups=own)
    kth = kth_similarities(near, k)
    scores = np.full((len(queries), len(gallery)), -np.inf)
    for start in range(0, len(queries), _CHUNK):
        part = queries[start : start + _CHUNK]
        found, similarities = nearest_items(
            part,
            gallery,
            min(_CANDIDATES, len(gallery)),
            query_groups=np.full(len(part), -1),
            item_groups=own,
        )
        ranked, _ = contextual_scores(similarities, gallery[found], kth[found], k=k, beta=beta, eps=0.05)
        np.put_along_axis(scores[start : start + _CHUNK], found, ranked, axis=1)
    return _outcome(search, scores)


def _outcome(search: Search, scores: npt.NDArray[np.floating]) -> Outcome:
    n = search.n_known
    mates = search.query_labels[:n, None] == search.gallery_labels
    sizes = mates.sum(axis=1)
    depth = int(sizes.max())
    first = np.argpartition(-scores[:n], min(depth, scores.shape[1] - 1), axis=1)[:, :depth]
    order = np.argsort(-np.take_along_axis(scores[:n], first, axis=1), axis=1, kind="stable")
    ranked = np.take_along_axis(mates, np.take_along_axis(first, order, axis=1), axis=1)
    ranked &= np.arange(depth) < sizes[:, None]
    precision = (ranked * np.cumsum(ranked, axis=1) / np.arange(1, depth + 1)).sum(axis=1) / sizes
    return Outcome(
        mate=np.where(mates, scores[:n], -np.inf).max(axis=1).astype(np.float64),
        top=scores[:n].max(axis=1).astype(np.float64),
        hit=ranked[:, 0].astype(np.float64),
        precision=precision,
        absent=scores[n:].max(axis=1).astype(np.float64),
    )


def threshold_at(absent: Floats, fpir: float = ASKED_FPIR) -> float:
    """Lowest threshold that at most this share of the queries without a mate reaches."""
    return float(np.nextafter(np.sort(absent)[::-1][int(fpir * len(absent))], np.inf))


def figures(outcomes: Sequence[Outcome], threshold: float | None = None) -> dict[str, float]:
    """Rates of searches that count together.

    Args:
        outcomes: One a search.
        threshold: Of the calibration classes; None leaves the rates at it out.
    """

    def joined(name: str) -> Floats:
        return np.concatenate([getattr(one, name) for one in outcomes])

    found = {
        "hit_rate_1": float(joined("hit").mean()),
        "map_at_r": float(joined("precision").mean()),
        "auroc": auroc(joined("top"), joined("absent")),
        "fnir_at_fpir_5": fnir_at_fpir(joined("mate"), joined("absent"), ASKED_FPIR),
    }
    if threshold is not None:
        found["fnir_at_calibrated_5"] = float((joined("mate") < threshold).mean())
        found["fpir_at_calibrated_5"] = float((joined("absent") >= threshold).mean())
    return found


def cross_opis(search: Search, compared: Refined, *, n_thresholds: int = 100) -> float:
    """OPIS over pairs of a query with a mate and a gallery item (METHODS of TCM, eq. 2).

    A class's positive pairs are its queries with its items; its negative ones have one member of the class.
    """
    gallery, queries = compared[0], compared[1][: search.n_known]
    names, codes = np.unique(search.gallery_labels, return_inverse=True)
    of_queries = np.searchsorted(names, search.query_labels[: search.n_known])
    distances = np.sqrt(np.maximum(0.0, 2.0 - 2.0 * (queries @ gallery.T)))
    same = of_queries[:, None] == codes
    low, high = np.quantile(distances[~same], [0.01, 0.1])
    cuts = low + (high - low) * np.arange(1, n_thresholds + 1) / n_thresholds
    places = np.searchsorted(cuts, distances)
    width = n_thresholds + 1

    def within(classes: npt.NDArray[np.int64], bins: npt.NDArray[np.int64]) -> Floats:
        counts = np.bincount(classes * width + bins, minlength=len(names) * width).reshape(-1, width)
        return np.cumsum(counts, axis=1)[:, :-1] / np.maximum(counts.sum(axis=1, keepdims=True), 1)

    rows, columns = np.nonzero(same)
    sensitivity = within(of_queries[rows], places[rows, columns])
    rows, columns = np.nonzero(~same)
    bins = places[rows, columns]
    accepted = within(np.concatenate([of_queries[rows], codes[columns]]), np.concatenate([bins, bins]))
    both = (1.0 - accepted) + sensitivity
    utilities = np.where(both > 0, 2.0 * (1.0 - accepted) * sensitivity / np.where(both > 0, both, 1.0), 0.0)
    return float(((utilities - utilities.mean(axis=0)) ** 2).mean())

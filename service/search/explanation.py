"""Explanation: what each stage of a search ran on, and what the refiner does with one query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.views.contexts import query_contexts
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import exact_similarities
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.service.search.item_spaces import SearchSpace

Place = tuple[float, float]

# A rank beyond is not told: to count further would mean to compare every item.
_MOST_RANKS = 1000


@dataclass(frozen=True)
class ExplainedNeighbor:
    """One neighbor in the context of a query."""

    id: str
    label: str | None
    similarity: Annotated[float, Field(description="Cosine to the query, before refinement.")]
    attention: Annotated[list[float], Field(description="Its share in each step, the mean of the heads.")]
    place: Annotated[Place, Field(description="Where it lies in the projection.")]


@dataclass(frozen=True)
class ExplainedRefinement:
    """The way of a query's embedding through the refiner."""

    refiner: Annotated[str, Field(description="Fingerprint of the refiner.")]
    is_used: Annotated[
        bool,
        Field(description="Whether the search refined the query; if not, this is what would become of it."),
    ]
    neighbors: Annotated[list[ExplainedNeighbor], Field(description="Its context, nearest first.")]
    cosines: Annotated[
        list[float],
        Field(description="Cosine of the embedding before refinement to that after 0, 1, … steps."),
    ]
    candidate: Annotated[str | None, Field(description="Id of the best candidate.")]
    ranks: Annotated[
        list[int | None],
        Field(
            description="Rank of the best candidate by cosine alone, for the embedding after 0, 1, … steps; "
            "null beyond 1000."
        ),
    ]
    way: Annotated[
        list[Place],
        Field(
            description="Places of the embedding after 0, 1, … steps, on the two principal axes of them and "
            "the neighbors."
        ),
    ]
    variance: Annotated[Place, Field(description="Share of the variance on the two axes of the projection.")]


@dataclass(frozen=True)
class Explanation:
    """What a search did with a query."""

    devices: Annotated[
        dict[str, str],
        Field(
            description="What each stage of the search ran on: `cpu`, the GPUs of the index, or the provider "
            "of ONNX Runtime that embeds, with its GPU. Beside a GPU, items that were added since are the "
            "processor's. The neighbors that `refine` takes are found where `search` says."
        ),
    ]
    refinement: Annotated[
        ExplainedRefinement | None,
        Field(description="What the refiner does with the query; null where the bundle has none."),
    ]


def stage_devices(search: str, embed: str | None) -> dict[str, str]:
    """What each stage of a search runs on.

    Args:
        embed: Provider and device of the network; None where nothing is embedded.
    """
    on_processor = dict.fromkeys(("decode", "refine", "rescore", "rerank"), "cpu")
    return {**on_processor, "search": search, **({} if embed is None else {"embed": embed})}


class Explainer:
    """Explains what the refiner does with the queries of one search.

    Args:
        view: The state of the gallery.
        space: What is searched.
        refiner: Refiner of the bundle.
        n_steps: Steps.
        is_used: Whether the search refines queries.
    """

    def __init__(
        self,
        view: GalleryView,
        space: SearchSpace,
        refiner: ContextRefiner,
        *,
        n_steps: int,
        is_used: bool,
    ) -> None:
        self.view = view
        self.space = space
        self.refiner = refiner
        self.n_steps = n_steps
        self.is_used = is_used

    def explain_all(self, queries: FloatArray, found: Ints, items: Ints | None) -> list[ExplainedRefinement]:
        """Explain each query of a search.

        Args:
            queries: (B, d) initial embeddings.
            found: (B, n) positions of their candidates, best first; -1 for none.
            items: (B,) positions of queries that are items, which count as not in the gallery.
        """
        best = found[:, 0].tolist() if found.shape[1] else [-1] * len(queries)
        own = [None] * len(queries) if items is None else items.tolist()
        return [self._explain(*one) for one in zip(queries, best, own, strict=True)]

    def _explain(self, query: FloatArray, best: int, item: int | None) -> ExplainedRefinement:
        items = None if item is None else np.array([item])
        excluded = np.empty(0, np.int64) if items is None else items
        context = query_contexts(self.view, query[None], self.refiner.n_neighbors, [excluded], items)[0]
        vectors = self.view.vectors(context)
        refinement = self.refiner.attend(query[None], vectors[None], context[None] >= 0, n_steps=self.n_steps)
        steps = np.concatenate([query[None], refinement.steps[0]])
        there = np.flatnonzero(context >= 0)
        places, variance = _projected(steps, vectors[there])
        similarities = exact_similarities(query, vectors)
        found = self.view.items(context[there])
        neighbors = [
            ExplainedNeighbor(
                id=row["id"],
                label=row["label"],
                similarity=float(similarities[column]),
                attention=refinement.attention[0, :, column].tolist(),
                place=place,
            )
            for row, column, place in zip(found, there, places[len(steps) :], strict=True)
        ]
        return ExplainedRefinement(
            refiner=self.refiner.fingerprint,
            is_used=self.is_used,
            neighbors=neighbors,
            cosines=exact_similarities(query, steps).tolist(),
            candidate=None if best < 0 else self.view.items([best])[0]["id"],
            ranks=[None if best < 0 else self._rank(step, best, excluded) for step in steps],
            way=places[: len(steps)],
            variance=variance,
        )

    def _rank(self, query: FloatArray, best: int, excluded: Ints) -> int | None:
        found = self.space.nearest(query[None], _MOST_RANKS, [excluded], None)
        similarities = exact_similarities(query[None], self.space.vectors(found, [excluded]))[0]
        positions = found[0]
        similarities[(positions < 0) | np.isin(positions, excluded)] = -np.inf
        order = positions[np.lexsort((positions, -similarities))][:_MOST_RANKS]
        place = np.flatnonzero(order == best)
        return int(place[0]) + 1 if len(place) else None


def _projected(steps: FloatArray, neighbors: FloatArray) -> tuple[list[Place], Place]:
    """Places of all on their two principal axes, and the share of the variance on each."""
    points = np.concatenate([steps, neighbors]).astype(np.float64)
    centered = points - points.mean(axis=0)
    _, singular, axes = np.linalg.svd(centered, full_matrices=False)
    # Two axes also where all points are one; each looks the way that its largest number is positive.
    axes = np.pad(axes, ((0, max(0, 2 - len(axes))), (0, 0)))[:2]
    axes = axes * np.where(axes[np.arange(2), np.abs(axes).argmax(axis=1)] < 0.0, -1.0, 1.0)[:, None]
    variances = np.pad(singular**2, (0, max(0, 2 - len(singular))))
    total = float(variances.sum())
    first, second = (variances[:2] / total).tolist() if total > 0.0 else (0.0, 0.0)
    return [(x, y) for x, y in (centered @ axes.T).tolist()], (first, second)

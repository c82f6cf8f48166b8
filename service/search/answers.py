"""Answers: what a search says, by which threshold, and what it did with a query, as HTTP sends it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from pydantic import ConfigDict, Field

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.calibration.rates.guarantees import StrangerScores
from vicinal.indexer.views.contexts import query_contexts
from vicinal.indexer.views.selection import Selection
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import exact_similarities
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.service.errors import RequestError
from vicinal.service.request_fields import ItemUri
from vicinal.service.search.item_spaces import SearchSpace
from vicinal.service.search.pipeline import Pipeline, PipelineSource

Place = tuple[float, float]
Verdict = Literal["match", "unsure", "no_match"]
CalibrationState = Literal["current", "stale", "broken", "default", "by_hand", "none"]

# A rank beyond is not told: to count further would mean to compare every item.
_MOST_RANKS = 1000


@dataclass(frozen=True)
class ExplainedNeighbor:
    """Neighbor in the context of a query."""

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
    """Explanation of what a search did with a query."""

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


@dataclass(frozen=True)
class Candidate:
    """Scored item."""

    id: str
    label: str | None
    metadata: dict[str, Any]
    uri: ItemUri
    rank: Annotated[int, Field(description="From 1.")]
    score: Annotated[float, Field(description="Final score in [0, 1]; the threshold is applied to this.")]
    similarity: Annotated[float, Field(description="Cosine of the embeddings that were matched.")]
    initial_similarity: Annotated[float, Field(description="Cosine of the embeddings before refinement.")]
    contextual_similarity: Annotated[
        float | None,
        Field(description="How alike the neighborhoods are: the share of common neighbors; null when off."),
    ]
    margin: Annotated[float | None, Field(description="Score minus threshold; null without one.")]
    copy_of: Annotated[
        str | None,
        Field(
            description="Better item of the answer that shows almost the same picture; null where there is "
            "none, or `mark_copies` was not asked for."
        ),
    ] = None


@dataclass(frozen=True)
class FoundGroup:
    """Scored group of items, such as a product, with its best photos."""

    group: Annotated[
        str | None,
        Field(description="Its label or value of the metadata key; null for an item without one, alone."),
    ]
    label: Annotated[str | None, Field(description="Label of its best photo.")]
    rank: Annotated[int, Field(description="From 1.")]
    score: Annotated[
        float, Field(description="Score of the group in [0, 1]; the threshold is applied to this.")
    ]
    margin: Annotated[float | None, Field(description="Score minus threshold; null without one.")]
    n_items: Annotated[
        int,
        Field(description="Items of it that could be found: those that fulfil the filter."),
    ]
    items: Annotated[
        list[Candidate],
        Field(description="Its best photos, at most 4, best first; they have no margin of their own."),
    ]


@dataclass(frozen=True)
class Threshold:
    """Threshold that an answer was decided by."""

    __pydantic_config__ = ConfigDict(json_schema_serialization_defaults_required=True)

    value: Annotated[
        float | None,
        Field(description="Lowest accepted score; null when there is no calibration and none was given."),
    ] = None
    unsure_from: Annotated[
        float | None,
        Field(
            description="Lowest score of an answer that is unsure rather than no match; null where the "
            "calibration draws one line."
        ),
    ] = None
    source: Literal["calibration", "by_hand", "request", "bundle", "none"] = "none"
    target: Annotated[
        str | None, Field(description="The rate that the threshold holds, such as `FPIR 5 %`.")
    ] = None
    calibration: Annotated[str | None, Field(description="Id of the calibration record.")] = None
    state: Annotated[
        CalibrationState,
        Field(
            description="`current`: calibrated for this pipeline, bundle and gallery; `stale`: it was, but "
            "the gallery has changed; `broken`: new photos were tried, and what was promised does not hold; "
            "`default`: the bundle's own, which was not measured on this gallery; `by_hand`: somebody chose "
            "it, here or with the request; `none`: there is none."
        ),
    ] = "none"
    reason: Annotated[str | None, Field(description="Why the state is not `current`.")] = None
    note: Annotated[
        str | None,
        Field(
            description="What else to know of the rate: what a filter means for it, or that searches have "
            "drifted."
        ),
    ] = None
    drift: Annotated[
        Literal["strong"] | None,
        Field(
            description="`strong`: searches no longer look like the calibration's queries, so that its rates "
            "may not hold; the threshold still decides."
        ),
    ] = None
    # When the calibration was put in force; None where that is not known.
    since: Annotated[datetime | None, Field(exclude=True)] = None


@dataclass(frozen=True)
class Answer:
    """Answer to one query."""

    __pydantic_config__ = ConfigDict(json_schema_serialization_defaults_required=True)

    no_match: Annotated[bool | None, Field(description="Null when there is no threshold to decide by.")]
    verdict: Annotated[
        Verdict | None,
        Field(
            description="`match`: something reaches the threshold; `unsure`: the best score lies so little "
            "below it that the calibration cannot tell; `no_match`: neither. Null when there is no threshold."
        ),
    ]
    reason: Annotated[
        str | None, Field(description="What speaks for a match, where the verdict is `unsure`; else null.")
    ]
    p_value: Annotated[
        float | None,
        Field(
            description="Share of labels that the gallery lacks whose queries would score as high, as the "
            "calibration measured it; null without one."
        ),
    ]
    # Best score of all; None where nothing could be compared.
    top_score: Annotated[float | None, Field(exclude=True)]
    left_out: Annotated[
        list[str],
        Field(
            description="Items that score as high as a match, and were left out: a person said that they are "
            "not what this very picture shows. With groups, all such items that were considered."
        ),
    ]
    matches: Annotated[
        list[Candidate],
        Field(
            description="Items whose score reaches the threshold, best first; with groups, the photos of the "
            "groups that do, group by group."
        ),
    ]
    candidates: Annotated[
        list[Candidate],
        Field(
            description="Best items below the threshold: on request, or when there is no threshold; with "
            "groups, the photos of such groups."
        ),
    ]
    threshold: Threshold
    gallery: str
    version: Annotated[int, Field(description="The built version that was searched.")]
    revision: Annotated[
        int,
        Field(
            description="The state of its live changes that was searched; answers with one are of one state."
        ),
    ]
    n_searched: Annotated[int, Field(description="Number of items that could have been matches.")]
    bundle: str
    pipeline: str
    pipeline_source: Annotated[
        Literal["request"] | PipelineSource,
        Field(
            description="What named it: the request, a comparison or calibration that put it in force for "
            "the gallery, or the settings."
        ),
    ]
    milliseconds: Annotated[
        dict[str, float], Field(description="Time by stage; in a batch, of the whole batch.")
    ]
    groups: Annotated[
        list[FoundGroup] | None,
        Field(
            description="Groups whose score reaches the threshold, best first; null where every item is "
            "decided by itself."
        ),
    ] = None
    candidate_groups: Annotated[
        list[FoundGroup] | None,
        Field(description="Best groups below the threshold, as `candidates`; null without groups."),
    ] = None
    explanation: Annotated[Explanation | None, Field(description="Null unless asked for with `explain`.")] = (
        None
    )
    search_id: Annotated[
        str | None,
        Field(description="Id of the search where it is kept, to say later what was right; else null."),
    ] = None

    @property
    def entries(self) -> list[tuple[str | None, Candidate, float]]:
        """Groups that were scored, best first: their names, best items, and the scores that decide."""
        groups = [*(self.groups or ()), *(self.candidate_groups or ())]
        return [(one.group, one.items[0], one.score) for one in groups if one.items] or [
            (one.label, one, one.score) for one in (*self.matches, *self.candidates)
        ]


class ThresholdsInForce(Protocol):
    """Threshold in force for each pipeline, on one state of a gallery."""

    def in_force(self, pipeline: Pipeline, selection: Selection | None = None) -> Threshold:
        """Threshold of a search that names none."""

    def with_form(self, pipeline: Pipeline, decided_by: Threshold | None = None) -> Pipeline:
        """A pipeline with the form of its group score, which comes with the calibration in force."""

    def strangers(self, decided_by: Threshold) -> StrangerScores | None:
        """Scores of queries without a mate that a threshold was measured on; None where none are kept."""


def require_score(threshold: float) -> None:
    """Refuse a threshold that no score can be compared with."""
    if not 0.0 <= threshold <= 1.0:
        raise RequestError(f"threshold is {threshold}, expected a score between 0 and 1")


def stage_devices(search: str, embed: str | None) -> dict[str, str]:
    """Device of each stage of a search; `embed` is None where nothing is embedded."""
    on_processor = dict.fromkeys(("decode", "refine", "rescore", "rerank"), "cpu")
    return {**on_processor, "search": search, **({} if embed is None else {"embed": embed})}


@dataclass(frozen=True)
class Explainer:
    """Explains what the refiner does with the queries of one search."""

    view: GalleryView
    space: SearchSpace
    refiner: ContextRefiner
    n_steps: int
    is_used: bool

    def explain_all(self, queries: FloatArray, found: Ints, items: Ints | None) -> list[ExplainedRefinement]:
        """Explain each query of a search; `found` are its candidates, `items` the queries that are items."""
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

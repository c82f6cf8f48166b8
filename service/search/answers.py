"""Answers: what a search says; commands print them, and HTTP sends them as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from vicinal.service.search.explanation import Explanation
from vicinal.service.search.threshold import Threshold


@dataclass(frozen=True)
class Candidate:
    """One scored item."""

    id: str
    label: str | None
    metadata: dict[str, Any]
    uri: str
    rank: Annotated[int, Field(description="From 1.")]
    score: Annotated[float, Field(description="Final score in [0, 1]; the threshold is applied to this.")]
    similarity: Annotated[float, Field(description="Cosine of the embeddings that were matched.")]
    initial_similarity: Annotated[float, Field(description="Cosine of the embeddings before refinement.")]
    contextual_similarity: Annotated[
        float | None,
        Field(
            description="How alike the neighborhoods are: the share of common neighbors, or with "
            "`k_reciprocal` the Jaccard similarity of the encodings; null when off."
        ),
    ]
    margin: Annotated[float | None, Field(description="Score minus threshold; null without one.")]


@dataclass(frozen=True)
class FoundGroup:
    """One scored group of items, such as a product, with its best photos."""

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
class Answer:
    """Answer to one query."""

    __pydantic_config__ = ConfigDict(json_schema_serialization_defaults_required=True)

    no_match: Annotated[bool | None, Field(description="Null when there is no threshold to decide by.")]
    # Best score of all; None where nothing could be compared.
    top_score: Annotated[float | None, Field(exclude=True)]
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
        Literal["request", "comparison", "settings"],
        Field(
            description="What named it: the request, a comparison that was put in force for the gallery, or "
            "the settings."
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

"""Request and response bodies of the HTTP API."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from vicinal.service.calibrator.evidence import Evidence
from vicinal.service.scoring.pipeline import RefineChoice, RerankChoice

__all__ = [
    "AnswerBody",
    "BatchAnswerBody",
    "BatchRequest",
    "GalleryBody",
    "GalleryListBody",
    "Problem",
    "ReadinessBody",
    "SearchOptions",
    "SearchRequest",
]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


class SearchOptions(_Request):
    """How to search."""

    limit: int = Field(10, ge=1, description="Most matches in the answer.")
    threshold: float | None = Field(
        None, ge=0.0, le=1.0, description="Decide by this score instead of the calibrated threshold."
    )
    refine: RefineChoice = Field(
        "auto",
        description="What is refined with its neighbors; `auto` is the service's setting.",
    )
    steps: int | None = Field(
        None, ge=1, description="Steps of the refiner; the service's setting when null."
    )
    rerank: RerankChoice = Field("auto", description="`auto` is the service's setting.")
    filter: str | None = Field(
        None,
        max_length=4096,
        description=(
            "Lance SQL on `id`, `label` and `metadata` that every match fulfils, such as "
            "`label = 'shoe' AND json_get_float(metadata, 'price') < 50`. It changes no score."
        ),
    )
    include_candidates: bool = Field(
        False, description="Also list the best candidates below the threshold, apart from the matches."
    )
    explain: bool = Field(
        False, description="Also say what the refiner does with the query, whether the search uses it or not."
    )


class Query(_Request):
    """One query: exactly one of the three fields."""

    image_base64: str | None = Field(None, description="An encoded image, base64.")
    embedding: list[float] | None = Field(None, description="An embedding of the service's bundle.")
    item_id: str | None = Field(None, description="An item of the gallery; it is left out of its own search.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Query:
        given = [self.image_base64, self.embedding, self.item_id]
        if sum(value is not None for value in given) != 1:
            raise ValueError("give exactly one of image_base64, embedding and item_id")
        return self

    @field_validator("image_base64")
    @classmethod
    def _is_base64(cls, value: str | None) -> str | None:
        if value is not None:
            _decode_base64(value)
        return value

    @field_validator("item_id")
    @classmethod
    def _is_text(cls, value: str | None) -> str | None:
        if value is not None:
            # JSON can spell half a surrogate pair, which is no character: nothing can store or compare it.
            value.encode()
        return value

    @property
    def image(self) -> bytes | None:
        """The decoded bytes of `image_base64`."""
        return None if self.image_base64 is None else _decode_base64(self.image_base64)


class SearchRequest(SearchOptions, Query):
    """A query and how to search for it."""


class BatchRequest(SearchOptions):
    """Several queries of one kind."""

    queries: list[Query] = Field(min_length=1)

    @model_validator(mode="after")
    def _of_one_kind(self) -> BatchRequest:
        kinds = {
            name
            for query in self.queries
            for name in ("image_base64", "embedding", "item_id")
            if getattr(query, name) is not None
        }
        if len(kinds) > 1:
            raise ValueError(f"the queries of a batch are of one kind, got {' and '.join(sorted(kinds))}")
        return self


class CandidateBody(_Response):
    """One scored item."""

    id: str
    label: str | None
    metadata: dict[str, Any]
    uri: str
    rank: int
    score: float = Field(description="Final score in [0, 1]; the threshold is applied to this.")
    similarity: float = Field(description="Cosine of the embeddings that were matched.")
    initial_similarity: float = Field(description="Cosine of the embeddings before refinement.")
    contextual_similarity: float | None = Field(
        description="How alike the neighborhoods are: the share of common neighbors, or with `k_reciprocal` "
        "the Jaccard similarity of the encodings; null when off."
    )
    margin: float | None = Field(description="Score minus threshold.")


class ThresholdBody(_Response):
    """What the answer was decided by."""

    value: float | None
    source: Literal["calibration", "by_hand", "request", "none"]
    target: str | None = Field(description="The rate that the threshold holds, such as `FPIR 5 %`.")
    calibration: str | None
    state: Literal["current", "stale", "none"] = Field(description="Whether the threshold is calibrated.")
    reason: str | None = Field(description="Why the state is not `current`.")


class ExplainedNeighborBody(_Response):
    """One neighbor in the context of a query."""

    id: str
    label: str | None
    similarity: float = Field(description="Cosine to the query, before refinement.")
    attention: list[float] = Field(description="Its share in each step.")
    place: tuple[float, float] = Field(description="Where it lies in the projection.")


class ExplanationBody(_Response):
    """The way of a query's embedding through the refiner."""

    refiner: str = Field(description="Fingerprint of the refiner.")
    is_used: bool = Field(description="Whether the search refined the query.")
    neighbors: list[ExplainedNeighborBody]
    cosines: list[float] = Field(
        description="Cosine of the embedding before refinement to that after 0, 1, … steps."
    )
    candidate: str | None = Field(description="Id of the best candidate.")
    ranks: list[int | None] = Field(
        description="Rank of the best candidate by cosine alone, for the embedding after 0, 1, … steps; null "
        "beyond 1000."
    )
    way: list[tuple[float, float]] = Field(description="Places of the embedding after 0, 1, … steps.")
    variance: tuple[float, float] = Field(description="Share of the variance on the axes of the projection.")


class AnswerBody(_Response):
    """Answer to one query."""

    no_match: bool | None = Field(description="Null when there is no threshold to decide by.")
    matches: list[CandidateBody]
    candidates: list[CandidateBody] = Field(
        description="Best items below the threshold: on request, or when there is no threshold."
    )
    threshold: ThresholdBody
    gallery: str
    version: int = Field(description="The built version that was searched.")
    revision: int = Field(description="The state of its live changes that was searched.")
    n_searched: int = Field(description="Number of items that could have been matches.")
    bundle: str
    pipeline: str
    pipeline_source: Literal["request", "comparison", "settings"] = Field(
        description="What named it: the request, a comparison that was put in force for the gallery, or the "
        "settings."
    )
    milliseconds: dict[str, float]
    explanation: ExplanationBody | None = Field(description="Null unless asked for with `explain`.")


class BatchAnswerBody(_Response):
    """Answers in the order of the queries."""

    answers: list[AnswerBody]


class CalibrationBody(_Response):
    """The calibration in use."""

    id: str
    target: str | None
    threshold: float
    rates: dict[str, float | None] | None
    evidence: Evidence | None = Field(
        description="Intervals of the rates and what they let expect; null for a threshold set by hand."
    )


class GalleryBody(_Response):
    """One gallery."""

    name: str
    version: int = Field(description="The built version that is searched.")
    revision: int = Field(description="The state of its live changes.")
    n_items: int
    n_labels: int
    graph_staleness: float = Field(
        description="Share of the items that changed since the neighbor lists of all items were made."
    )
    dim: int
    index: str
    bundle: str
    bundle_name: str
    calibration: CalibrationBody | None
    calibration_problem: str | None = Field(description="Why the calibration cannot be used.")


class GalleryListBody(_Response):
    """All galleries."""

    galleries: list[GalleryBody]


class GalleryStateBody(_Response):
    """Whether one gallery can be searched."""

    name: str
    problem: str | None
    bundle: str | None = Field(
        None, description="Fingerprint of the bundle that it is searched with; null when it cannot be."
    )
    pipeline: str | None = Field(None, description="Pipeline of searches without further options.")
    pipeline_source: Literal["settings", "comparison"] = Field(
        "settings", description="What chose it: the settings, or a comparison of pipelines."
    )
    pipeline_reason: str | None = Field(None, description="Why a pipeline that was chosen is not used.")
    calibration: Literal["current", "stale", "none"] = Field(
        "none", description="Whether the threshold of searches without further options is calibrated."
    )
    calibration_reason: str | None = Field(None, description="Why it is not `current`.")


class RedisBody(_Response):
    """Whether Redis answers; without it searches go on, only slower."""

    available: bool
    problem: str | None


class ReadinessBody(_Response):
    """Whether searches can be answered, and by what."""

    ready: bool
    reasons: list[str]
    bundle: str
    refiner: str | None = Field(description="Fingerprint of the bundle's refiner; null without one.")
    refine: str = Field(description="What `auto` refines: `off`, `gallery`, `query` or `both`.")
    provider: str = Field(description="Execution provider of ONNX Runtime that is really in use.")
    other_bundles: list[str] = Field(
        description="Fingerprints of bundles that are open for galleries of another bundle."
    )
    galleries: list[GalleryStateBody]
    redis: RedisBody | None = Field(description="Null when no address is set.")


class Problem(_Response):
    """RFC 9457 problem document."""

    type: str
    title: str
    status: int
    detail: str


def _decode_base64(text: str) -> bytes:
    # Browsers give data URLs: everything before the comma says what the rest is.
    body = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"it is not base64: {error}") from error

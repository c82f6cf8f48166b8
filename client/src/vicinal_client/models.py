"""Answers of the server as frozen models.

Names are those of the API. What a newer server sends besides is kept in `model_extra`, and so are the members
of large records that are not typed here. Texts of a fixed choice are `str`, so that a further choice of a
newer server is no error.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Activation",
    "ActivePipeline",
    "AddedItem",
    "Addition",
    "Alias",
    "AliasList",
    "Answer",
    "BatchAnswer",
    "Calibration",
    "CalibrationHistory",
    "CalibrationRecord",
    "CalibrationSummary",
    "Candidate",
    "CompactionState",
    "Comparison",
    "Deletion",
    "ExplainedRefinement",
    "Explanation",
    "FoundGroup",
    "Gallery",
    "GalleryCalibration",
    "GalleryList",
    "GalleryState",
    "Item",
    "ItemPage",
    "Job",
    "JobFailure",
    "JobList",
    "JobProgress",
    "Limits",
    "Rates",
    "Readiness",
    "RefusedItem",
    "SentItem",
    "Target",
    "Threshold",
    "Variant",
    "Version",
    "VersionList",
]

_FINAL_STATES = ("succeeded", "failed", "cancelled")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class Threshold(_Model):
    """What decided an answer.

    Attributes:
        value: Lowest score of a match; None where nothing decides.
        source: `calibration`, `by_hand`, `request`, `bundle` or `none`.
        target: Such as `FPIR 5 %`.
        calibration: Id of the calibration.
        state: Whether it still holds: `current`, `stale`, `broken` (tried, and it does not), `default` (of
            the model), `by_hand` or `none`.
        reason: Why it is not `current`.
        drift: `strong` when searches no longer look like the queries it was measured on.
    """

    value: float | None
    source: str
    target: str | None
    calibration: str | None
    state: str
    reason: str | None
    note: str | None
    drift: str | None


class Candidate(_Model):
    """One scored item.

    Attributes:
        rank: From 1.
        score: In [0, 1]; the threshold is applied to it.
        similarity: Cosine of the embeddings that were matched.
        initial_similarity: Cosine of the embeddings before refinement.
        contextual_similarity: How alike the neighborhoods are; None without re-ranking.
        margin: Score minus threshold; None without one.
    """

    id: str
    label: str | None
    metadata: dict[str, Any]
    uri: str
    rank: int
    score: float
    similarity: float
    initial_similarity: float
    contextual_similarity: float | None
    margin: float | None


class FoundGroup(_Model):
    """One scored group of items, such as a product, with its best photos in `items`."""

    group: str | None
    label: str | None
    rank: int
    score: float
    margin: float | None
    n_items: int
    items: list[Candidate]


class ExplainedRefinement(_Model):
    """What the refiner does with a query."""

    refiner: str
    is_used: bool
    cosines: list[float]
    candidate: str | None


class Explanation(_Model):
    """What a search did with a query.

    Attributes:
        devices: What each stage ran on.
        refinement: None where the bundle has no refiner.
    """

    devices: dict[str, str]
    refinement: ExplainedRefinement | None


class Answer(_Model):
    """Answer to one query.

    Attributes:
        no_match: None when there is no threshold to decide by.
        matches: Items whose score reaches the threshold, best first.
        candidates: Best items below it: on request, or when there is none.
        version: The built version that was searched.
        revision: The state of its live changes.
        n_searched: Number of items that could have been matches.
        milliseconds: Time by stage; in a batch, of the whole batch.
        groups: Groups whose score reaches the threshold; None where items are decided.
        explanation: None unless asked for.
    """

    no_match: bool | None
    matches: list[Candidate]
    candidates: list[Candidate]
    threshold: Threshold
    gallery: str
    version: int
    revision: int
    n_searched: int
    bundle: str
    pipeline: str
    pipeline_source: str
    milliseconds: dict[str, float]
    groups: list[FoundGroup] | None
    candidate_groups: list[FoundGroup] | None
    explanation: Explanation | None


class BatchAnswer(_Model):
    """Answers in the order of the queries."""

    answers: list[Answer]


class GalleryCalibration(_Model):
    """The calibration that a gallery's searches use."""

    id: str
    target: str | None
    threshold: float
    rates: dict[str, float | None] | None


class Gallery(_Model):
    """One gallery.

    Attributes:
        aliases: Further names that it is reached by.
        graph_staleness: Share of the items that changed since all neighbor lists were made.
        threshold: What searches without further options are decided by, and whether it holds.
        calibration_problem: Why the calibration cannot be used.
    """

    name: str
    aliases: list[str] = []
    version: int
    revision: int
    n_items: int
    n_labels: int
    graph_staleness: float
    dim: int
    index: str
    bundle: str
    bundle_name: str
    calibration: GalleryCalibration | None
    threshold: Threshold | None = None
    calibration_problem: str | None


class GalleryList(_Model):
    """All galleries.

    Attributes:
        galleries: Those that can be searched.
        problems: Why each of the others cannot be searched, by name.
    """

    galleries: list[Gallery]
    problems: dict[str, str] = Field(default_factory=dict)


class Alias(_Model):
    """A further name that a gallery is reached by."""

    alias: str
    gallery: str


class AliasList(_Model):
    """All aliases."""

    aliases: list[Alias]


class Version(_Model):
    """One version of a gallery, with the bytes that it takes on the disk."""

    version: int
    created_at: datetime
    kind: str
    is_active: bool
    revision: int
    n_items: int | None
    n_labels: int | None
    index: str | None
    bundle: str | None
    derived_bytes: int
    table_bytes: int
    own_table_bytes: int
    comparison: str | None = None


class VersionList(_Model):
    """Versions of a gallery, newest first."""

    versions: list[Version]


class CompactionState(_Model):
    """How far the live changes of a gallery are from being a new version.

    Attributes:
        state: `idle`, `due` or `running`.
        n_changes: What searches carry along because of live changes.
        problem: Why the last attempt failed.
    """

    state: str
    n_changes: int
    version: int | None
    problem: str | None


class Item(_Model):
    """One item."""

    id: str
    label: str | None
    uri: str
    metadata: dict[str, Any]


class ItemPage(_Model):
    """One page of items; `next` is the cursor of the next one, None at the end."""

    items: list[Item]
    next: str | None


class SentItem(_Model):
    """One image or embedding of a request; `place` is its place there, from 0."""

    place: int
    id: str
    filename: str | None


class AddedItem(SentItem):
    """An item that is in the gallery now; `replaced` where there was one of its id before."""

    replaced: bool


class RefusedItem(SentItem):
    """One that is not in the gallery, and why; `type` is the problem type, as if it had come alone."""

    type: str
    reason: str


class Addition(_Model):
    """What became of the images or embeddings of one request.

    Attributes:
        unchanged: Those that were there already under their id.
        skipped: Those whose id belongs to another one, with `on_conflict="skip"`.
    """

    added: list[AddedItem]
    unchanged: list[SentItem]
    skipped: list[SentItem]
    refused: list[RefusedItem]
    n_items: int
    revision: int


class Deletion(_Model):
    """How many items were removed, and are left."""

    removed: int
    n_items: int
    revision: int


class JobFailure(_Model):
    """One file that a job could not use, and why."""

    id: str
    path: str
    reason: str


class JobProgress(_Model):
    """How far a job is; `stage_done` of `stage_total` units of the stage, `done` of `total` items."""

    stage: str | None = None
    stage_done: int = 0
    stage_total: int = 0
    total: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    rate: float | None = None
    seconds_left: float | None = None
    failures: list[JobFailure] = []


class Job(_Model):
    """One job.

    Attributes:
        kind: What it does, such as `reindex`.
        state: `queued`, `running`, `succeeded`, `failed` or `cancelled`.
        revision: Grows by one with every change of the record.
        problem: Why it failed.
        problem_type: Stable type of that problem, as an answer would carry it.
        result: What it made.
    """

    id: str
    kind: str
    gallery: str
    request: dict[str, Any]
    state: str = "queued"
    cancel_requested: bool = False
    revision: int = 0
    attempt: int = 0
    progress: JobProgress = JobProgress()
    problem: str | None = None
    problem_type: str | None = None
    problem_members: dict[str, Any] = {}
    result: dict[str, Any] | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def is_final(self) -> bool:
        """Whether nothing will change any more."""
        return self.state in _FINAL_STATES


class JobList(_Model):
    """Jobs, newest first."""

    jobs: list[Job]


class Target(_Model):
    """The rate that a threshold was chosen for, and its value as a share."""

    rate: str
    value: float


class Rates(_Model):
    """Measured rates; None where there was nothing to measure one on."""

    far: float | None
    frr: float | None
    fpir: float | None
    fnir: float | None
    hit_rate_1: float | None


class CalibrationRecord(_Model):
    """What a calibration measured; the evidence with its intervals is in `model_extra`."""

    id: str
    created_at: datetime
    source: str
    target: Target | None
    threshold: float
    rates: Rates | None
    bundle: str
    version: int
    n_items: int
    n_with_mate: int = 0
    n_without_mate: int = 0
    n_labels: int = 0
    warnings: list[str] = []


class Calibration(_Model):
    """One calibration.

    Attributes:
        state: Whether it still holds, as in `Threshold`.
        reason: Why it is not `current`.
        last_check: Whether what it promised held for new photos, when that was tried last.
    """

    record: CalibrationRecord
    is_active: bool
    active_since: datetime | None
    state: str
    reason: str | None
    last_check: dict[str, Any] | None = None


class CalibrationSummary(_Model):
    """One calibration of a history; `state` says whether it holds, None where it is not in force."""

    id: str
    created_at: datetime
    source: str
    target: str | None
    threshold: float
    rates: Rates | None
    pipeline: str
    version: int
    n_items: int
    is_active: bool
    state: str | None = None


class Activation(_Model):
    """When a calibration was put in force."""

    kind: str
    pipeline: str
    calibration: str
    at: datetime | None


class CalibrationHistory(_Model):
    """Calibrations of a gallery, newest first, and what was in force when."""

    calibrations: list[CalibrationSummary]
    activations: list[Activation]


class Variant(_Model):
    """One of the compared variants; its figures and flips are in `model_extra`."""

    version: int
    bundle: str
    problem: str | None


class Comparison(_Model):
    """A comparison; `recommended` is the number of a variant, from 0."""

    id: str
    created_at: datetime
    gallery: str
    n_queries: int
    n_with_mate: int
    n_labels: int
    variants: list[Variant]
    recommended: int
    reason: str
    warnings: list[str]


class ActivePipeline(_Model):
    """What searches without further options are made with, and the calibration that decides them."""

    version: int
    pipeline: str
    source: str
    comparison: str | None
    calibration: str | None
    since: datetime | None
    threshold: float | None
    state: str
    reason: str | None


class GalleryState(_Model):
    """Whether a gallery can be searched.

    Attributes:
        problem: Why not.
        calibration: Whether the threshold of searches without further options holds, as in `Threshold`.
        calibration_reason: Why it is not `current`.
    """

    name: str
    problem: str | None
    bundle: str | None
    calibration: str = "none"
    calibration_reason: str | None = None


class Limits(_Model):
    """What the server takes in one request."""

    max_image_bytes: int = 32 * 2**20
    max_request_bytes: int = 256 * 2**20
    max_batch: int = 64
    max_embeddings: int = 1000
    max_limit: int = 1000


class Readiness(_Model):
    """Whether searches can be answered, and by what."""

    ready: bool
    reasons: list[str]
    bundle: str | None
    provider: str | None
    galleries: list[GalleryState]
    limits: Limits = Limits()

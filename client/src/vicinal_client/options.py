"""Options of calls, by the API's names; one that is left out, or None, is the server's to choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

__all__ = ["CalibrationOptions", "ComparisonOptions", "PipelineOptions", "ReindexOptions", "SearchOptions"]


class PipelineOptions(TypedDict, total=False):
    """Which pipeline a call is about.

    Attributes:
        refine: What is refined with its neighbors.
        steps: Steps of the refiner.
        rerank: How the best are ranked again.
        group_by: What is decided as one, such as a product: `label`, a metadata key, or `off`.
    """

    refine: Literal["auto", "off", "gallery", "query", "both"] | None
    steps: int | None
    rerank: Literal["auto", "off", "contextual", "k_reciprocal"] | None
    group_by: str | None


class SearchOptions(PipelineOptions, total=False):
    """How to search.

    Attributes:
        limit: Most matches; with groups, most groups.
        threshold: Decide by this score, in [0, 1], instead of the calibrated threshold.
        filter: What every match fulfils, such as `label = 'shoe' AND metadata.price < 50`.
        include_candidates: Also list the best candidates below the threshold.
        explain: Also say what each stage ran on, and what the refiner does with the query.
    """

    limit: int | None
    threshold: float | None
    filter: str | None
    include_candidates: bool | None
    explain: bool | None


class CalibrationOptions(PipelineOptions, total=False):
    """What to calibrate.

    Attributes:
        target: Such as `fpir=5%` or `precision=95%`.
        queries: Labelled queries as a source that the server reads.
        activate: Whether searches use the threshold as soon as it is there; by default where it promises no
            less than the one in force.
        max_queries: Sample at most this many queries.
        group_score: How the scores of a group's items become one.
        visits_by: What tells which photos were taken together: `auto`, `none` or a metadata column.
        coarse_labels: Coarse label of each label.
        coarse_by: Metadata column of the coarse label.
        absent: Expected share of searches for things that the gallery lacks.
    """

    target: str | None
    queries: str | None
    activate: bool | None
    max_queries: int | None
    group_score: str | None
    visits_by: str | None
    coarse_labels: Mapping[str, str] | None
    coarse_by: str | None
    absent: float | None


class ComparisonOptions(TypedDict, total=False):
    """What to compare.

    Attributes:
        versions: Versions besides the active one.
        pipelines: Pipelines to try, as a grid.
        target: As for a calibration.
        queries: Labelled queries as a source that the server reads.
        pictures: Unlabelled pictures as a source that the server reads.
        visits_by: As for a calibration.
        max_queries: Sample at most this many queries.
        seed: Decides what is sampled.
    """

    versions: Sequence[int] | None
    pipelines: Mapping[str, Any] | None
    target: str | None
    queries: str | None
    pictures: str | None
    visits_by: str | None
    max_queries: int | None
    seed: int | None


class ReindexOptions(TypedDict, total=False):
    """What to make of a gallery.

    Attributes:
        source: Folder or manifest that the server reads; without one the gallery's own items.
        prefix: Stands before every id.
        label_from: Where labels come from.
        path_column: Column of the paths of a manifest.
        label_column: Column of its labels.
        id_column: Column of its ids.
        embedding_column: Column of ready embeddings.
        include_hidden: Whether hidden files and folders are read too.
        space: What made them.
        bundle: Name of another bundle.
        index: Factory string of another vector index.
        on_conflict: What to do with an image whose id belongs to another one.
        delete: Also remove what the source no longer holds.
        restore: Bring back what was removed and the source still holds.
        max_failures: Most images or rows that may be left out.
        activate: Whether searches use it as soon as it is there, or it waits.
        activate_if: What must hold of the comparison with the active version.
        comparison: How it is compared.
    """

    source: str | None
    prefix: str | None
    label_from: str | None
    path_column: str | None
    label_column: str | None
    id_column: str | None
    embedding_column: str | None
    include_hidden: bool | None
    space: str | None
    on_conflict: Literal["error", "replace", "skip"] | None
    bundle: str | None
    index: str | None
    delete: bool | None
    restore: bool | None
    max_failures: int | None
    activate: Literal["automatic", "manual"] | None
    activate_if: Mapping[str, Any] | None
    comparison: Mapping[str, Any] | None

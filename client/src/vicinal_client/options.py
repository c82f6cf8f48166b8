"""Options of calls; one that is left out, or None, is the server's to choose.

Made from `openapi.json` by `client/generate.py`: `make openapi`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

__all__ = [
    "CalibrationOptions",
    "ComparisonOptions",
    "GalleryOptions",
    "PipelineOptions",
    "ReindexOptions",
    "SearchOptions",
]


class PipelineOptions(TypedDict, total=False):
    """Options of `roll_back`.

    Attributes:
        refine: What the pipeline refines; `auto` is the service's.
        steps: Steps of the refiner; the service's when null.
        rerank: How it re-ranks; `auto` is the service's.
        group_by: What it decides as one: `label`, a metadata key, or `off`; `auto` is the service's.
    """

    refine: Literal["auto", "off", "gallery", "query", "both"] | None
    steps: int | None
    rerank: Literal["auto", "off", "contextual"] | None
    group_by: str | None


class SearchOptions(PipelineOptions, total=False):
    """Options of `search_batch`.

    Attributes:
        limit: Most matches in the answer; with groups, most groups.
        threshold: Decide by this score instead of the calibrated threshold.
        filter: What every match fulfils: comparisons (= != < <= > >=, IN, LIKE, BETWEEN, IS NULL) of `id`,
            `label` and `metadata.NAME`, joined by AND, OR, NOT and parentheses. It changes no score.
        sort_by: Order of what reaches the threshold: `score` (best first), `added` (oldest first), `label` or
            `metadata.NAME`, each with ` desc` behind to turn it around; items without a value come last. The
            100 best, or `limit` if that is more, are sorted and cut to `limit`; `rank` stays that of the
            score. Of a group its best photo counts.
        include_candidates: Also list the best candidates below the threshold, apart from the matches.
        mark_copies: Also say of each item whether it is a copy of a better one of the answer.
        explain: Also say what each stage ran on, and what the refiner does with the query, whether the search
            uses it or not.
    """

    limit: int | None
    threshold: float | None
    filter: str | None
    sort_by: str | None
    include_candidates: bool | None
    mark_copies: bool | None
    explain: bool | None


class CalibrationOptions(PipelineOptions, total=False):
    """Options of `start_calibration`.

    Attributes:
        queries: Labelled queries, of any source that a re-index takes, or embeddings with labels. Without:
            every labelled item is left out once.
        label_from: Where labels of the queries come from: `folder` (the topmost), `column` or
            `regex:PATTERN`; when null the column of a manifest, the folder of a folder.
        path_column: Column of their paths or images, `path` when null.
        label_column: Column of their labels, `label` when null.
        id_column: Column of their ids, `id` when null.
        embedding_column: Column of ready embeddings, `embedding` when null.
        try_rerank: Whether re-ranking with `k` 4, 8 and 16 is tried on a sample first, and what is surely
            better put in force with the threshold; when null, where nobody chose how to re-rank.
        answers: Use what persons said of kept searches, in place of queries: of those that were drawn, each
            with the weight of its draw.
        target: `fpir=5%`, `fnir=20%`, `far=0.001`, `frr=10%`, `precision=95%`, `utility=mean` or
            `utility=worst`.
        sure: How surely an FPIR or FNIR holds for labels that nobody has seen: `95%`, or `mean` for in the
            mean over them; null counts it on the queries.
        coarse_labels: Coarse label of each label, to tell near from far queries without a mate.
        coarse_by: Metadata column that holds the coarse label, in place of `coarse_labels`.
        visits_by: What tells which photos were taken together, which are never mates: `auto`, `none` or a
            metadata column.
        group_score: How the scores of a group's items become one, where groups are decided; `auto` tries all
            and keeps `max`, the best photo, unless another is surely better.
        max_queries: Sample at most this many queries.
        absent: Share of real searches for things that the gallery lacks, which a precision is for; when null
            that of the queries, and half where every query is tried both ways.
        activate: Whether searches use the threshold as soon as it is there; when null they do unless it
            promises less than the one in force, which `objection` in the job's result then says.
    """

    queries: str | None
    label_from: str | None
    path_column: str | None
    label_column: str | None
    id_column: str | None
    embedding_column: str | None
    try_rerank: bool | None
    answers: bool | None
    target: str | None
    sure: str | None
    coarse_labels: Mapping[str, str] | None
    coarse_by: str | None
    visits_by: str | None
    group_score: Literal["auto", "max", "mean", "lme", "vote", "share", "learned"] | None
    max_queries: int | None
    absent: float | None
    activate: bool | None


class ComparisonOptions(TypedDict, total=False):
    """Options of `start_comparison`.

    Attributes:
        target: What every variant is calibrated for; that of the threshold in force when null.
        queries: Labelled queries below `sources_dir`: folder of class folders, manifest or `.npz` file; when
            null, every labelled item that all versions hold alike is left out once.
        pictures: Folder or manifest of any pictures below `sources_dir`: which decisions flip.
        visits_by: What tells which photos were taken together, which are never mates: `auto`, `none` or a
            metadata column; as the calibration in force when null.
        max_queries: Sample at most this many queries.
        seed: Seed of the sample and of the draws.
        versions: Other versions of the gallery, each with its own bundle and pipeline.
        pipelines: Pipelines to try on each version; the usual ones when null and no version is named.
        label_from: Where labels of the queries come from: `folder` (the topmost), `column` or
            `regex:PATTERN`; when null the column of a manifest, the folder of a folder.
        path_column: Column of their paths or images, `path` when null.
        label_column: Column of their labels, `label` when null.
        id_column: Column of their ids, `id` when null.
        embedding_column: Column of ready embeddings, `embedding` when null.
    """

    target: str | None
    queries: str | None
    pictures: str | None
    visits_by: str | None
    max_queries: int | None
    seed: int | None
    versions: Sequence[int] | None
    pipelines: Mapping[str, Any] | None
    label_from: str | None
    path_column: str | None
    label_column: str | None
    id_column: str | None
    embedding_column: str | None


class GalleryOptions(TypedDict, total=False):
    """Options of `put_gallery`.

    Attributes:
        space: What makes the ready embeddings that it will hold, such as `clip@2`.
        dim: Length of these embeddings.
    """

    space: str | None
    dim: int | None


class ReindexOptions(TypedDict, total=False):
    """Options of `reindex_gallery`.

    Attributes:
        source: Folder, manifest, dataset or ready embeddings below `sources_dir`, or a public data set of the
            hub, `hf:owner/name`, where addresses are allowed: what is new or changed there is taken over, and
            what the gallery holds stays.
        prefix: Stands before every id; the own name of a folder when null, none when empty.
        label_from: Where labels come from: `folder` (the topmost), `column`, `none`, `regex:PATTERN` (its one
            group, in the path), or `auto`: the column of a manifest, the folder unless folders look like
            albums.
        path_column: Column of the paths, `path` when null.
        label_column: Column of the labels, `label` when null.
        id_column: Column of the ids, `id` when null.
        embedding_column: Column of ready embeddings, `embedding` when null.
        include_hidden: Also read hidden files and folders: bins, thumbnails and snapshots of systems.
        space: What made the ready embeddings of the source, `NAME` or `NAME@VERSION`; the space of the
            gallery when null.
        on_conflict: What to do with an image whose id belongs to another image of another source; with
            `error` nothing is done when there is one.
        delete: Remove items that came from this source and that it no longer lists.
        restore: Bring back items that were removed and that this source still lists; they are left out
            without it.
        bundle: Name of a bundle below `bundles_dir`.
        index: Kind of the vector index: `auto`, `graph` (`HNSW16,SQ8`: single queries in less time, for a
            longer build and a larger file), `Flat`, `SQ8`, `PQ16x4fs`, `HNSW32`, or inverted lists before
            them such as `IVF1024,SQ8`; or `milvus`, at the address that is the setting `milvus_url`.
        refine: Refiner of the version: `bundle` for that of the bundle, if it has one, `auto` for that of the
            searched version.
        max_failures: Most images or rows that may be left out.
        activate: `automatic`: searches use the new version as soon as it is there, or when what is asked in
            `activate_if` holds; `manual`: it is compared with the active one and waits.
        activate_if: What must hold of the comparison with the active version, at the bad end.
        comparison: How the new version is compared with the active one.
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
    delete: bool | None
    restore: bool | None
    bundle: str | None
    index: str | None
    refine: Literal["auto", "bundle"] | None
    max_failures: int | None
    activate: Literal["automatic", "manual"] | None
    activate_if: Mapping[str, Any] | None
    comparison: Mapping[str, Any] | None

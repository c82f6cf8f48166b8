"""Variants that a comparison tries, versions as they were built with their own bundles and pipelines, and the
queries that all are tried on, embedded by the bundle of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vicinal.indexer.errors import BundleMismatchError, GalleryNotRefinedError, SourceError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.sources import Refuse, SourceOptions, holds_embeddings
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.progress import OnProgress
from vicinal.models.refiner_manifest import Sides
from vicinal.service.comparing.record import ComparisonRequest
from vicinal.service.errors import CalibrationRecordError, RequestError
from vicinal.service.galleries.bundles import ServedBundle, ServedBundles
from vicinal.service.measuring.queries import LabelledQueries, QueryReading, read_queries
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.measuring.visits import Visits
from vicinal.service.search.item_spaces import OpenedRefiner, open_refiner
from vicinal.service.search.pipeline import Group, Pipeline, PipelineStore, choose_pipeline

# Ways to re-rank that are tried: contextual ones by neighborhood and weight.
_CONTEXTUAL = ((4, 0.1), (4, 0.3), (8, 0.1), (8, 0.3))
_RERANKS: tuple[dict[str, Any], ...] = (
    {"method": "off"},
    *({"method": "contextual", "k": k, "beta": beta} for k, beta in _CONTEXTUAL),
)
_SCHEMA = pa.schema([("id", pa.string()), ("content_sha256", pa.binary()), ("label", pa.string())])


@dataclass(frozen=True)
class OpenedVariant:
    """Version and what it is searched with; without its bundle (None) its stored embeddings alone."""

    gallery: Gallery
    snapshot: Snapshot
    served: ServedBundle | None
    pipeline: Pipeline
    refinement: OpenedRefiner | None = None
    problem: str | None = None
    is_searchable: bool = True

    @property
    def version(self) -> int:
        """Its number."""
        return self.snapshot.manifest.version

    def record_in_force(self, *, is_own_form: bool = False) -> CalibrationRecord | None:
        """The calibration that decides when it is searched; never one of another bundle."""
        activation = self.gallery.activation
        store = CalibrationStore(self.gallery.path)
        if store.has_own(self.version):
            store.calibrated_as = self.version
        elif activation is not None and self.version in {activation.version, *activation.calibrated}:
            store.calibrated_as = activation.calibration_of(self.version)
        else:
            return None
        try:
            record = store.active(self.pipeline)
        except CalibrationRecordError:
            # Its searches fail with it; the comparison says that there is no threshold.
            return None
        if record is None or record.bundle != self.snapshot.manifest.bundle:
            return None
        # One of another form of group score decides nothing of this one.
        return record if is_own_form or record.pipeline.key == self.pipeline.key else None


def open_variants(
    gallery: Gallery, bundles: ServedBundles, request: ComparisonRequest
) -> tuple[list[OpenedVariant], list[str]]:
    """Variants that a comparison tries, the present one first, and what of the pipelines cannot be tried."""
    active = gallery.active_version
    if active is None or active in request.versions:
        raise RequestError(f"version {active} of gallery '{gallery.name}' is the active one: name another")
    tries_pipelines = request.pipelines or request.group_by is not None or not request.versions
    found: list[OpenedVariant] = []
    warnings: list[str] = []
    for version in dict.fromkeys((active, *request.versions)):
        own = _open_version(gallery, version, bundles)
        found.append(own)
        if tries_pipelines and own.served is not None:
            others, left_out = _with_pipelines(own, own.served, request.group_by)
            found += others
            warnings += left_out
    if len(found) < 2:
        raise RequestError(
            "there is nothing to compare with the present variant: name a version, or more pipelines"
        )
    return found, warnings


def _open_version(gallery: Gallery, version: int, bundles: ServedBundles) -> OpenedVariant:
    """A version with its own pipeline; without its bundle, its stored embeddings can still be searched."""
    snapshot = gallery.snapshot(version)
    try:
        served = bundles.resolve(gallery, snapshot.manifest)
    except BundleMismatchError as error:
        bare = Pipeline(rerank=bundles.settings.pipeline.rerank)
        problem = f"the bundle of version {version} is not here: {error}"
        return OpenedVariant(gallery, snapshot, None, bare, problem=problem)
    chosen = PipelineStore(gallery.path).resolve(served.pipeline, served.bundle)
    own = OpenedVariant(gallery, snapshot, served, chosen.pipeline)
    record = own.record_in_force(is_own_form=True)
    if record is not None:
        own = replace(own, pipeline=record.pipeline)
    try:
        return replace(own, refinement=_refinement(own, own.pipeline))
    except GalleryNotRefinedError as error:
        return replace(own, problem=str(error), is_searchable=False)


def _with_pipelines(
    own: OpenedVariant, served: ServedBundle, group_by: str | None
) -> tuple[list[OpenedVariant], list[str]]:
    """The other pipelines on a version, and sides that are left out, each with its reason."""
    found: dict[str, OpenedVariant] = {own.pipeline.key: own}
    left_out = []
    group = own.pipeline.group if group_by is None else Group(by=group_by)
    possible: tuple[Sides, ...] = get_args(Sides) if served.refiner is not None else ("off",)
    for sides in possible:
        refined = choose_pipeline(own.pipeline, "auto", refine=sides, bundle=served.bundle)
        try:
            refinement = _refinement(own, refined)
        except GalleryNotRefinedError as error:
            left_out.append(f"refinement of {sides} was not tried: {error}")
            continue
        for changes in _RERANKS:
            rerank = own.pipeline.rerank.model_copy(update=changes)
            pipeline = Pipeline(refine=refined.refine, rerank=rerank, group=group)
            other = OpenedVariant(own.gallery, own.snapshot, served, pipeline, refinement)
            found.setdefault(pipeline.key, other)
    return list(found.values())[1:], left_out


def _refinement(own: OpenedVariant, pipeline: Pipeline) -> OpenedRefiner | None:
    refiner = None if own.served is None else own.served.refiner
    return open_refiner(pipeline, refiner, own.gallery.name, own.snapshot)


def common_items(versions: Sequence[OpenedVariant], visits: Sequence[Visits | None]) -> list[LabelledQueries]:
    """Labelled items with the same picture and label in all versions, as queries that leave them out."""
    tables = [_items(one.gallery, one.snapshot.manifest.revision) for one in versions]
    alike = reduce(lambda left, right: left.join(right, keys=_SCHEMA.names, join_type="inner"), tables)
    labelled = alike.filter(pc.is_valid(alike["label"])).sort_by("id")
    found = []
    for one, own in zip(versions, visits, strict=True):
        queries = LabelledQueries.leave_one_out(one.snapshot, own)
        rows = pc.index_in(labelled["id"], pa.array(queries.ids, pa.string()))
        found.append(queries.take(np.asarray(rows, dtype=np.int64)))
    return found


def read_common(
    source: Path | str,
    versions: Sequence[OpenedVariant],
    *,
    visit_column: str | None,
    refuse: Refuse,
    on_stage: OnProgress,
    options: SourceOptions | None,
    warnings: list[str],
) -> list[LabelledQueries]:
    """Queries from outside that every bundle can embed, for each version; others are warned of."""
    readings: dict[str, QueryReading] = {}
    for one in versions:
        served = one.served
        if served is None:
            raise SourceError(one.problem or "its bundle is not here")
        if served.bundle.fingerprint in readings:
            continue
        if readings and holds_embeddings(source, options):
            raise SourceError(
                f"'{Path(source).name}' holds embeddings of one bundle: give pictures for several"
            )
        readings[served.bundle.fingerprint] = read_queries(
            source,
            served.embedder,
            visit_column=visit_column,
            refuse=refuse,
            on_progress=on_stage,
            options=options,
        )
    usable = set.intersection(*({item.id for item in one.items} for one in readings.values()))
    found = []
    for one in versions:
        reading = readings[one.snapshot.manifest.bundle]
        rows = np.flatnonzero([item.id in usable for item in reading.items])
        # What is warned of below is of all bundles.
        found.append(replace(reading.labelled().take(rows), warnings=()))
    if n_refused := reading.total - len(usable):
        warnings.append(f"{n_refused} of {reading.total} queries in '{Path(source).name}' cannot be used")
    return found


def of_other_items(present: OpenedVariant, other: OpenedVariant) -> tuple[bool, bool]:
    """Tell whether two versions hold other items as they are searched, and the present one changed live."""
    activation = present.gallery.activation
    known = {} if activation is None else activation.known_revisions
    built = [one.snapshot.manifest.revision for one in (present, other)]
    revisions = [
        known.get(one.version, revision) for one, revision in zip((present, other), built, strict=True)
    ]
    before, after = ({*_items(present.gallery, one)["id"].to_pylist()} for one in revisions)
    return before != after, revisions[0] != built[0]


def _items(gallery: Gallery, revision: int) -> pa.Table:
    # Metadata of a schema says nothing about its rows, and joins want equal ones.
    return gallery.table.columns(revision, _SCHEMA.names).replace_schema_metadata(None).cast(_SCHEMA)

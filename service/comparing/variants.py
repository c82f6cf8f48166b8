"""Variants that a comparison tries: versions as they were built, each with its own bundle and pipelines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

from vicinal.calibration import Target
from vicinal.indexer.errors import BundleMismatchError, GalleryNotRefinedError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.refiner_manifest import Sides
from vicinal.service.comparing.record import ComparisonRequest, PipelineGrid
from vicinal.service.errors import CalibrationRecordError, RequestError
from vicinal.service.galleries.bundles import ServedBundle, ServedBundles
from vicinal.service.measuring.group_trials import group_forms
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.search.item_spaces import OpenedRefiner, open_refiner
from vicinal.service.search.pipeline import ActivePipelineFile, Group, Pipeline, choose_pipeline


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
        store = CalibrationStore(self.gallery.calibrations_path)
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

    def known_record(self, target: Target | None, *, is_present: bool) -> CalibrationRecord | None:
        """The calibration that it has and keeps: the one in force, or its own for the same target."""
        record = self.record_in_force()
        if record is None or is_present:
            return record
        return record if record.version == self.version and record.target == target else None


def open_variants(
    gallery: Gallery, bundles: ServedBundles, request: ComparisonRequest
) -> tuple[list[OpenedVariant], list[str]]:
    """Variants that a comparison tries, the present one first, and what of the pipelines cannot be tried."""
    active = gallery.active_version
    if active is None or active in request.versions:
        raise RequestError(f"version {active} of gallery '{gallery.name}' is the active one: name another")
    grid = request.pipelines or (None if request.versions else PipelineGrid())
    found: list[OpenedVariant] = []
    warnings: list[str] = []
    for version in dict.fromkeys((active, *request.versions)):
        own = _open_version(gallery, version, bundles)
        found.append(own)
        if grid is not None and own.served is not None:
            others, left_out = _with_pipelines(own, own.served, grid)
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
    chosen = ActivePipelineFile(gallery.calibrations_path).resolve(served.pipeline, served.bundle)
    own = OpenedVariant(gallery, snapshot, served, chosen.pipeline)
    record = own.record_in_force(is_own_form=True)
    if record is not None:
        own = replace(own, pipeline=record.pipeline)
    try:
        return replace(own, refinement=_refinement(own, own.pipeline))
    except GalleryNotRefinedError as error:
        return replace(own, problem=str(error), is_searchable=False)


def _with_pipelines(
    own: OpenedVariant, served: ServedBundle, grid: PipelineGrid
) -> tuple[list[OpenedVariant], list[str]]:
    """The other pipelines on a version, and sides that are left out, each with its reason."""
    found: dict[str, OpenedVariant] = {own.pipeline.key: own}
    left_out = []
    group = own.pipeline.group if grid.group_by is None else Group(by=grid.group_by)
    possible: tuple[Sides, ...] = get_args(Sides) if served.refiner is not None else ("off",)
    for sides in grid.refine or possible:
        refined = choose_pipeline(own.pipeline, "auto", refine=sides, bundle=served.bundle)
        try:
            refinement = _refinement(own, refined)
        except GalleryNotRefinedError as error:
            if grid.refine is not None:
                raise
            left_out.append(f"refinement of {sides} was not tried: {error}")
            continue
        for rerank in grid.reranks(own.pipeline.rerank):
            pipeline = Pipeline(refine=refined.refine, rerank=rerank, group=group)
            other = OpenedVariant(own.gallery, own.snapshot, served, pipeline, refinement)
            found.setdefault(pipeline.key, other)
    for form in _forms(group, grid):
        pipeline = own.pipeline.model_copy(update={"group": form})
        found.setdefault(pipeline.key, replace(own, pipeline=pipeline))
    return list(found.values())[1:], left_out


def _forms(group: Group | None, grid: PipelineGrid) -> list[Group]:
    """The forms of group score that a version's own pipeline is tried with."""
    if group is None:
        return []
    return [form for form in group_forms(group.by) if form.score in grid.group_score]


def _refinement(own: OpenedVariant, pipeline: Pipeline) -> OpenedRefiner | None:
    refiner = None if own.served is None else own.served.refiner
    return open_refiner(pipeline, refiner, own.gallery.name, own.snapshot)

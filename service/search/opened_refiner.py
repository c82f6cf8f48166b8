"""Opened refiner: what a pipeline refines with, opened for one version of a gallery."""

from __future__ import annotations

from dataclasses import dataclass

from vicinal.indexer.errors import BundleMismatchError
from vicinal.indexer.jobs.refinement import open_refined
from vicinal.indexer.views.refined_snapshot import RefinementPlan
from vicinal.indexer.views.refined_view import RefinedSpace
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.bundle import ModelBundle
from vicinal.models.runtime import Device
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.service.search.pipeline import Pipeline


@dataclass(frozen=True)
class OpenedRefiner:
    """What a pipeline refines with.

    Attributes:
        refiner: Refiner of the bundle.
        space: The refined items of the version; None where items are searched as they are.
    """

    refiner: ContextRefiner
    space: RefinedSpace | None


def refinement_plan(pipeline: Pipeline, bundle: ModelBundle, device: Device = "cpu") -> RefinementPlan | None:
    """How the items of new versions are refined, for a service with a pipeline; None without a refiner."""
    if bundle.manifest.refiner is None:
        return None
    refiner, refine = ContextRefiner(bundle), pipeline.refine
    n_steps = refine.steps or refiner.n_steps
    return RefinementPlan(refiner, n_steps, by_default=refine.of_gallery, device=device)


def open_refiner(
    pipeline: Pipeline, refiner: ContextRefiner | None, gallery: str, snapshot: Snapshot
) -> OpenedRefiner | None:
    """Open what a pipeline needs.

    Args:
        refiner: Refiner of the bundle; None where it has none.

    Returns:
        None when the pipeline refines nothing, or there is no refiner.
    """
    refine = pipeline.refine
    if refine.sides == "off" or refiner is None:
        return None
    if refiner.bundle.fingerprint != snapshot.manifest.bundle:
        raise BundleMismatchError(gallery, refiner.bundle.fingerprint, snapshot.manifest.bundle)
    if not refine.of_gallery:
        return OpenedRefiner(refiner, None)
    return OpenedRefiner(refiner, open_refined(gallery, snapshot, RefinementPlan(refiner, refine.steps)))

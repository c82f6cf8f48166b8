"""Refinement of versions that exist already: opened for searching, or made at a later time."""

from __future__ import annotations

import logging

from vicinal.indexer.errors import BundleMismatchError, GalleryError, GalleryNotRefinedError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views.refined_snapshot import (
    RefinedSnapshot,
    RefinementPlan,
    refinement_name,
    refinements,
    write_refined,
)
from vicinal.indexer.views.refined_view import RefinedSpace
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.progress import OnProgress, no_progress

logger = logging.getLogger(__name__)


def open_refined(gallery: str, snapshot: Snapshot, plan: RefinementPlan) -> RefinedSpace:
    """Open the refined items of a version; damaged files are made again."""
    refiner = plan.refiner
    try:
        stored = RefinedSnapshot.open(snapshot, refiner.fingerprint, plan.n_steps)
    except GalleryError as error:
        logger.warning("%s: it is made again", error)
        stored = write_refined(snapshot, refiner, plan.n_steps)
    if stored is None:
        raise GalleryNotRefinedError(
            gallery,
            snapshot.manifest.version,
            refinement_name(refiner.fingerprint, plan.n_steps),
            [refinement_name(*one) for one in refinements(snapshot.path)],
        )
    return RefinedSpace(stored, refiner)


def refine_gallery(gallery: Gallery, plan: RefinementPlan, *, on_progress: OnProgress = no_progress) -> int:
    """Refine the items of the active version, while it is searched."""
    with gallery.compacting():
        snapshot = GalleryReader(gallery).view().snapshot
        expected, actual = plan.refiner.bundle.fingerprint, snapshot.manifest.bundle
        if expected != actual:
            raise BundleMismatchError(gallery.name, expected, actual)
        plan.apply(snapshot, index_device=gallery.index_device, on_progress=on_progress)
        return snapshot.manifest.version

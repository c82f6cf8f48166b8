"""Versions of a gallery: which is searched, whether its files are whole, and which are kept."""

from __future__ import annotations

import logging

from vicinal.indexer.errors import GalleryError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.retention import Pruning, RetentionPolicy, prune
from vicinal.indexer.storage.sealed_folder import CheckNotes
from vicinal.indexer.views.refined_snapshot import check_refined
from vicinal.indexer.views.snapshot import Snapshot, SnapshotManifest, snapshot_manifest
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.measuring.records.store import CalibrationStore

logger = logging.getLogger(__name__)


def activate_version(
    gallery: Gallery, version: int, *, as_built: bool = False, bundles: ServedBundles | None = None
) -> None:
    """Let searches use a version, and the calibrations that were made for it, from their next request on."""
    if bundles is not None:
        bundles.resolve(gallery, manifest_of(gallery, version))
    has_own = CalibrationStore(gallery.calibrations_path).has_own(version)
    gallery.pointer.activate(version, as_built=as_built, calibrated_as=version if has_own else None)


def manifest_of(gallery: Gallery, version: int) -> SnapshotManifest:
    """Manifest of a version, which names the bundle that it was embedded with."""
    try:
        return snapshot_manifest(gallery.snapshot_path(version))
    except GalleryError:
        # It is missing or damaged: the version is made again, or there is none.
        return gallery.snapshot(version).manifest


def check_version(gallery: Gallery, version: int) -> str | None:
    """Read a version in full and make damaged derived files again; None when nothing was damaged."""
    damage = _check_derived(gallery, version)
    gallery.table.check(gallery.pointer.revision_of(version))
    CheckNotes(gallery.snapshot_path(version)).forget()
    return damage


def _check_derived(gallery: Gallery, version: int) -> str | None:
    path = gallery.snapshot_path(version)
    try:
        Snapshot.open(path).check()
        check_refined(path)
    except GalleryError as error:
        logger.warning("%s: it is made again", error)
        gallery.repair(version)
        return str(error)
    return None


def prune_gallery(gallery: Gallery, policy: RetentionPolicy) -> Pruning:
    """Remove versions that a policy does not keep; calibrations in use keep what they are compared with."""
    store = CalibrationStore(gallery.calibrations_path)
    active = gallery.activation
    # A version that is made of another one by live changes can still be calibrated as that one.
    calibrated_as = set() if active is None else {active.calibrated_as, *active.calibrated.values()}
    in_use = store.in_use({*gallery.versions(), *calibrated_as} - {0})
    return prune(gallery, policy, protected=[record.version for record in in_use])

"""Version activation: another version is searched, with its bundle open and its calibrations in force."""

from __future__ import annotations

from vicinal.indexer.errors import GalleryError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.views.snapshot import snapshot_manifest
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.thresholds.store import CalibrationStore

__all__ = ["activate_version", "bundle_of"]


def activate_version(
    gallery: Gallery, version: int, *, as_built: bool = False, bundles: ServedBundles | None = None
) -> None:
    """Let searches use a version, and the calibrations that were made for it, from their next request on.

    Args:
        gallery: The gallery.
        version: A published version.
        as_built: Leave out the live changes that were made while it was active before.
        bundles: Bundles of the service that is to search it; its bundle is opened before the swap.

    Raises:
        VersionNotFoundError: There is no such version.
        BundleMismatchError: Its bundle is not here, so that every search would fail.
    """
    if bundles is not None:
        bundles.of(gallery.name, bundle_of(gallery, version))
    has_own = CalibrationStore(gallery.calibrations_path).has_own(version)
    gallery.pointer.activate(version, as_built=as_built, calibrated_as=version if has_own else None)


def bundle_of(gallery: Gallery, version: int) -> str:
    """Fingerprint of the bundle that a version was embedded with.

    Raises:
        VersionNotFoundError: There is no such version.
    """
    try:
        return snapshot_manifest(gallery.snapshot_path(version)).bundle
    except GalleryError:
        # It is missing or damaged: the version is made again, or there is none.
        return gallery.snapshot(version).manifest.bundle

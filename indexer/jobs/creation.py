"""Creation of an empty gallery, for items that are added one after the other."""

from __future__ import annotations

import numpy as np

from vicinal.indexer.errors import BundleMismatchError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.jobs.preparation import no_rows
from vicinal.models.bundle import ModelBundle

__all__ = ["create_gallery"]


def create_gallery(gallery: Gallery, bundle: ModelBundle) -> bool:
    """Make a gallery without items, where there is none yet.

    Args:
        gallery: The gallery.
        bundle: The bundle that its items will be embedded with.

    Returns:
        Whether it was made; not when it is there already.

    Raises:
        BundleMismatchError: It is there and was embedded with another bundle.
        GalleryBusyError: Another job is writing it.
    """
    with gallery.writing():
        if gallery.active_version is not None:
            actual = gallery.snapshot().manifest.bundle
            if actual != bundle.fingerprint:
                raise BundleMismatchError(gallery.name, bundle.fingerprint, actual)
            return False
        gallery.start(no_rows(bundle.dim), bundle=bundle.fingerprint, bundle_name=bundle.name)
        gallery.publish(build_neighbor_graph(np.empty((0, bundle.dim), np.float32)))
        return True

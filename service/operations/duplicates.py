"""Duplicates: which items of a gallery are copies of others; nothing is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vicinal.service.duplicates.record import DuplicateOptions
from vicinal.service.operations import Operation, Progress

if TYPE_CHECKING:
    from vicinal.service.duplicates.record import DuplicateRecord
    from vicinal.service.operations.place import Place

STAGES = {
    "pictures": "Reading pictures",
    "candidates": "Looking for candidates",
    "made copies": "Making copies to try",
    "compare": "Comparing",
}
_TOLD = ("n_exact", "n_near", "n_bytes", "sentence")


def run(place: Place, request: DuplicateOptions, progress: Progress) -> DuplicateRecord:
    """Look for copies among the items as they are."""
    from vicinal.indexer.gallery import Gallery
    from vicinal.indexer.reader import GalleryReader
    from vicinal.service.duplicates.finding import find_duplicates

    gallery = Gallery.open(place.gallery.path, engine=place.bundles.engine)
    view = GalleryReader(gallery).view()
    return find_duplicates(gallery, view, request, place.id, on_progress=progress, on_plan=progress.planned)


def _keep(place: Place, found: DuplicateRecord) -> None:
    from vicinal.service.duplicates.finding import DuplicateStore

    DuplicateStore(place.gallery.path).keep_newest(found)


def _told(_: Place, found: DuplicateRecord) -> dict[str, Any]:
    return {"duplicates": found.id, **found.model_dump(mode="json", include={*_TOLD})}


OPERATION = Operation("duplicates", DuplicateOptions, run, keep=_keep, told=_told)

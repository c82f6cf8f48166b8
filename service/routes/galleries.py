"""Galleries, their items and the items' pictures."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from indexer.errors import ItemNotFoundError
from indexer.view import GalleryView
from service.errors import CalibrationRecordError, RequestError
from service.matcher import Matcher
from service.routes.context import GalleriesDependency
from service.schemas import CalibrationBody, GalleryBody, GalleryListBody, ItemBody, ItemPageBody

__all__ = ["router"]

router = APIRouter(prefix="/v1/galleries", tags=["galleries"])


@router.get("")
def list_galleries(galleries: GalleriesDependency) -> GalleryListBody:
    """All galleries that can be searched."""
    searchable = [state.name for state in galleries.states() if state.problem is None]
    return GalleryListBody(galleries=[_describe(galleries.matcher(name)) for name in searchable])


@router.get("/{gallery}")
def get_gallery(gallery: str, galleries: GalleriesDependency) -> GalleryBody:
    """One gallery: its size, index, bundle and calibration."""
    return _describe(galleries.matcher(gallery))


@router.get("/{gallery}/items")
def list_items(
    gallery: str,
    galleries: GalleriesDependency,
    after: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    size: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ItemPageBody:
    """Items in gallery order, page by page."""
    # One more than asked for tells whether there is another page.
    found = galleries.matcher(gallery).view.page(_cursor(after), size + 1)
    page = found[:size]
    return ItemPageBody(
        items=[ItemBody.model_validate(item) for _, item in page],
        next=str(page[-1][0]) if len(found) > size else None,
    )


@router.get("/{gallery}/items/{item_id:path}/image", response_class=Response)
def get_item_image(gallery: str, item_id: str, galleries: GalleriesDependency) -> Response:
    """Thumbnail of one item, a JPEG of at most 256 pixels a side."""
    matcher = galleries.matcher(gallery)
    _item(matcher.view, gallery, item_id)
    thumbnail = matcher.gallery.thumbnail(matcher.view.revision, item_id)
    return Response(thumbnail, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})


@router.get("/{gallery}/items/{item_id:path}")
def get_item(gallery: str, item_id: str, galleries: GalleriesDependency) -> ItemBody:
    """One item."""
    return _item(galleries.matcher(gallery).view, gallery, item_id)


def _cursor(after: str | None) -> int | None:
    if after is None:
        return None
    try:
        return int(after)
    except ValueError as error:
        raise RequestError(f"after is '{after}', expected the `next` of a page") from error


def _item(view: GalleryView, gallery: str, item_id: str) -> ItemBody:
    try:
        return ItemBody.model_validate(view.items([view.position(item_id)])[0])
    except KeyError as error:
        raise ItemNotFoundError(gallery, item_id) from error


def _describe(matcher: Matcher) -> GalleryBody:
    view, manifest = matcher.view, matcher.snapshot.manifest
    record, calibration_problem = None, None
    try:
        record = matcher.calibrations.active(matcher.pipeline)
    except CalibrationRecordError as error:
        # Searches of this gallery fail with this reason; the list of all galleries must not.
        calibration_problem = str(error)
    calibration = record and CalibrationBody(
        id=record.id,
        target=str(record.target) if record.target else None,
        threshold=record.threshold,
        rates=record.rates.model_dump() if record.rates else None,
    )
    return GalleryBody(
        name=matcher.gallery.name,
        version=manifest.version,
        revision=view.revision,
        n_items=len(view),
        n_labels=view.n_labels,
        graph_staleness=view.graph_staleness,
        dim=manifest.dim,
        index=manifest.index,
        bundle=manifest.bundle,
        bundle_name=manifest.bundle_name,
        calibration=calibration,
        calibration_problem=calibration_problem,
    )

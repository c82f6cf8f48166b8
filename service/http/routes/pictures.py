"""Pictures in full size, and those of kept searches."""

from __future__ import annotations

import io
from functools import partial

from fastapi import HTTPException, Request, Response

from vicinal.indexer.originals import read_original
from vicinal.models.decoding import decoded_image
from vicinal.service.answering.store import SearchStore
from vicinal.service.http.gate import Routes, SearchRoute
from vicinal.service.http.routes.items import ItemId
from vicinal.service.http.state import State, StateDependency

router = Routes(prefix="/v1/galleries/{gallery}", tags=["items"], route_class=SearchRoute)

_QUALITY = 90


@router.get("/image", response_class=Response)
async def get_image(gallery: str, item_id: ItemId, request: Request, state: StateDependency) -> Response:
    """Picture of one item in full size, an upright JPEG without what its file told of camera and place.

    There is none where the file has gone or was changed since, or where the photo was uploaded: of those the
    thumbnail alone is kept.
    """
    (jpeg,) = await state.calls(request.scope).called(request, partial(_original, state, gallery, item_id))
    return Response(jpeg, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=60"})


@router.get("/kept/{search}/picture", response_class=Response)
async def get_kept_picture(gallery: str, search: str, request: Request, state: StateDependency) -> Response:
    """Picture of a kept search, a small JPEG, for whoever was given the id of it and may search."""
    await state.keeper.catch_up()
    (picture,) = await state.calls(request.scope).called(
        request, partial(_kept_picture, state, gallery, search)
    )
    if picture is None:
        raise HTTPException(404, f"search '{search}' was for an embedding: it has no picture")
    # It may be deleted on demand, and is then nowhere.
    return Response(picture, media_type="image/jpeg", headers={"Cache-Control": "no-store"})


def _original(state: State, gallery: str, item_id: str) -> bytes:
    matcher, limits, stream = state.galleries.matcher(gallery), state.settings.decode_limits, io.BytesIO()
    encoded = read_original(matcher.gallery, matcher.view, item_id, most=limits.max_bytes)
    with decoded_image(encoded, limits=limits) as image:
        image.save(stream, "JPEG", quality=_QUALITY)
    return stream.getvalue()


def _kept_picture(state: State, gallery: str, search: str) -> bytes | None:
    return SearchStore(state.galleries.gallery(gallery).path).picture(search)

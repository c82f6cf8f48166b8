"""Pictures in full size, and those of kept searches."""

from __future__ import annotations

import io

from fastapi import HTTPException, Response

from vicinal.indexer.originals import read_original
from vicinal.models.decoding import decoded_image
from vicinal.service.answering.store import SearchStore
from vicinal.service.http.gate import Routes, SearchRoute
from vicinal.service.http.routes.items import ItemId
from vicinal.service.http.state import StateDependency

router = Routes(prefix="/v1/galleries/{gallery}", tags=["items"], route_class=SearchRoute)

_QUALITY = 90


@router.get("/image", response_class=Response)
def get_image(gallery: str, item_id: ItemId, state: StateDependency) -> Response:
    """Picture of one item in full size, an upright JPEG without what its file told of camera and place.

    There is none where the file has gone or was changed since, or where the photo was uploaded: of those the
    thumbnail alone is kept.
    """
    matcher = state.galleries.matcher(gallery)
    limits = state.settings.decode_limits
    encoded = read_original(matcher.gallery, matcher.view, item_id, most=limits.max_bytes)
    stream = io.BytesIO()
    with decoded_image(encoded, limits=limits) as image:
        image.save(stream, "JPEG", quality=_QUALITY)
    return Response(
        stream.getvalue(), media_type="image/jpeg", headers={"Cache-Control": "private, max-age=60"}
    )


@router.get("/kept/{search}/picture", response_class=Response)
def get_kept_picture(gallery: str, search: str, state: StateDependency) -> Response:
    """Picture of a kept search, a small JPEG, for whoever was given the id of it and may search."""
    store = SearchStore(state.galleries.gallery(gallery).path)
    state.keeper.wait_for(store, search)
    picture = store.picture(search)
    if picture is None:
        raise HTTPException(404, f"search '{search}' was for an embedding: it has no picture")
    # It may be deleted on demand, and is then nowhere.
    return Response(picture, media_type="image/jpeg", headers={"Cache-Control": "no-store"})

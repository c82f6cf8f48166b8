"""Items of a gallery: read, added, changed and removed while it is searched."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import numpy as np
from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field
from starlette.convertors import PathConvertor, register_url_convertor

from vicinal.indexer.errors import ItemNotFoundError
from vicinal.indexer.filters import Filter
from vicinal.indexer.jobs.changes import Patch, patch_items, remove_items
from vicinal.indexer.views.view import GalleryView
from vicinal.service.errors import RequestError
from vicinal.service.http.access import note_items
from vicinal.service.http.gate import Routes, SearchRoute, WriteRoute
from vicinal.service.http.request_bodies import (
    Label,
)
from vicinal.service.http.state import State, StateDependency
from vicinal.service.request_fields import Body, ItemUri, RequestFields


class _IdConvertor(PathConvertor):
    """An id in a path, slashes and all; an empty one is none."""

    regex = ".+"


register_url_convertor("item_id", _IdConvertor())
router = Routes(prefix="/v1/galleries/{gallery}", tags=["items"], route_class=SearchRoute)
writing_router = Routes(prefix="/v1/galleries/{gallery}", tags=["items"], route_class=WriteRoute)

# Not every id comes through a path as it is: clients and proxies shorten one by its dots and slashes.
ItemId = Annotated[str, Query(alias="id", description="Id of the item, whatever it holds.")]


class ItemBody(Body):
    """Item of a gallery."""

    id: str
    label: str | None
    uri: ItemUri
    metadata: dict[str, Any]


class ItemPageBody(Body):
    """Page of items."""

    items: list[ItemBody]
    next: str | None = Field(description="Cursor of the next page; null at the end.")
    n_items: int = Field(description="Items on all pages.")


class ItemPatch(RequestFields):
    """Change of an item: members that are left out stay as they are."""

    label: Label = Field(None, description="The label; null for none.")
    metadata: dict[str, Any] = Field(
        default_factory=dict,
        description="Merged into the present metadata (RFC 7396): null removes a member.",
    )


class ItemDeletion(RequestFields):
    """Items that shall be gone."""

    ids: list[str] = Field(min_length=1, max_length=10_000, description="Ids of items that are there.")


class DeletionBody(Body):
    """Outcome of a deletion."""

    removed: int = Field(description="Items that are gone; an id that was sent twice counts once.")
    n_items: int = Field(description="Items in the gallery now.")
    revision: int = Field(description="State of the gallery without them; searches see it from now on.")


@router.get("/items")
async def list_items(
    gallery: str,
    request: Request,
    state: StateDependency,
    after: Annotated[int | None, Query(description="`next` of the page before.")] = None,
    at: Annotated[
        int | None, Query(ge=0, description="In place of `after`: number of the first item, from 0.")
    ] = None,
    filter: Annotated[
        str | None, Query(description="Those alone that fulfil a filter, as in a search.")
    ] = None,
    size: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ItemPageBody:
    """Items in gallery order, page by page; what is added or removed meanwhile shifts no page.

    With `at` they are counted from the first one, for a view that is scrolled: there they do shift.
    """
    if at is not None and after is not None:
        raise RequestError("after and at both say where a page begins: give one of them")
    page = partial(_page, state, gallery, after, at, filter, size)
    # A filter reads the whole table.
    return (
        await run_in_threadpool(page)
        if filter is None
        else (await state.calls(request.scope).called(request, page))[0]
    )


def _page(
    state: State, gallery: str, after: int | None, at: int | None, filter: str | None, size: int
) -> ItemPageBody:
    matcher = state.galleries.matcher(gallery)
    view = matcher.view
    selected = None if filter is None else matcher.selection(Filter.of(filter)).positions
    # One more than asked for tells whether there is another page.
    if selected is not None:
        first = at if after is None else int(np.searchsorted(view.sequences(selected), after, side="right"))
        positions = selected[first or 0 :][: size + 1]
    elif at is not None:
        positions = view.positions_from(at, size + 1)
    else:
        positions = view.positions_after(after, size + 1)
    page = positions[:size]
    return ItemPageBody(
        items=[ItemBody.model_validate(item) for item in view.items(page)],
        next=str(view.sequences(page)[-1]) if len(positions) > size else None,
        n_items=len(view if selected is None else selected),
    )


@router.get("/thumbnail", response_class=Response)
def get_thumbnail(gallery: str, item_id: ItemId, state: StateDependency) -> Response:
    """Thumbnail of one item, a JPEG of at most 256 pixels a side; also at `…/thumbnails/{id}`."""
    matcher = state.galleries.matcher(gallery)
    view = matcher.view
    sequence = int(view.sequences(view.positions([_known(view, gallery, item_id)]))[0])
    thumbnail = matcher.gallery.thumbnail(view.revision, item_id, sequence=sequence)
    return Response(thumbnail, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=60"})


# Not below an item's own address, where it would hide an item whose id ends as it does.
@router.get("/thumbnails/{item_id:item_id}", response_class=Response, include_in_schema=False)
def get_thumbnail_at(gallery: str, item_id: str, state: StateDependency) -> Response:
    """The same for an id that can stand in a path."""
    return get_thumbnail(gallery, item_id, state)


@router.get("/item")
def get_item(gallery: str, item_id: ItemId, state: StateDependency) -> ItemBody:
    """Read an item; an id that a path can carry may also stand in one, `…/items/{id}`, here and below."""
    return _item(state.galleries.matcher(gallery).view, gallery, item_id)


@router.get("/items/{item_id:item_id}", include_in_schema=False)
def get_item_at(gallery: str, item_id: str, state: StateDependency) -> ItemBody:
    """The same for an id that can stand in a path."""
    return get_item(gallery, item_id, state)


@writing_router.post("/items/delete")
def delete_items(gallery: str, body: ItemDeletion, request: Request, state: StateDependency) -> DeletionBody:
    """Remove several items in one change: all of them, or none when one is not there."""
    note_items(request, body.ids)
    reader = state.galleries.reader(gallery)
    change = remove_items(reader, body.ids)
    state.galleries.changed(gallery)
    view = state.galleries.matcher(gallery).view
    return DeletionBody(removed=change.n_removed, n_items=len(view), revision=view.revision)


@writing_router.patch("/item")
def patch_item(
    gallery: str, item_id: ItemId, patch: ItemPatch, request: Request, state: StateDependency
) -> ItemBody:
    """Change label and metadata of one item; its image and its place stay."""
    note_items(request, [item_id])
    reader = state.galleries.reader(gallery)
    keeps_label = "label" not in patch.model_fields_set
    patch_items(reader, {item_id: Patch(patch.label, patch.metadata, keeps_label=keeps_label)})
    state.galleries.changed(gallery)
    return _item(reader.view(), gallery, item_id)


@writing_router.patch("/items/{item_id:item_id}", include_in_schema=False)
def patch_item_at(
    gallery: str, item_id: str, patch: ItemPatch, request: Request, state: StateDependency
) -> ItemBody:
    """The same for an id that can stand in a path."""
    return patch_item(gallery, item_id, patch, request, state)


@writing_router.delete("/item", status_code=204)
def delete_item(gallery: str, item_id: ItemId, request: Request, state: StateDependency) -> None:
    """Remove one item; the next search does not find it."""
    note_items(request, [item_id])
    remove_items(state.galleries.reader(gallery), [item_id])
    state.galleries.changed(gallery)


@writing_router.delete("/items/{item_id:item_id}", status_code=204, include_in_schema=False)
def delete_item_at(gallery: str, item_id: str, request: Request, state: StateDependency) -> None:
    """The same for an id that can stand in a path."""
    delete_item(gallery, item_id, request, state)


def _known(view: GalleryView, gallery: str, item_id: str) -> str:
    if view.positions([item_id])[0] < 0:
        raise ItemNotFoundError(gallery, item_id)
    return item_id


def _item(view: GalleryView, gallery: str, item_id: str) -> ItemBody:
    try:
        return ItemBody.model_validate(view.items([view.position(item_id)])[0])
    except KeyError as error:
        raise ItemNotFoundError(gallery, item_id) from error

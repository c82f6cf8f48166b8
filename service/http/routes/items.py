"""Items of a gallery: read, added, changed and removed while it is searched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, cast, get_args

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from vicinal.indexer.errors import ItemNotFoundError
from vicinal.indexer.jobs.changes import Patch, patch_items, remove_items
from vicinal.indexer.jobs.conflicts import OnConflict
from vicinal.indexer.views.view import GalleryView
from vicinal.service.errors import NothingAddedError, RequestError
from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.galleries.uploads import Addition, RefusedUpload, Upload, add_uploads
from vicinal.service.http.bodies.items import (
    AdditionBody,
    DeletionBody,
    ItemBody,
    ItemDeletion,
    ItemPageBody,
    ItemPatch,
    RefusedImageBody,
)
from vicinal.service.http.request_bodies import FORM, body_schema, check_form, content_type, images_of
from vicinal.service.http.state import StateDependency
from vicinal.service.problem_types import problem_type

__all__ = ["router", "writing_router"]

router = APIRouter(prefix="/v1/galleries/{gallery}/items", tags=["items"])
writing_router = APIRouter(prefix="/v1/galleries/{gallery}/items", tags=["items"])

_TEXTS = {"type": "array", "items": {"type": "string"}}
_BODY = body_schema(
    {
        "id": {**_TEXTS, "description": "One an image; without, a digest of its file."},
        "label": {**_TEXTS, "description": "One an image, or one for all; may be empty."},
        "metadata": {**_TEXTS, "description": "A JSON object an image, or one for all."},
        "on_conflict": {
            "type": "string",
            "enum": list(get_args(OnConflict)),
            "default": "error",
            "description": "What to do with an image whose id belongs to another image.",
        },
    },
    several=True,
)
_LONGEST_ID = 1024


@router.get("")
def list_items(
    gallery: str,
    state: StateDependency,
    after: Annotated[int | None, Query(description="`next` of the page before.")] = None,
    size: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ItemPageBody:
    """Items in gallery order, page by page; what is added or removed meanwhile shifts no page."""
    # One more than asked for tells whether there is another page.
    found = state.galleries.matcher(gallery).view.page(after, size + 1)
    page = found[:size]
    return ItemPageBody(
        items=[ItemBody.model_validate(item) for _, item in page],
        next=str(page[-1][0]) if len(found) > size else None,
    )


@router.get("/{item_id:path}/image", response_class=Response)
def get_item_image(gallery: str, item_id: str, state: StateDependency) -> Response:
    """Thumbnail of one item, a JPEG of at most 256 pixels a side."""
    matcher = state.galleries.matcher(gallery)
    view = matcher.view
    sequence = int(view.sequences(view.positions([_known(view, gallery, item_id)]))[0])
    thumbnail = matcher.gallery.thumbnail(view.revision, item_id, sequence=sequence)
    return Response(thumbnail, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=60"})


@router.get("/{item_id:path}")
def get_item(gallery: str, item_id: str, state: StateDependency) -> ItemBody:
    """One item."""
    return _item(state.galleries.matcher(gallery).view, gallery, item_id)


@writing_router.post("", openapi_extra=_BODY)
async def add_item_images(gallery: str, request: Request, state: StateDependency) -> AdditionBody:
    """Add images; the next search finds them.

    Each image is taken or refused on its own, as if they came one by one. When all are refused the answer
    is a problem. An image whose id belongs to another image is refused as `item-exists` unless `on_conflict`
    says otherwise. One that is there already under its id is `unchanged`, so that a request can be repeated.
    """
    content_type(request, FORM)
    most = state.settings.max_batch
    # Leaving the block removes the files that large uploads are kept in.
    async with request.form(max_files=most, max_fields=4 * most) as form:
        uploads, on_conflict = await _uploads(form), _on_conflict(form)
    addition = await run_in_threadpool(_add, state.galleries, gallery, uploads, on_conflict)
    view = await run_in_threadpool(lambda: state.galleries.matcher(gallery).view)
    return AdditionBody(
        added=addition.added,
        unchanged=addition.unchanged,
        skipped=addition.skipped,
        refused=_refusals(addition.refused),
        n_items=len(view),
        revision=view.revision,
    )


@writing_router.post("/delete")
def delete_items(gallery: str, body: ItemDeletion, state: StateDependency) -> DeletionBody:
    """Remove several items in one change: all of them, or none when one is not there."""
    reader = state.galleries.reader(gallery)
    change = remove_items(reader, body.ids)
    state.galleries.changed(gallery)
    view = state.galleries.matcher(gallery).view
    return DeletionBody(removed=change.n_removed, n_items=len(view), revision=view.revision)


@writing_router.patch("/{item_id:path}")
def patch_item(gallery: str, item_id: str, patch: ItemPatch, state: StateDependency) -> ItemBody:
    """Change label and metadata of one item; its image and its place stay."""
    reader = state.galleries.reader(gallery)
    keeps_label = "label" not in patch.model_fields_set
    patch_items(reader, {item_id: Patch(patch.label, patch.metadata, keeps_label=keeps_label)})
    state.galleries.changed(gallery)
    return _item(reader.view(), gallery, item_id)


@writing_router.delete("/{item_id:path}", status_code=204)
def delete_item(gallery: str, item_id: str, state: StateDependency) -> None:
    """Remove one item; the next search does not find it."""
    remove_items(state.galleries.reader(gallery), [item_id])
    state.galleries.changed(gallery)


def _add(galleries: OpenGalleries, gallery: str, uploads: list[Upload], on_conflict: OnConflict) -> Addition:
    # The matcher refuses a gallery of another bundle before anything is embedded.
    embedder = galleries.matcher(gallery).embedder
    addition = add_uploads(galleries.reader(gallery), uploads, embedder, on_conflict=on_conflict)
    if addition.is_nothing and len(addition.refused) == 1:
        raise addition.refused[0].error
    if addition.is_nothing:
        errors = [refusal.model_dump() for refusal in _refusals(addition.refused)]
        raise NothingAddedError(f"none of {len(uploads)} images was added", errors)
    if addition.added:
        galleries.changed(gallery)
    return addition


async def _uploads(form: FormData) -> list[Upload]:
    check_form(form, ("image", "id", "label", "metadata", "on_conflict"))
    images = images_of(form)
    n = len(images)
    ids = _texts(form, "id", n)
    if len(ids) == 1 < n:
        raise RequestError(f"one id for {n} images: send one each")
    labels, metadata = (_for_all(_texts(form, name, n), n) for name in ("label", "metadata"))
    return [
        Upload(
            encoded=await image.read(),
            filename=image.filename or None,
            id=_checked_id(ids[place]) if ids else None,
            label=labels[place] or None,
            metadata=_json_object(metadata[place]),
        )
        for place, image in enumerate(images)
    ]


def _on_conflict(form: FormData) -> OnConflict:
    texts = form.getlist("on_conflict") or ["error"]
    known = get_args(OnConflict)
    if len(texts) > 1 or texts[0] not in known:
        raise RequestError(f"on_conflict is {texts}: expected one of {', '.join(known)}")
    return cast("OnConflict", texts[0])


def _texts(form: FormData, name: str, n: int) -> list[str]:
    texts = form.getlist(name)
    if any(not isinstance(text, str) for text in texts):
        raise RequestError(f"{name} is a file, expected text")
    if len(texts) not in (0, 1, n):
        raise RequestError(f"{len(texts)} fields '{name}' for {n} images: send one each")
    return [str(text) for text in texts]


def _for_all(texts: Sequence[str], n: int) -> list[str]:
    return list(texts) if len(texts) == n else [texts[0] if texts else ""] * n


def _checked_id(item_id: str) -> str:
    if not item_id or len(item_id) > _LONGEST_ID:
        raise RequestError(f"an id has {len(item_id)} characters, expected 1 to {_LONGEST_ID}")
    return item_id


def _json_object(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"metadata is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RequestError("metadata is no JSON object")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _refusals(refused: Sequence[RefusedUpload]) -> list[RefusedImageBody]:
    return [
        RefusedImageBody(
            **asdict(one.sent),
            type=problem_type(one.error),
            reason=str(one.error),
        )
        for one in refused
    ]


def _known(view: GalleryView, gallery: str, item_id: str) -> str:
    if view.positions([item_id])[0] < 0:
        raise ItemNotFoundError(gallery, item_id)
    return item_id


def _item(view: GalleryView, gallery: str, item_id: str) -> ItemBody:
    try:
        return ItemBody.model_validate(view.items([view.position(item_id)])[0])
    except KeyError as error:
        raise ItemNotFoundError(gallery, item_id) from error

"""Additions to a gallery: images or ready embeddings that were sent become items."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from pydantic import Field, field_validator
from starlette.datastructures import FormData

from vicinal.calibration.arrays import AnyArray
from vicinal.indexer.item_rules import LONGEST_ID
from vicinal.indexer.jobs.changes import OnConflict
from vicinal.indexer.sources.embedding_files import read_array
from vicinal.service.errors import NothingAddedError, RequestError
from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.galleries.uploads import (
    AddedItem,
    Addition,
    RefusedUpload,
    SentEmbedding,
    SentItem,
    Upload,
    add_sent_embeddings,
    add_uploads,
    require_images,
    require_space,
)
from vicinal.service.http.access import note_items
from vicinal.service.http.gate import Routes, WriteRoute, large_body
from vicinal.service.http.request_bodies import (
    FORM,
    JSON,
    MOST_VALUES,
    Id,
    Label,
    Vector,
    body_schema,
    check_form,
    content_type,
    count_values,
    files_of,
    json_body,
    read_form,
    validated,
)
from vicinal.service.http.state import State, StateDependency
from vicinal.service.problem_types import problem_type
from vicinal.service.request_fields import AdditionOptions, Body, RequestFields

router = Routes(prefix="/v1/galleries/{gallery}", tags=["items"], route_class=WriteRoute)


class SentFields(RequestFields):
    """Fields of a ready embedding."""

    id: Id
    label: Label = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    uri: str = Field("", description="Path or address of what was embedded.")

    @field_validator("id", "label", "metadata", "uri")
    @classmethod
    def _can_be_kept(cls, value: Any) -> Any:
        # JSON can spell half a surrogate pair, and Python's reads NaN: neither can be stored.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        return value


class EmbeddingItem(SentFields):
    """A ready embedding, and what is known of it."""

    embedding: Vector = Field(description="As many numbers as the gallery's; of any length above 0.")


class EmbeddingAddition(AdditionOptions):
    """Ready embeddings that shall be items."""

    # The first that is none refuses all of them, and a list of all that are wrong would be long.
    items: list[EmbeddingItem] = Field(min_length=1, fail_fast=True)


class RefusedItemBody(Body):
    """An image or embedding that is not in the gallery, and why."""

    place: int = Field(description="Its place in the request, from 0.")
    id: str = Field(description="The id that it would have got.")
    filename: str | None
    type: str = Field(description="Problem type, as if it had been sent alone.")
    reason: str


class AdditionBody(Body):
    """Outcome for the images or embeddings that were sent."""

    added: list[AddedItem]
    unchanged: list[SentItem] = Field(description="Those that were there already under their id.")
    skipped: list[SentItem] = Field(description="Those whose id belongs to another one, with `skip`.")
    refused: list[RefusedItemBody]
    n_items: int = Field(description="Items in the gallery now.")
    revision: int = Field(description="State of the gallery that holds them; searches see it from now on.")


_TEXTS = {"type": "array", "items": {"type": "string"}}
_BODY = body_schema(
    {
        "embedding": {
            "type": "array",
            "items": {"type": "string", "format": "binary"},
            "description": "In place of images: `.npy` files of one embedding (d) or several (n, d).",
        },
        "id": {**_TEXTS, "description": "One an item; an image without has a digest of its file."},
        "label": {**_TEXTS, "description": "One an item, or one for all; may be empty."},
        "metadata": {**_TEXTS, "description": "A JSON object an item, or one for all."},
        "uri": {**_TEXTS, "description": "Of embeddings: path or address of what was embedded."},
        "space": {"type": "string", "description": "Of embeddings: what made them."},
        "on_conflict": {
            "type": "string",
            "enum": list(get_args(OnConflict)),
            "default": "error",
            "description": "What to do with an image or embedding whose id belongs to another one.",
        },
    },
    several=True,
    required=(),
    json=EmbeddingAddition,
)
# Its content, and its name at the sender's.
_SentFile = tuple[bytes, str | None]
_IMAGE_FIELDS = ("image", "id", "label", "metadata", "on_conflict")
_EMBEDDING_FIELDS = ("embedding", "id", "label", "metadata", "uri", "space", "on_conflict")


@router.post("/items", openapi_extra=_BODY)
@large_body
async def add_items(gallery: str, request: Request, state: StateDependency) -> AdditionBody:
    """Add images, or embeddings to a gallery of ready embeddings; the next search finds them.

    Each is taken or refused on its own, as if they came one by one. When all are refused the answer is a
    problem. One whose id belongs to another image or embedding is refused as `item-exists` unless
    `on_conflict` says otherwise. One that is there already under its id is `unchanged`, so that a request can
    be repeated. Embeddings come as JSON, or as `.npy` files in a form.
    """
    if content_type(request, FORM, JSON) == JSON:
        body = await json_body(request, EmbeddingAddition)
        sent = [_sent_embedding(one.embedding, one) for one in body.items]
        addition = await run_in_threadpool(_add_embeddings, state, gallery, sent, body)
    else:
        addition = await _add_form(request, state, gallery)
    note_items(request, [one.id for one in addition.added])
    view = await run_in_threadpool(lambda: state.galleries.matcher(gallery).view)
    return AdditionBody(
        added=addition.added,
        unchanged=addition.unchanged,
        skipped=addition.skipped,
        refused=_refusals(addition.refused),
        n_items=len(view),
        revision=view.revision,
    )


async def _add_form(request: Request, state: State, gallery: str) -> Addition:
    settings = state.settings
    most = max(settings.max_batch, settings.max_embeddings)
    async with read_form(request, max_files=settings.max_batch, max_fields=5 * most) as form:
        is_ready = "embedding" in form
        files = files_of(form, "embedding" if is_ready else "image")
        sent = [(await file.read(), file.filename or None) for file in files]
        add = _add_arrays if is_ready else _add_images
        return await run_in_threadpool(add, state, gallery, form, sent)


def _add_embeddings(
    state: State, gallery: str, sent: Sequence[SentEmbedding], options: AdditionOptions
) -> Addition:
    _check_number(state, len(sent))
    galleries = state.galleries
    space = galleries.matcher(gallery).embedder.bundle.manifest
    require_space(gallery, space, options.space)
    reader = galleries.reader(gallery)
    addition = add_sent_embeddings(reader, sent, space, conflict=options.on_conflict)
    return _settled(galleries, gallery, addition, "embeddings")


def _check_number(state: State, n: int) -> None:
    most = state.settings.max_embeddings
    if n > most:
        raise RequestError(f"{n:,} embeddings, at most max_embeddings = {most} are accepted")


def _add_images(state: State, gallery: str, form: FormData, images: Sequence[_SentFile]) -> Addition:
    uploads, conflict, galleries = _uploads(form, images), _on_conflict(form), state.galleries
    # The matcher refuses a gallery of another bundle before anything is embedded.
    embedder = galleries.matcher(gallery).embedder
    require_images(gallery, embedder.bundle.manifest)
    addition = add_uploads(galleries.reader(gallery), uploads, embedder, conflict=conflict)
    return _settled(galleries, gallery, addition, "images")


def _settled(galleries: OpenGalleries, gallery: str, addition: Addition, what: str) -> Addition:
    """An addition of which something was taken; a refusal alone is its own error."""
    if addition.is_nothing and len(addition.refused) == 1:
        raise addition.refused[0].error
    if addition.is_nothing:
        errors = [refusal.model_dump() for refusal in _refusals(addition.refused)]
        raise NothingAddedError(f"none of {len(addition.refused)} {what} was added", errors)
    if addition.added:
        galleries.changed(gallery)
    return addition


def _add_arrays(state: State, gallery: str, form: FormData, files: Sequence[_SentFile]) -> Addition:
    check_form(form, _EMBEDDING_FIELDS)
    arrays = [_array(*file) for file in files]
    n = sum(map(len, arrays))
    _check_number(state, n)
    ids, labels, uris = _texts(form, "id", n), _each(form, "label", n), _each(form, "uri", n)
    if len(ids) != n:
        raise RequestError(f"{len(ids)} fields 'id' for {n} embeddings: send one each")
    vectors = (vector for array in arrays for vector in array)
    rows = zip(vectors, ids, labels, _metadata(form, n), uris, strict=True)
    sent = [
        _sent_embedding(
            vector,
            validated(SentFields, {"id": item_id, "label": label or None, "metadata": known, "uri": uri}),
        )
        for vector, item_id, label, known, uri in rows
    ]
    named = {"space": form.get("space"), "on_conflict": _on_conflict(form)}
    return _add_embeddings(state, gallery, sent, validated(AdditionOptions, named))


def _array(encoded: bytes, filename: str | None) -> AnyArray:
    try:
        array = read_array(io.BytesIO(encoded), len(encoded))
    except ValueError as error:
        raise RequestError(f"'{filename}' is no .npy file of embeddings: {error}") from error
    if array.dtype.kind not in "fiu" or array.ndim not in (1, 2) or not array.size:
        raise RequestError(f"'{filename}' holds no embeddings: send numbers of the shape (d) or (n, d)")
    return np.atleast_2d(array)


def _sent_embedding(vector: npt.ArrayLike, fields: SentFields) -> SentEmbedding:
    return SentEmbedding(vector, fields.id, fields.label, fields.metadata, fields.uri)


def _uploads(form: FormData, images: Sequence[_SentFile]) -> list[Upload]:
    check_form(form, _IMAGE_FIELDS)
    n = len(images)
    ids = _texts(form, "id", n)
    if len(ids) == 1 < n:
        raise RequestError(f"one id for {n} images: send one each")
    for item_id in ids:
        if not 1 <= len(item_id) <= LONGEST_ID:
            raise RequestError(f"an id has {len(item_id)} characters, expected 1 to {LONGEST_ID}")
    rows = zip(images, ids or [""] * n, _each(form, "label", n), _metadata(form, n), strict=True)
    return [Upload(*image, item_id or None, label or None, known) for image, item_id, label, known in rows]


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
        raise RequestError(f"{len(texts)} fields '{name}' for {n} items: send one each")
    return [str(text) for text in texts]


def _each(form: FormData, name: str, n: int) -> list[str]:
    """A field of n items, which comes once an item or once for all."""
    texts = _texts(form, name, n)
    return texts if len(texts) == n else (texts or [""]) * n


def _metadata(form: FormData, n: int) -> list[dict[str, Any]]:
    """Metadata, parsed once where many are alike; no more of them than a body of JSON may hold."""
    texts = _each(form, "metadata", n)
    distinct = set(texts)
    if sum(count_values(text.encode()) for text in distinct) > MOST_VALUES:
        raise RequestError(f"the metadata hold more than {MOST_VALUES:,} values")
    parsed = {text: _json_object(text) for text in distinct}
    return [parsed[text] for text in texts]


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"metadata is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RequestError("metadata is no JSON object")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _refusals(refused: Sequence[RefusedUpload]) -> list[RefusedItemBody]:
    return [
        RefusedItemBody(**vars(one.sent), type=problem_type(one.error), reason=str(one.error))
        for one in refused
    ]

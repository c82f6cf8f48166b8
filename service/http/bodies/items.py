"""Request and response bodies of the calls about items."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field, field_validator

from vicinal.service.galleries.uploads import AddedItem, SentItem
from vicinal.service.http.bodies.fields import Id, Label, Response, Vector
from vicinal.service.request_fields import AdditionOptions, Request


class ItemBody(Response):
    """One item."""

    id: str
    label: str | None
    uri: str
    metadata: dict[str, Any]


class ItemPageBody(Response):
    """One page of items."""

    items: list[ItemBody]
    next: str | None = Field(description="Cursor of the next page; null at the end.")


class ItemPatch(Request):
    """What shall be different: members that are left out stay as they are."""

    label: Label = Field(None, description="The label; null for none.")
    metadata: dict[str, Any] = Field(
        default_factory=dict,
        description="Merged into the present metadata (RFC 7396): null removes a member.",
    )

    @field_validator("label")
    @classmethod
    def _is_text(cls, value: str | None) -> str | None:
        if value is not None:
            # JSON can spell half a surrogate pair, which nothing can store.
            value.encode()
        return value


class SentFields(Request):
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


class RefusedItemBody(Response):
    """An image or embedding that is not in the gallery, and why."""

    place: int = Field(description="Its place in the request, from 0.")
    id: str = Field(description="The id that it would have got.")
    filename: str | None
    type: str = Field(description="Problem type, as if it had been sent alone.")
    reason: str


class AdditionBody(Response):
    """What became of the images or embeddings that were sent."""

    added: list[AddedItem]
    unchanged: list[SentItem] = Field(description="Those that were there already under their id.")
    skipped: list[SentItem] = Field(description="Those whose id belongs to another one, with `skip`.")
    refused: list[RefusedItemBody]
    n_items: int = Field(description="Items in the gallery now.")
    revision: int = Field(description="State of the gallery that holds them; searches see it from now on.")


class ItemDeletion(Request):
    """Items that shall be gone."""

    ids: list[str] = Field(min_length=1, max_length=10_000, description="Ids of items that are there.")


class DeletionBody(Response):
    """What became of a deletion."""

    removed: int = Field(description="Items that are gone; an id that was sent twice counts once.")
    n_items: int = Field(description="Items in the gallery now.")
    revision: int = Field(description="State of the gallery without them; searches see it from now on.")

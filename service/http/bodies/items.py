"""Request and response bodies of the calls about items."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from vicinal.service.galleries.uploads import AddedItem, SentImage

__all__ = [
    "AdditionBody",
    "DeletionBody",
    "ItemBody",
    "ItemDeletion",
    "ItemPageBody",
    "ItemPatch",
    "RefusedImageBody",
]


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


class ItemBody(_Response):
    """One item."""

    id: str
    label: str | None
    uri: str
    metadata: dict[str, Any]


class ItemPageBody(_Response):
    """One page of items."""

    items: list[ItemBody]
    next: str | None = Field(description="Cursor of the next page; null at the end.")


class ItemPatch(BaseModel):
    """What shall be different: members that are left out stay as they are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str | None = Field(None, description="The label; null for none.")
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


class RefusedImageBody(_Response):
    """An image that is not in the gallery, and why."""

    image: int = Field(description="Its place in the request, from 0.")
    id: str = Field(description="The id that it would have got.")
    filename: str | None
    type: str = Field(description="Problem type, as if it had been sent alone.")
    reason: str


class AdditionBody(_Response):
    """What became of the uploaded images."""

    added: list[AddedItem]
    unchanged: list[SentImage] = Field(description="Those that were there already under their id.")
    skipped: list[SentImage] = Field(description="Those whose id belongs to another image, with `skip`.")
    refused: list[RefusedImageBody]
    n_items: int = Field(description="Items in the gallery now.")
    revision: int = Field(description="State of the gallery that holds them; searches see it from now on.")


class ItemDeletion(BaseModel):
    """Items that shall be gone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ids: list[str] = Field(min_length=1, max_length=10_000, description="Ids of items that are there.")


class DeletionBody(_Response):
    """What became of a deletion."""

    removed: int = Field(description="Items that are gone; an id that was sent twice counts once.")
    n_items: int = Field(description="Items in the gallery now.")
    revision: int = Field(description="State of the gallery without them; searches see it from now on.")

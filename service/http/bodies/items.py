"""Request and response bodies of items and of versions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = [
    "AddedItemBody",
    "AdditionBody",
    "CompactionBody",
    "DeletionBody",
    "ItemBody",
    "ItemDeletion",
    "ItemPageBody",
    "ItemPatch",
    "RefusedImageBody",
    "VersionBody",
    "VersionListBody",
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


class AddedItemBody(_Response):
    """An item that is in the gallery now."""

    id: str
    replaced: bool = Field(description="Whether there was an item of this id before.")


class RefusedImageBody(_Response):
    """An image that could not be used."""

    id: str
    filename: str | None
    type: str = Field(description="Problem type, as if it had been sent alone.")
    reason: str


class AdditionBody(_Response):
    """What became of the uploaded images."""

    added: list[AddedItemBody]
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


class CompactionBody(_Response):
    """How far the live changes of a gallery are from being a new version."""

    state: Literal["idle", "due", "running"] = Field(description="In the server that answers.")
    n_changes: int = Field(description="What searches carry along because of live changes.")
    done: int = Field(description="Items whose neighbor lists are made, of a compaction that runs.")
    total: int = Field(description="Items whose neighbor lists it makes.")
    version: int | None = Field(description="Version that this server made last.")
    problem: str | None = Field(description="Why its last attempt failed.")


class VersionBody(_Response):
    """One version of a gallery."""

    version: int
    created_at: datetime
    kind: str = Field(description="Made by an `index` job or by a `compaction`.")
    is_active: bool
    revision: int = Field(description="State of its live changes, which is searched when it is active.")
    n_items: int | None = Field(description="Items when it was built; null when its files are damaged.")
    n_labels: int | None
    index: str | None
    bundle: str | None
    derived_bytes: int = Field(description="Size of its own files.")
    table_bytes: int = Field(description="Size of the files in the item table that it refers to.")
    own_table_bytes: int = Field(description="Size of those that no other version refers to.")
    comparison: str | None = Field(None, description="Its newest comparison with another, in one line.")


class VersionListBody(_Response):
    """All versions of a gallery, newest first."""

    versions: list[VersionBody]

"""Request and response bodies of searches; an answer is sent as the matcher gives it."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import unquote

from pydantic import BaseModel, Field, field_validator, model_validator

from vicinal.service.http.bodies.fields import Vector
from vicinal.service.request_fields import Request, SearchOptions
from vicinal.service.search.answers import Answer

_FROM_ADDRESSES = str.maketrans("-_", "+/")


class Query(Request):
    """One query: exactly one of the three fields."""

    image_base64: str | None = Field(None, description="An encoded image, base64, also as a `data:` address.")
    embedding: Vector | None = Field(None, description="An embedding of the service's bundle.")
    item_id: str | None = Field(None, description="An item of the gallery; it is left out of its own search.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Query:
        given = [self.image_base64, self.embedding, self.item_id]
        if sum(value is not None for value in given) != 1:
            raise ValueError("give exactly one of image_base64, embedding and item_id")
        return self

    @field_validator("image_base64")
    @classmethod
    def _is_base64(cls, value: str | None) -> str | None:
        if value is not None:
            _decode_base64(value)
        return value

    @field_validator("item_id")
    @classmethod
    def _is_text(cls, value: str | None) -> str | None:
        if value is not None:
            # JSON can spell half a surrogate pair, which is no character: nothing can store or compare it.
            value.encode()
        return value

    @property
    def image(self) -> bytes | None:
        """The decoded bytes of `image_base64`."""
        return None if self.image_base64 is None else _decode_base64(self.image_base64)


class SearchRequest(SearchOptions, Query):
    """A query and how to search for it."""


class BatchRequest(SearchOptions):
    """Several queries of one kind."""

    queries: list[Query] = Field(min_length=1, fail_fast=True)

    @model_validator(mode="after")
    def _of_one_kind(self) -> BatchRequest:
        kinds = {
            name
            for query in self.queries
            for name in ("image_base64", "embedding", "item_id")
            if getattr(query, name) is not None
        }
        if len(kinds) > 1:
            raise ValueError(f"the queries of a batch are of one kind, got {' and '.join(sorted(kinds))}")
        return self


class BatchAnswerBody(BaseModel):
    """Answers in the order of the queries."""

    answers: list[Answer]


def _decode_base64(text: str) -> bytes:
    body = text
    if text[:5].lower() == "data:":
        # Browsers give data URLs: everything before the comma says what the rest is.
        head, _, body = text.partition(",")
        if not head.lower().endswith(";base64"):
            raise ValueError("it is a data: address that is not base64")
        body = unquote(body)
    # Mails break lines; addresses have - and _ for + and /, and leave the end out.
    body = "".join(body.split()).translate(_FROM_ADDRESSES).rstrip("=")
    body += "=" * (-len(body) % 4)
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"it is not base64: {error}") from error

"""Request and response bodies of searches; an answer is sent as the matcher gives it."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import unquote

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    field_validator,
    model_validator,
)

from vicinal.service.http.bodies.fields import Vector
from vicinal.service.request_fields import RefineChoice, RerankChoice
from vicinal.service.search.answers import Answer

_FROM_ADDRESSES = str.maketrans("-_", "+/")


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SearchOptions(_Request):
    """Options of a search."""

    limit: StrictInt = Field(10, ge=1, description="Most matches in the answer; with groups, most groups.")
    threshold: StrictFloat | None = Field(
        None, ge=0.0, le=1.0, description="Decide by this score instead of the calibrated threshold."
    )
    refine: RefineChoice = Field(
        "auto",
        description="What is refined with its neighbors; `auto` is the service's setting.",
    )
    steps: StrictInt | None = Field(
        None, ge=1, description="Steps of the refiner; the service's setting when null."
    )
    rerank: RerankChoice = Field("auto", description="`auto` is the service's setting.")
    group_by: str = Field(
        "auto",
        min_length=1,
        max_length=256,
        description="What is decided as one, such as a product with all its photos: `label`, a metadata "
        "key, or `off`; `auto` is the service's setting.",
    )
    filter: str | None = Field(
        None,
        max_length=4096,
        description=(
            "What every match fulfils: comparisons (= != < <= > >=, IN, LIKE, BETWEEN, IS NULL) of `id`, "
            "`label` and `metadata.NAME`, joined by AND, OR, NOT and parentheses. It changes no score."
        ),
        examples=["label = 'shoe' AND metadata.price < 50"],
    )
    include_candidates: StrictBool = Field(
        False, description="Also list the best candidates below the threshold, apart from the matches."
    )
    explain: StrictBool = Field(
        False,
        description="Also say what each stage ran on, and what the refiner does with the query, whether the "
        "search uses it or not.",
    )


class Query(_Request):
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

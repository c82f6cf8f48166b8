"""Fields of bodies: texts that may be written as numbers, and lists that their first wrong value refuses."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictFloat, StrictInt

from vicinal.indexer.item_rules import LONGEST_ID, LONGEST_LABEL
from vicinal.models.configs.value_texts import value_as_text

_Value = str | StrictInt | StrictFloat | StrictBool
_AS_TEXT = BeforeValidator(value_as_text, json_schema_input_type=_Value)

Id = Annotated[str, _AS_TEXT, Field(min_length=1, max_length=LONGEST_ID)]
Label = Annotated[str | None, BeforeValidator(value_as_text, json_schema_input_type=_Value | None)]
Vector = Annotated[list[StrictFloat], Field(fail_fast=True)]
Vectors = Annotated[list[Vector], Field(fail_fast=True)]
Labels = Annotated[
    list[Annotated[str, _AS_TEXT, Field(max_length=LONGEST_LABEL)]],
    Field(fail_fast=True),
]


class Response(BaseModel):
    """An answer, which may be read off the attributes of what it tells of."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class SentEmbeddings(BaseModel):
    """Labelled queries that a body may hold in place of a source's name."""

    embeddings: Vectors | None = Field(None, description="Queries as embeddings of the bundle.")
    labels: Labels | None = Field(None, description="Label of each embedding.")

"""Fields of bodies: texts that may be written as numbers, and lists that their first wrong value refuses."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, StrictFloat

from vicinal.indexer.item_rules import LONGEST_ID, LONGEST_LABEL
from vicinal.indexer.sources import value_as_text

__all__ = ["Id", "Label", "Labels", "Vector", "Vectors"]

Id = Annotated[str, BeforeValidator(value_as_text), Field(min_length=1, max_length=LONGEST_ID)]
Label = Annotated[str | None, BeforeValidator(value_as_text)]
Vector = Annotated[list[StrictFloat], Field(fail_fast=True)]
Vectors = Annotated[list[Vector], Field(fail_fast=True)]
Labels = Annotated[
    list[Annotated[str, BeforeValidator(value_as_text), Field(max_length=LONGEST_LABEL)]],
    Field(fail_fast=True),
]

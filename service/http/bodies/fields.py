"""Fields of bodies that hold many values: the first wrong one refuses them, so that they are not all told."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictFloat

from vicinal.indexer.item_rules import LONGEST_LABEL

__all__ = ["Labels", "Vector", "Vectors"]

Vector = Annotated[list[StrictFloat], Field(fail_fast=True)]
Vectors = Annotated[list[Vector], Field(fail_fast=True)]
Labels = Annotated[list[Annotated[str, Field(max_length=LONGEST_LABEL)]], Field(fail_fast=True)]

"""Duplicate record: the copies that were found in a gallery, and how sure that is."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field, StrictBool, StrictFloat, StrictInt

from vicinal.service.request_fields import CommandOption, ItemUri, RequestFields

KEPT_RULE = "kept of each group: most pixels, then most bytes, then taken first, then the first id"


class DuplicateOptions(RequestFields):
    """Options of a look for duplicates."""

    near: Annotated[
        StrictBool,
        CommandOption("Also changed copies, or only files of the same bytes.", "--near/--exact"),
    ] = Field(True, description="Also copies that were changed; false: files of the same bytes only.")
    precision: Annotated[StrictFloat, CommandOption(max=0.999)] = Field(
        0.99, ge=0.5, lt=1.0, description="Share of the pairs found that shall be copies."
    )
    seed: Annotated[StrictInt, CommandOption("Seed of the copies that are made to try.")] = Field(
        0, ge=0, description="Of the copies that are made to choose the threshold."
    )


class DuplicateItem(BaseModel, frozen=True, extra="forbid"):
    """Photo of a group."""

    id: str
    uri: ItemUri
    width: int | None = Field(description="Pixels of the file; of its thumbnail where the file is gone.")
    height: int | None
    n_bytes: int | None = Field(description="Size of the file; null where it is gone.")
    kinds: tuple[str, ...] = Field((), description="How it differs from the kept one; `exact`: not at all.")
    score: float | None = Field(None, description="How alike it is to the kept one, in [0, 1]; null: kept.")
    label: str | None = None
    taken_at: datetime | None = Field(
        None, description="By the camera's own clock; null where it says nothing."
    )
    added_at: datetime | None = Field(None, description="When it came to the gallery.")
    content: str | None = Field(None, description="SHA-256 of its bytes; null in older records.")


class DuplicateGroup(BaseModel, frozen=True, extra="forbid"):
    """A photo and its copies."""

    kept: DuplicateItem
    copies: tuple[DuplicateItem, ...]


class CopyThreshold(BaseModel, frozen=True, extra="forbid"):
    """Score at which changed copies begin, and what that rests on."""

    value: float | None = Field(description="Null where no threshold has the precision.")
    asked_precision: float
    best_precision: float = Field(description="The highest precision that some threshold is sure to have.")
    n_pairs: int = Field(description="Pairs of photos that score at least the threshold.")
    n_wrong: float = Field(description="Of them expected to be no copies, at most, 95 times in 100.")
    n_made: int = Field(description="Copies that were made of the gallery's own photos.")
    n_made_of: int = Field(description="Photos that they were made of.")
    n_made_found: int = Field(description="Made copies that score at least the threshold with their photo.")
    found_low: float = Field(description="Lower end of the 95 % interval of the share that is found.")
    found_high: float


class DuplicateSummary(BaseModel, frozen=True, extra="forbid"):
    """Findings without the groups.

    Attributes:
        rule: Which photo of each group is kept.
        sentence: How sure the copies are that are not exact.
        n_exact: Photos that could go because the kept one has the same bytes.
        n_near: Photos that could go because they are changed copies of the kept one.
        n_bytes: Bytes of the files of both, as far as the files are there.
    """

    id: str
    gallery: str
    created_at: datetime
    revision: int
    n_items: int
    options: DuplicateOptions
    threshold: CopyThreshold | None = Field(description="Null where only exact copies were looked for.")
    sentence: str
    rule: str = KEPT_RULE
    notes: tuple[str, ...] = ()
    n_exact: int
    n_near: int
    n_bytes: int


class DuplicateRecord(DuplicateSummary):
    """All copies of a gallery that were found; groups stand with the largest first, then the most certain."""

    groups: tuple[DuplicateGroup, ...]

    @property
    def removable(self) -> list[DuplicateItem]:
        """The photos that could go: all but the kept one of each group."""
        return [one for group in self.groups for one in group.copies]

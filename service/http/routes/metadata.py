"""Metadata of a gallery's items: which keys there are."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import Field

from vicinal.indexer.views.metadata_keys import MOST_VALUES, Kind, MetadataKey
from vicinal.service.http.gate import Routes, SearchRoute
from vicinal.service.http.state import StateDependency
from vicinal.service.request_fields import Body

router = Routes(prefix="/v1/galleries/{gallery}", tags=["items"], route_class=SearchRoute)


class MetadataValueBody(Body):
    """A value of a metadata key."""

    value: str | float
    n: int = Field(description="Items that have it.")


class MetadataKeyBody(Body):
    """A key of the metadata, and what its values are like."""

    field: str = Field(description="Its name as filters and `sort_by` write it, such as `metadata.price`.")
    n_items: int = Field(description="Items that have a value.")
    kinds: dict[Kind, int] = Field(
        description="Values of each kind, as filters take them: a text that is a plain number is a number, "
        "and one that begins with a day, such as `2026-01-31`, is a date."
    )
    low: float | None = Field(description="Least number.")
    high: float | None = Field(description="Largest number.")
    first_day: str | None = Field(description="Earliest day.")
    last_day: str | None = Field(description="Latest day.")
    n_values: int = Field(description=f"Different values, of at most {MOST_VALUES}.")
    values: list[MetadataValueBody] = Field(
        description="Values that most items have, `true` and `false` as texts; long ones are left out."
    )

    @classmethod
    def of(cls, key: MetadataKey, n_values: int) -> MetadataKeyBody:
        """A key with some of its values."""
        most = [MetadataValueBody(value=value, n=n) for value, n in key.values.most_common(n_values)]
        told = {name: getattr(key, name) for name in cls.model_fields if name not in ("n_values", "values")}
        return cls(**told, n_values=len(key.values), values=most)


class MetadataKeyListBody(Body):
    """Keys of a gallery's metadata."""

    keys: list[MetadataKeyBody] = Field(description="Those that most items have first, at most 200.")
    n_looked_at: int = Field(
        description="Items that were looked at; of a large gallery some from everywhere."
    )


@router.get("/metadata")
def list_metadata_keys(
    gallery: str,
    state: StateDependency,
    values: Annotated[int, Query(ge=0, le=MOST_VALUES, description="Most values of a key.")] = 50,
) -> MetadataKeyListBody:
    """Keys of the items' metadata with the kinds of their values, to filter and sort by; two levels deep."""
    found, n_looked_at = state.galleries.matcher(gallery).view.metadata
    return MetadataKeyListBody(
        keys=[MetadataKeyBody.of(one, values) for one in found], n_looked_at=n_looked_at
    )

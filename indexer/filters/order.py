"""Order of what an answer holds: the threshold says which items, whoever asks says in what order."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from vicinal.indexer.errors import FilterError
from vicinal.indexer.filters.expressions import Missing
from vicinal.indexer.filters.filter import Filter

_DESCENDING = re.compile(r"\s+desc\s*\Z", re.IGNORECASE)
# As filters read a text that is a plain decimal number; article numbers such as 00123 are none.
_WRITTEN_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,30})([.][0-9]{1,30})?\Z")
_SAID = "sort by score, added, label or metadata.NAME, with ` desc` behind to turn it around"


class Order(NamedTuple):
    """Order of matches; with `metadata`, `keys` lead to the value that they are sorted by."""

    by: Literal["score", "added", "label", "metadata"]
    keys: tuple[str, ...] = ()
    is_descending: bool = False

    @classmethod
    def parse(cls, text: str) -> Order:
        """Understand an order, its fields written as in filters; ValueError where it is none."""
        named, n_descending = _DESCENDING.subn("", text.strip())
        if named in ("score", "added", "label"):
            return cls(named, is_descending=bool(n_descending))  # type: ignore[arg-type]
        try:
            found = Filter.of(f"{named} is null").expression
        except FilterError as error:
            raise ValueError(f"'{text}' is no order: {_SAID}") from error
        if not isinstance(found, Missing) or not found.field.keys:
            raise ValueError(f"'{text}' is no order: {_SAID}")
        return cls("metadata", found.field.keys, bool(n_descending))

    def sorted(self, items: Sequence[Mapping[str, Any]], sequences: Sequence[int]) -> list[int]:
        """Places of items, best first, in this order, ties by `sequences`, those without a value last."""
        places = list(range(len(items)))
        if self.by == "score":
            return places[::-1] if self.is_descending else places
        values = list(sequences) if self.by == "added" else [self._value(one) for one in items]
        keys = {place: _sort_key(value) for place, value in enumerate(values) if value is not None}
        # Equal ones stay in their order, also in reverse.
        there = sorted(keys, key=lambda place: keys[place], reverse=self.is_descending)
        return [*there, *(place for place in places if place not in keys)]

    def _value(self, item: Mapping[str, Any]) -> Any:
        if self.by == "label":
            return item["label"]
        value: Any = item["metadata"]
        for key in self.keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value


def _sort_key(value: Any) -> tuple[int, Any]:
    """Numbers before texts, as a person would sort them; all else behind."""
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, str) and _WRITTEN_NUMBER.match(value):
        value = float(value)
    if isinstance(value, int | float):
        return (0, value) if math.isfinite(value) else (3, "")
    return (1, (value.casefold(), value)) if isinstance(value, str) else (3, "")

"""Metadata keys of a gallery's items: which there are, and what their values are like."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as member
from typing import Any, Literal

Kind = Literal["number", "text", "date", "boolean", "other"]

MOST_KEYS, DEEPEST = 200, 2
# Values of a key that are told apart, and the longest that is.
MOST_VALUES, _LONGEST_VALUE = 1000, 256
_WRITTEN_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,30})([.][0-9]{1,30})?\Z")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ]|\Z)")
_PLAIN = re.compile(r"[A-Za-z0-9_]+\Z")


@dataclass
class MetadataKey:
    """Values of one key of the metadata.

    Attributes:
        field: Its name as filters write it, such as `metadata.price` or `metadata."on sale"`.
        n_items: Items that have a value.
        kinds: Number of values of each kind; texts that are plain numbers count as numbers, those that begin
            with a day as dates, as filters take them.
        first_day: Earliest day, such as `2026-01-31`.
        values: Short values and how many items have each, at most `MOST_VALUES` of them.
    """

    field: str
    n_items: int = 0
    kinds: Counter[Kind] = member(default_factory=Counter)
    low: float | None = None
    high: float | None = None
    first_day: str | None = None
    last_day: str | None = None
    values: Counter[str | int | float | bool] = member(default_factory=Counter)

    def add(self, value: Any, n: int) -> None:
        """Count a value that n items have."""
        kind = _kind(value)
        self.n_items += n
        self.kinds[kind] += n
        if kind == "number":
            found = float(value)
            self.low = found if self.low is None else min(self.low, found)
            self.high = found if self.high is None else max(self.high, found)
        elif kind == "date":
            day = value[:10]
            self.first_day = day if self.first_day is None else min(self.first_day, day)
            self.last_day = day if self.last_day is None else max(self.last_day, day)
        is_told = kind != "other" and not (isinstance(value, str) and len(value) > _LONGEST_VALUE)
        # True is 1 to a dictionary.
        told = json.dumps(value) if isinstance(value, bool) else value
        if is_told and (told in self.values or len(self.values) < MOST_VALUES):
            self.values[told] += n


def metadata_keys(texts: Mapping[str, int]) -> list[MetadataKey]:
    """Keys of metadata, at most `MOST_KEYS`, most items first, of JSON texts and how many items have each."""
    found: dict[tuple[str, ...], MetadataKey] = {}
    for text, n in texts.items():
        for path, value in _values(_read(text)):
            known = found.get(path)
            if known is None:
                if len(found) >= MOST_KEYS:
                    continue
                known = found[path] = MetadataKey(".".join(["metadata", *map(_quoted, path)]))
            known.add(value, n)
    return sorted(found.values(), key=lambda one: (-one.n_items, one.field))


def _read(text: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _values(metadata: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in metadata.items():
        # No filter can name what has no name.
        if value is None or not key:
            continue
        if isinstance(value, dict) and len(above) + 1 < DEEPEST:
            yield from _values(value, (*above, key))
        else:
            yield (*above, key), value


def _kind(value: Any) -> Kind:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number" if abs(value) < 2**1000 and math.isfinite(value) else "other"
    if not isinstance(value, str):
        return "other"
    if _WRITTEN_NUMBER.match(value):
        return "number"
    return "date" if _DAY.match(value) else "text"


def _quoted(key: str) -> str:
    return key if _PLAIN.match(key) else '"' + key.replace('"', '""') + '"'

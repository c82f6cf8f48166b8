"""Formulas of what a gallery takes, by number of items and dimensions; docs/SCALE.md derives them.

A cost is a sum of terms, each with a unit cost. `benchmarks/speed/fitted_unit_costs.py` fits these to what
was measured, and writes them to `unit_costs.json` with how far the sums are from that, and of which sizes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

# As `indexer/graph` has them; tests/service/planning compares.
FLAT_LIMIT, EXACT_LIMIT = 10_000, 100_000
N_NEIGHBORS = 32
_LONG, _MANY = 256, 50_000
_VISITED, _ROUNDS = 8, 10


class Range(BaseModel, frozen=True):
    """Least and most that a number may be; not `is_measured` where it is by formula alone."""

    low: float
    high: float
    is_measured: bool = True

    @classmethod
    def exactly(cls, value: float) -> Range:
        """A number that follows from how files are laid out."""
        return cls(low=value, high=value)

    def __add__(self, other: Range) -> Range:
        return Range(
            low=self.low + other.low,
            high=self.high + other.high,
            is_measured=self.is_measured and other.is_measured,
        )

    def __sub__(self, other: Range) -> Range:
        """Take out a part that had been added."""
        return self.model_copy(update={"low": self.low - other.low, "high": self.high - other.high})

    def times(self, low: float, high: float | None = None) -> Range:
        """The range multiplied by a number, or by what lies between two."""
        return Range(
            low=self.low * low,
            high=self.high * (low if high is None else high),
            is_measured=self.is_measured,
        )

    def by_formula(self) -> Range:
        """The same, of what was not measured."""
        return self.model_copy(update={"is_measured": False})


def total(parts: Iterable[Range]) -> Range:
    """Sum of ranges."""
    return sum(parts, start=Range.exactly(0))


def n_lists(n: int) -> int:
    """Inverted lists of an index of so many items, and cells of their neighbor lists."""
    return 2 ** round(math.log2(2.0 * math.sqrt(n)))


def code_bytes(n: int, dim: int) -> int:
    """Bytes of an item's code in the index that `auto` makes."""
    if n <= FLAT_LIMIT:
        return 4 * dim
    if dim % 2:
        return dim
    per_code = math.gcd(dim, 4) if dim >= _LONG and n > _MANY else 2
    return math.ceil(dim / per_code / 2)


def index_bytes(n: int, dim: int) -> float:
    """Bytes of the index: codes, which Faiss lays in blocks of 32, ids of 8 bytes, and centers."""
    if n <= FLAT_LIMIT:
        return 4.0 * n * dim
    code, lists = code_bytes(n, dim), n_lists(n)
    return n * (code + 8.0) + lists * (4.0 * dim + 16.0 * code)


def _assigned(n: int, dim: int) -> float:
    """Products of items with centers of lists: in ten rounds over a sample, then of every item."""
    if n <= FLAT_LIMIT:
        return 0.0
    lists = n_lists(n)
    sample = min(n, 200_000, max(65_536, 32 * lists), 256 * lists)
    return float(lists * dim * (_ROUNDS * sample + n))


def _compared(n: int, dim: int) -> float:
    """Products of items with centers of cells, and with the items of the cells that each visits."""
    return float(n * dim * (n_lists(n) + _VISITED * n / n_lists(n)))


def _flat(n: int, dim: int) -> float:
    """Numbers that a search looks at where all are compared."""
    return float(n) * dim if n <= FLAT_LIMIT else 0.0


def _lists(n: int, dim: int) -> float:
    """Numbers that a search looks at otherwise, but for a factor: of centers, and of codes in lists."""
    return 0.0 if n <= FLAT_LIMIT else math.sqrt(n) * dim


TERMS: dict[str, Callable[[int, int], float]] = {
    "once": lambda _n, _dim: 1.0,
    "items": lambda n, _dim: float(n),
    "dims": lambda _n, dim: float(dim),
    "numbers": lambda n, dim: float(n) * dim,
    "pairs": lambda n, dim: float(n) * n * dim,
    "compared": _compared,
    "assigned": _assigned,
    "flat": _flat,
    "lists": _lists,
}

# Terms of every cost. Seconds and milliseconds are those of one core; memory is a process's own.
COSTS: dict[str, tuple[str, ...]] = {
    "staging, s": ("once", "items", "numbers"),
    "exact neighbor lists, s": ("items", "pairs"),
    "neighbor lists by cells, s": ("items", "compared"),
    "index and publishing, s": ("once", "items", "numbers", "assigned"),
    "refined items, s": ("items", "numbers"),
    "building, bytes": ("once", "items", "numbers"),
    "serving, bytes": ("once", "items"),
    "table, bytes": ("items", "numbers"),
    "encodings, bytes": ("items",),
    "search alone, ms": ("once", "dims", "flat", "lists"),
    "search of 32, ms": ("once", "dims", "flat", "lists"),
    "refined search alone, ms": ("once", "dims", "flat", "lists"),
    "refined search of 32, ms": ("once", "dims", "flat", "lists"),
}


@cache
def unit_costs() -> dict[str, Any]:
    """The unit costs, and the results that they were made of."""
    found: dict[str, Any] = json.loads(
        Path(__file__).with_name("unit_costs.json").read_text(encoding="utf-8")
    )
    return found


def cost(name: str, n: int, dim: int) -> Range:
    """A cost of `COSTS` for n items of so many dimensions."""
    fitted = unit_costs()["costs"][name]
    value = sum(unit * TERMS[term](n, dim) for term, unit in fitted["units"].items())
    least, most = fitted["items"]
    shortest, longest = fitted["dims"]
    is_measured = least <= n <= most and shortest <= dim <= longest
    low, high = (fitted["low"], fitted["high"]) if is_measured else fitted["beyond"]
    return Range(low=value * low, high=value * high, is_measured=is_measured)


def measured(name: str) -> tuple[float, float]:
    """Least and most of a cost that depends on neither, such as the bytes of a thumbnail."""
    low, high = unit_costs()["measured"][name]
    return low, high

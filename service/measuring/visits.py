"""Visits: photos that were evidently taken together, never each other's mates, candidates or context.

They share light, shelf and camera, which a later query will not. A metadata column names them, or they are
found. Items that came of searches are of the visit of their search. Photos of one label belong to one visit
where

- their files hold the same bytes, or they are almost the same picture (`indexer.hygiene`),
- one camera took them within ten minutes,
- their files stand next to each other in a numbered series, and they are more alike than three of four pairs
  of the label's photos, of which there are eight or more.

A visit is a connected part of these pairs. The first and the last kind leave most visits unfound: of shop
photos leave-one-out missed 17 % without known visits, 29 % with them, and photos of another day 51 %. Without
times or a column `look_alikes` gives the other end of a range: it is circular, since the easy photos of two
days look like one visit.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vicinal.calibration import CalibrationError
from vicinal.calibration.arrays import FloatArray, Ints, Mask, Objects
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.hygiene import SAME_PICTURE, correlations
from vicinal.indexer.sources import ROW_SCHEME
from vicinal.indexer.storage.item_table import as_matrix
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.search.item_groups import value_text

# What may stand in place of the name of a metadata column.
VISITS_BY = ("auto", "none")
SEARCH_VISIT = "search_visit"
"""Metadata key of an item that came of a search: the visit of that."""

_SECONDS = 600.0
_SERIES_QUANTILE = 0.75
# A picture or two of a series are often deleted.
_SERIES_GAP = 2
# Below this many photos the typical pair of a label is not known, nor which pairs are among its closest.
_FEWEST = 3
_FEWEST_IN_SERIES = 8
# Photos of a label that are compared with each other; further ones count as visits of their own.
_MOST = 2000
# Share of the labelled items with a capture time from which on these tell visits apart.
_TIMED = 0.8
# Pairs are far more alike from the median by 1.5 times as much as 16 % of the pairs lie below it: among
# photos with nothing in common but the label few do, and connected parts remain small.
_FAR_ABOVE = 1.5
_BELOW = 0.16
_COLUMNS = ["uri", "content_sha256", "signature", "taken_at", "camera"]


class Items(Protocol):
    """Items among which visits are found: those of a snapshot, or of a version that is being made."""

    @property
    def embeddings(self) -> FloatArray:
        """(n, d) embeddings, L2-normalized."""

    @property
    def labels(self) -> Objects:
        """(n,) labels, None for none."""

    @property
    def item_table(self) -> pa.Table:
        """(n,) rows with `metadata`."""

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Visits:
    """Visits of n items, by a column or `auto`; the name is None for an item that is a visit of its own.
    `joined` counts by evidence: `copies`, `times`, `series`; `are_told` is whether all visits are known.
    """

    by: str
    names: Objects
    joined: Mapping[str, int] = field(default_factory=dict)
    are_told: bool = True

    @classmethod
    def of(cls, snapshot: Snapshot, column: str) -> Visits:
        """Visits by a metadata column; an item without a value is a visit of its own."""
        texts = snapshot.item_table["metadata"].to_pylist()
        metadata = [json.loads(text or "{}") for text in texts]
        named = [value_text(one.get(column)) for one in metadata]
        if not any(name is not None for name in named):
            known = sorted({key for one in metadata for key in one})
            raise CalibrationError(
                f"no item has a value in the metadata column '{column}' that would name its visit; the "
                f"gallery's columns: {', '.join(known) or 'none'}"
            )
        searched = [value_text(one.get(SEARCH_VISIT)) for one in metadata]
        names = [other if name is None else name for name, other in zip(named, searched, strict=True)]
        return cls(column, np.array(names, dtype=object))

    @classmethod
    def found(cls, snapshot: Items, kept: pa.Table) -> Visits:
        """Visits by what the index kept of the photos, one row an item."""
        clues = _Clues(kept)
        parts = _Parts(len(snapshot))
        joined = dict.fromkeys(("copies", "times", "series"), 0)
        for places in _places_by_label(snapshot.labels):
            alike = _cosines(snapshot, places)
            for kind, is_joined in clues.pairs(places, alike).items():
                np.fill_diagonal(is_joined, False)
                joined[kind] += int(is_joined.any(axis=1).sum())
                parts.join(places, is_joined)
        for several in search_visits(snapshot).values():
            parts.join(np.array(several), np.ones((len(several), len(several)), dtype=bool))
        is_labelled = np.array([label is not None for label in snapshot.labels], dtype=bool)
        timed = np.isfinite(clues.seconds[is_labelled])
        are_told = bool(len(timed)) and float(timed.mean()) >= _TIMED
        return cls("auto", parts.names, joined, are_told)

    @property
    def largest(self) -> int:
        """Items of the largest visit."""
        return max(map(len, self._members.values()), default=1)

    @property
    def n(self) -> int:
        """Visits, those of a single item included."""
        return len(self._members) + sum(name is None for name in self.names)

    def members(self, name: str | None) -> Ints:
        """Ascending positions of the items of a visit; none for None, or for a visit that is not here."""
        found = None if name is None else self._members.get(name)
        return np.empty(0, np.int64) if found is None else found

    @cached_property
    def _members(self) -> dict[str, Ints]:
        places = defaultdict[str, list[int]](list)
        for position, name in enumerate(self.names):
            if name is not None:
                places[name].append(position)
        return {name: np.array(found, dtype=np.int64) for name, found in places.items()}


def find_visits(by: str, gallery: Gallery, snapshot: Snapshot) -> Visits | None:
    """Visits as an option names them; None for `none`."""
    if by == "none":
        return None
    if by == "auto":
        return Visits.found(snapshot, gallery.table.columns(snapshot.manifest.revision, _COLUMNS))
    return Visits.of(snapshot, by)


def visit_column(by: str | None) -> str | None:
    """The metadata column that tells of visits, where one is named."""
    return None if by in VISITS_BY else by


def look_alikes(snapshot: Snapshot, visits: Visits | None) -> Ints:
    """(n,) visits with all photos of a label joined that are far more alike than its typical pair."""
    parts = _Parts(len(snapshot))
    if visits is not None:
        for places in visits._members.values():
            parts.join(places, np.ones((len(places), len(places)), dtype=bool))
    for places in _places_by_label(snapshot.labels):
        if len(places) < _FEWEST:
            continue
        alike = _cosines(snapshot, places)
        median, low = np.quantile(alike[np.triu_indices(len(places), 1)], [0.5, _BELOW])
        parts.join(places, alike > median + _FAR_ABOVE * (median - low))
    return parts.roots


class _Clues:
    """Clues that the index kept of the items, (n, …) each."""

    def __init__(self, kept: pa.Table) -> None:
        contents, cameras = (kept[name].to_pylist() for name in ("content_sha256", "camera"))
        self.contents, self.cameras = np.array(contents, dtype=object), np.array(cameras, dtype=object)
        self.signatures = as_matrix(kept["signature"])
        seconds = kept["taken_at"].cast(pa.int64()).to_numpy(zero_copy_only=False)
        self.seconds = seconds.astype(np.float64)
        named = [_series(uri or "") for uri in kept["uri"].to_pylist()]
        self.series = np.array([series for series, _ in named], dtype=object)
        self.numbers = np.array([number for _, number in named], dtype=np.int64)

    def pairs(self, places: Ints, alike: FloatArray) -> dict[str, Mask]:
        """Matrices (m, m) by evidence: which photos at (m,) `places` belong together, by likeness `alike`."""
        contents, cameras, series = (one[places] for one in (self.contents, self.cameras, self.series))
        copies = (contents[:, None] == contents) | (correlations(self.signatures[places]) >= SAME_PICTURE)
        between = np.abs(np.subtract.outer(self.seconds[places], self.seconds[places]))
        times = (between <= _SECONDS) & (cameras[:, None] == cameras)
        gaps = np.abs(np.subtract.outer(self.numbers[places], self.numbers[places]))
        follows = (series[:, None] == series) & (gaps <= _SERIES_GAP) & (self.numbers[places] >= 0)
        follows &= len(places) >= _FEWEST_IN_SERIES
        if follows.any():
            follows &= alike >= np.quantile(alike[np.triu_indices(len(places), 1)], _SERIES_QUANTILE)
        return {"copies": copies, "times": times, "series": follows}


class _Parts:
    """Connected parts of n items."""

    def __init__(self, n: int) -> None:
        self.roots: Ints = np.arange(n)

    def join(self, places: Ints, is_joined: Mask) -> None:
        """Join items at (m,) `places` by a symmetric (m, m) matrix."""
        waiting = set(range(len(places)))
        while waiting:
            part, rest = set(), {waiting.pop()}
            while rest:
                one = rest.pop()
                part.add(one)
                rest |= waiting & set(np.flatnonzero(is_joined[one]).tolist())
                waiting -= rest
            roots = np.unique(self.roots[places[sorted(part)]])
            if len(roots) > 1:
                self.roots[np.isin(self.roots, roots)] = roots[0]

    @property
    def names(self) -> Objects:
        """(n,) name of each item's part; None for an item alone."""
        _, own, sizes = np.unique(self.roots, return_inverse=True, return_counts=True)
        names = [str(root) if n > 1 else None for root, n in zip(self.roots, sizes[own], strict=True)]
        return np.array(names, dtype=object)


def _series(uri: str) -> tuple[str, int]:
    """The series that a file name belongs to, and its number there; -1 without one, as in a dataset."""
    path = PurePath(uri)
    found = None if uri.startswith(ROW_SCHEME) else re.fullmatch(r"(.*?)(\d{1,9})(\D*)", path.name)
    if found is None:
        return str(path), -1
    before, number, after = found.groups()
    return f"{path.parent}/{before}*{after}", int(number)


def _places_by_label(labels: Objects) -> Iterator[Ints]:
    """Positions of the items of each label with two or more, no more of them than are compared."""
    texts = np.array([label or "" for label in labels], dtype=object)
    order = np.argsort(texts, kind="stable")
    edges = np.flatnonzero(texts[order][1:] != texts[order][:-1]) + 1
    for places in np.split(order, edges):
        if len(places) > 1 and labels[places[0]] is not None:
            yield places[:_MOST]


def search_visits(snapshot: Items) -> dict[str, list[int]]:
    """Positions of the items that came of searches, by the visit of the search."""
    texts = snapshot.item_table["metadata"].cast(pa.string())
    named = defaultdict[str, list[int]](list)
    for place in np.flatnonzero(pc.match_substring(texts.fill_null(""), f'"{SEARCH_VISIT}"').to_numpy()):
        visit = value_text(json.loads(texts[int(place)].as_py()).get(SEARCH_VISIT))
        if visit is not None:
            named[visit].append(int(place))
    return dict(named)


def _cosines(snapshot: Items, places: Ints) -> FloatArray:
    rows = np.asarray(snapshot.embeddings[places])
    return np.asarray(rows @ rows.T)

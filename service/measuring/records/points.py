"""Points of a calibration: each query with its best mate and its best stranger, so that it can be shown which
searches a threshold decides in which way; and how far the rates can be trusted over a grid of thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from vicinal.calibration import rate_interval, ratio_interval
from vicinal.calibration.arrays import Floats, Ints, Objects
from vicinal.calibration.frozen import Frozen
from vicinal.calibration.rates.label_counts import RateName
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.measuring.measurement import Measurement
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.records.record import StoredArrays, StoredScores

_N_GRID, _N_INTERVALS = 121, 16
_RATES: tuple[RateName, ...] = ("fpir", "fnir", "precision")


@dataclass(frozen=True)
class CalibrationPoints(StoredArrays):
    """Points of n queries. Columns of numbers are (n,): places in `ids` and `labels`, -1 for none; a score is
    NaN where a query has no mate, or was not tried as a stranger. `weight` is empty where all count alike.
    """

    what: ClassVar[str] = "points of a calibration"
    ids: Objects
    labels: Objects
    query: Ints
    label: Ints
    mate_score: Floats
    mate: Ints
    stranger_score: Floats
    stranger: Ints
    stranger_label: Ints
    weight: Floats

    def sample(self, most: int) -> CalibrationPoints:
        """At most so many of the queries, drawn evenly, always the same."""
        n = len(self.query)
        if n <= most:
            return self
        rows = np.sort(np.random.default_rng(0).choice(n, most, replace=False))
        columns = {name: one for name, one in vars(self).items() if name not in ("ids", "labels")}
        return replace(self, **{name: one[rows] if len(one) else one for name, one in columns.items()})


def gather_points(
    measured: Measurement, *, snapshot: Snapshot, queries: LabelledQueries
) -> CalibrationPoints:
    """Points of what was measured."""
    n, n_labels = len(measured.codes), len(measured.names)
    mates, out, rows = measured.mates, measured.without, measured.without.queries
    stranger_score, stranger, stranger_label = np.full(n, np.nan), np.full(n, -1), np.full(n, -1)
    best = out.scores[:, 0]
    stranger_score[rows] = np.where(np.isfinite(best), best, 0.0)
    stranger[rows] = out.best_items
    named = out.labels[:, 0]
    stranger_label[rows] = np.where((named >= 0) & (named < n_labels), named, -1)
    positions = np.unique(np.concatenate([mates.best_items, stranger]))
    positions = positions[positions >= 0]
    found = snapshot.item_table["id"].take(pa.array(positions)).to_pylist()
    own = [] if queries.ids is None else [str(one) for one in queries.ids]
    ids = sorted({*found, *own})
    numbers = {name: number for number, name in enumerate(ids)}
    numbers_of_items = np.array([numbers[name] for name in found], dtype=np.int64)
    searches = measured.searches

    def item(places: Ints) -> Ints:
        if not len(numbers_of_items):
            return np.full(len(places), -1)
        at = np.minimum(np.searchsorted(positions, places), len(positions) - 1)
        return np.where(places >= 0, numbers_of_items[at], -1)

    return CalibrationPoints(
        ids=np.array(ids, dtype=object),
        labels=np.asarray(measured.names),
        query=np.array([numbers[name] for name in own] or np.full(n, -1), dtype=np.int64),
        label=measured.codes.astype(np.int64),
        mate_score=np.where(mates.has_mate, mates.best_scores, np.nan),
        mate=item(mates.best_items),
        stranger_score=stranger_score,
        stranger=item(stranger),
        stranger_label=stranger_label,
        weight=np.empty(0) if searches is None else searches.weights[:n],
    )


class PointColumns(Frozen):
    """Columns of queries; numbers are places in `ids` and `labels`, -1 for none."""

    id: list[int]
    label: list[int]
    mate_score: list[float | None] = Field(description="Best score with a mate; null without one.")
    mate: list[int]
    stranger_score: list[float | None] = Field(
        description="Best score as a thing that the gallery lacks; null where it was not tried so."
    )
    stranger: list[int]
    stranger_label: list[int]
    weight: list[float] | None = Field(description="Searches that each stands for; null: each for itself.")


class RateGrid(Frozen):
    """Rate over the thresholds, with its 95 % interval; null where it was not measured."""

    rate: list[float | None]
    low: list[float | None]
    high: list[float | None]


class Grid(Frozen):
    """Rates over rising thresholds."""

    thresholds: list[float]
    fpir: RateGrid
    fnir: RateGrid
    precision: RateGrid


class PointsBody(Frozen):
    """Points that a calibration was made from, for whoever moves its threshold."""

    ids: list[str] = Field(description="Ids of queries and of items.")
    labels: list[str]
    n_queries: int = Field(description="All of them; `queries` holds at most as many as were asked for.")
    queries: PointColumns | None = Field(description="Null for a record that was kept without them.")
    grid: Grid | None = Field(description="Null for a record without scores.")


def points_body(
    points: CalibrationPoints | None, scores: StoredScores | None, threshold: float, *, most: int
) -> PointsBody:
    """At most so many points, and the rates over the threshold and around it."""
    grid = None if scores is None else _grid(scores, threshold)
    if points is None:
        return PointsBody(ids=[], labels=[], n_queries=0, queries=None, grid=grid)
    shown = points.sample(most)
    columns = PointColumns(
        id=shown.query.tolist(),
        label=shown.label.tolist(),
        mate_score=_numbers(shown.mate_score),
        mate=shown.mate.tolist(),
        stranger_score=_numbers(shown.stranger_score),
        stranger=shown.stranger.tolist(),
        stranger_label=shown.stranger_label.tolist(),
        weight=shown.weight.tolist() if len(shown.weight) else None,
    )
    return PointsBody(
        ids=points.ids.tolist(),
        labels=points.labels.tolist(),
        n_queries=len(points.query),
        queries=columns,
        grid=grid,
    )


def _numbers(values: Floats) -> list[float | None]:
    return [None if np.isnan(one) else one for one in values.tolist()]


def _grid(scores: StoredScores, threshold: float) -> Grid:
    kept = [scores.trials[name].scores for name in ("fpir", "fnir")]
    shares = np.linspace(0.0, 1.0, _N_GRID // 2)
    # Quantiles of each kind, so that there are places where a rate moves.
    own = [np.quantile(one, shares) for one in kept if len(one)]
    at = np.unique(np.concatenate([*own, [threshold]]))
    every = np.linspace(0, len(at) - 1, min(len(at), _N_INTERVALS)).astype(int)
    wide = np.union1d(every, np.searchsorted(at, [threshold]))
    return Grid(thresholds=at.tolist(), **{name: _rate_grid(scores, name, at, wide) for name in _RATES})


def _rate_grid(scores: StoredScores, rate: RateName, thresholds: Floats, wide: Ints) -> RateGrid:
    """A rate at all thresholds, with intervals that are reckoned at some and lie evenly between these."""
    counts = [scores.counts(rate, one) for one in thresholds.tolist()]
    rates = np.array([np.nan if one is None else one.rate for one in counts])
    interval = ratio_interval if rate == "precision" else rate_interval
    known = {place: interval(found) for place in wide.tolist() if (found := counts[place]) is not None}
    if not known:
        nothing: list[float | None] = [None] * len(rates)
        return RateGrid(rate=_numbers(rates), low=nothing, high=nothing)
    at = thresholds[list(known)]
    below = np.interp(thresholds, at, [one.rate - one.low for one in known.values()])
    above = np.interp(thresholds, at, [one.high - one.rate for one in known.values()])
    low, high = np.clip(rates - below, 0.0, 1.0), np.clip(rates + above, 0.0, 1.0)
    return RateGrid(rate=_numbers(rates), low=_numbers(low), high=_numbers(high))

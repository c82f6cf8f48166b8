"""Curves of a calibration: histograms, utilities and examples, for whoever draws or reads them.

Kept beside the record as compressed JSON. In leave-one-out a query is an item of the gallery, and its id is
that item's. Of two items that are false accepts of each other one example is kept.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence

import numpy as np

from vicinal.calibration import Trials
from vicinal.calibration.arrays import Floats, Ints
from vicinal.calibration.consistency.opis import ClassUtilities
from vicinal.calibration.frozen import Frozen, Recorded
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.measuring.evidence import SpaceOpis
from vicinal.service.measuring.measurement import Measurement
from vicinal.service.measuring.queries import LabelledQueries

_N_BINS = 50
_MOST_EXAMPLES = 20


class Histograms(Frozen):
    """Counts of final scores in 50 even bins of [0, 1]: pairs of mates and of others; queries with a mate, by
    their best score with one; and queries without, by their best score.
    """

    edges: list[float]
    mates: list[int]
    non_mates: list[int]
    best_mates: list[int]
    best_without_mate: list[int]


class Utilities(Frozen):
    """Utilities of all classes in one space: labels, worst first by their mean, and the values of each at 100
    rising distances of the calibration range, with 4 digits.
    """

    distances: list[float]
    labels: list[str]
    values: list[list[float]]


class Example(Frozen):
    """A query and an item that were decided wrongly."""

    query: str | None
    item: str
    query_label: str
    item_label: str | None
    score: float


class CalibrationCurves(Recorded):
    """Histograms; utilities in the spaces `initial`, `refined` and `final`; and at most 20 examples each of a
    query without a mate and what it was matched with, highest score first, and of a query and the best of its
    mates, not reached, lowest first.
    """

    format_version: int = 1
    histograms: Histograms
    utilities: dict[str, Utilities]
    false_accepts: list[Example]
    false_rejects: list[Example]

    def to_bytes(self) -> bytes:
        """Compressed JSON of the details; equal ones give equal bytes."""
        return gzip.compress(self.model_dump_json().encode(), mtime=0)

    @classmethod
    def from_bytes(cls, stored: bytes) -> CalibrationCurves:
        """Read what `to_bytes` gave."""
        return cls.model_validate_json(gzip.decompress(stored))


def gather_curves(
    measured: Measurement,
    threshold: float,
    *,
    snapshot: Snapshot,
    queries: LabelledQueries,
    opis: dict[str, SpaceOpis],
) -> CalibrationCurves:
    """Curves of what was measured."""
    accepts, rejects = _false_accepts(measured, threshold), _false_rejects(measured, threshold)
    return CalibrationCurves(
        histograms=_histograms(measured.trials),
        utilities={space: _utilities(space, one.utilities) for space, one in opis.items()},
        false_accepts=list(_examples(snapshot, queries, *accepts)),
        false_rejects=list(_examples(snapshot, queries, *rejects)),
    )


def _histograms(trials: Trials) -> Histograms:
    edges = np.linspace(0.0, 1.0, _N_BINS + 1)
    non_mates = np.histogram(trials.rising_non_mates, edges)[0]
    if trials.low_pairs is not None:
        counts = trials.low_pairs.counts.sum(axis=0) // 2
        middles = (trials.low_pairs.edges[1:] + trials.low_pairs.edges[:-1]) / 2.0
        non_mates = non_mates + np.histogram(middles, edges, weights=counts)[0].astype(np.int64)
    return Histograms(
        edges=edges.tolist(),
        mates=np.histogram(trials.mate_scores, edges)[0].tolist(),
        non_mates=non_mates.tolist(),
        best_mates=np.histogram(trials.best_mate_scores, edges)[0].tolist(),
        best_without_mate=np.histogram(trials.best_scores_without_mate, edges)[0].tolist(),
    )


def _utilities(space: str, found: ClassUtilities) -> Utilities:
    order = found.worst(len(found.labels))
    largest = 1.0 if space == "final" else 2.0
    return Utilities(
        distances=np.round(largest * (1.0 - found.thresholds), 6).tolist(),
        labels=[str(name) for name in found.labels[order]],
        values=np.round(found.utilities[order], 4).tolist(),
    )


def _examples(
    snapshot: Snapshot, queries: LabelledQueries, rows: Ints, items: Ints, scores: Floats
) -> Iterator[Example]:
    found: Sequence[dict[str, object]] = snapshot.items(items)
    for row, item, score in zip(rows.tolist(), found, scores.tolist(), strict=True):
        yield Example(
            query=None if queries.ids is None else str(queries.ids[row]),
            item=str(item["id"]),
            query_label=str(queries.labels[row]),
            item_label=None if item["label"] is None else str(item["label"]),
            score=score,
        )


def _false_accepts(measured: Measurement, threshold: float) -> tuple[Ints, Ints, Floats]:
    """Numbers of the queries, positions of the items, and scores."""
    found = measured.without
    scores = found.scores[:, 0]
    wrong = np.flatnonzero((scores >= threshold) & (found.best_items >= 0))
    wrong = wrong[np.argsort(-scores[wrong], kind="stable")]
    rows, items = found.queries[wrong], found.best_items[wrong]
    ends = np.sort(np.stack([measured.images[rows], items], axis=1), axis=1)
    first = np.sort(np.unique(ends, axis=0, return_index=True)[1])[:_MOST_EXAMPLES]
    return rows[first], items[first], scores[wrong[first]]


def _false_rejects(measured: Measurement, threshold: float) -> tuple[Ints, Ints, Floats]:
    mates = measured.mates
    wrong = np.flatnonzero(mates.has_mate & (mates.best_scores < threshold))
    wrong = wrong[np.argsort(mates.best_scores[wrong], kind="stable")][:_MOST_EXAMPLES]
    return wrong, mates.best_items[wrong], mates.best_scores[wrong]

"""Label scores: how labels score for a query by a metric that was learned from the gallery's labels.

    <gallery>/calibrations/metrics/<SHA-256>.npz     a metric, which the group of a calibration names

A metric is made when a gallery is calibrated, and stays what it was; the means and numbers of photos that it
is used with are those of the gallery at the moment, live changes included.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from cachetools import LRUCache

from vicinal.calibration.arrays import FloatArray, Floats, Ints
from vicinal.calibration.lda import LabelMetric
from vicinal.indexer.storage.files import read_bound, write_bound
from vicinal.indexer.views.view import GalleryView
from vicinal.models.configs.sealed_json import BrokenSealError
from vicinal.service.errors import CalibrationRecordError

# Metrics that are kept in memory, also those that no file holds yet.
_MOST_METRICS = 16
_metrics: LRUCache[str, LabelMetric] = LRUCache(_MOST_METRICS)
_noting = threading.Lock()


def note_metric(metric: LabelMetric) -> str:
    """SHA-256 by which this process finds a metric that was just made."""
    name = hashlib.sha256(metric.to_bytes()).hexdigest()
    with _noting:
        _metrics[name] = metric
    return name


def keep_metric(gallery: Path, name: str) -> None:
    """Write a metric that was noted into the folder of a gallery, where it is not there yet."""
    path = _file_of(gallery, name)
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bound(path, metric_of(gallery, name).to_bytes())


def metric_of(gallery: Path, name: str) -> LabelMetric:
    """The metric of a name.

    Raises:
        CalibrationRecordError: Its file is missing or damaged.
    """
    with _noting:
        found = _metrics.get(name)
    if found is not None:
        return found
    path = _file_of(gallery, name)
    try:
        found = LabelMetric.from_bytes(read_bound(path, name))
    except (OSError, BrokenSealError) as error:
        state = "missing" if isinstance(error, OSError) else "damaged"
        raise CalibrationRecordError(f"the metric '{path}' is {state}: calibrate again") from error
    with _noting:
        _metrics[name] = found
    return found


def _file_of(gallery: Path, name: str) -> Path:
    return gallery / "calibrations" / "metrics" / f"{name}.npz"


class LabelScores:
    """Scores of the labels of one state of a gallery by one metric.

    Items have (n,) `codes` of labels. Those below C have `sums`, (C, d), of (C,) `counts` live items; a code
    beyond is that of an item alone.
    """

    def __init__(
        self, metric: LabelMetric, view: GalleryView, codes: Ints, sums: Floats, counts: Ints
    ) -> None:
        self._metric, self._view, self._codes, self._counts = metric, view, codes, counts
        self._sums = metric.projected_sums(sums, counts)

    def of_candidates(self, candidates: Ints, queries: FloatArray, excluded: Sequence[Ints] | None) -> Floats:
        """(B, n) score of the label of each candidate of (B, d) queries by its code, -inf at -1; items that a
        query leaves out are in no label's mean.
        """
        rows, columns = np.nonzero(candidates >= 0)
        width = len(self._counts) + self._view.n_positions
        keys, places = np.unique(rows * width + candidates[rows, columns], return_inverse=True)
        scores = np.full(candidates.shape, -np.inf)
        scores[rows, columns] = self._of_pairs(queries, *np.divmod(keys, width), excluded)[places]
        return scores

    def _of_pairs(
        self, queries: FloatArray, rows: Ints, codes: Ints, excluded: Sequence[Ints] | None
    ) -> Floats:
        """(R,) score of labels by their codes for (R,) rows of (B, d) queries, each pair once, sorted; -inf
        where no photo is left.
        """
        view, n_names = self._view, len(self._counts)
        named = codes < n_names
        sums, counts = np.empty((len(codes), self._sums.shape[1])), np.ones(len(codes), np.int64)
        sums[named], counts[named] = self._sums[codes[named]], self._counts[codes[named]]
        sums[~named] = self._metric.projected(view.vectors(codes[~named] - n_names))
        out = [] if excluded is None else [len(one) for one in excluded]
        if sum(out):
            positions = np.concatenate(excluded or ())
            queries_out = np.repeat(np.arange(len(out)), out)
            is_live = ~view.is_dead(positions)
            positions, queries_out = positions[is_live], queries_out[is_live]
            width = n_names + view.n_positions
            keys, asked = rows * width + codes, queries_out * width + self._codes[positions]
            places = np.minimum(np.searchsorted(keys, asked), max(0, len(keys) - 1))
            is_there = keys[places] == asked if len(keys) else np.zeros(len(asked), bool)
            gone = self._metric.projected(view.vectors(positions[is_there]))
            np.subtract.at(sums, places[is_there], gone)
            np.subtract.at(counts, places[is_there], 1)
        projected = self._metric.projected(queries)
        return self._metric.scores(projected[rows], sums, counts)

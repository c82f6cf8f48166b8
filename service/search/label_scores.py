"""Label scores: how labels score for a query by a metric that was learned from the gallery's labels.

A metric is kept by its SHA-256, which the group of a calibration names; sums of labelled photos beside the
gallery with the bundle that embedded them.

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

from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import FloatArray, Floats, Ints
from vicinal.calibration.lda import LabelMetric, LabelScatter, label_sums
from vicinal.indexer.state import DamagedRowError, Rows, state_of
from vicinal.indexer.state.schema import attachments
from vicinal.indexer.views.view import GalleryView
from vicinal.service.errors import CalibrationRecordError

# Of what is kept: metrics by their SHA-256, labels beside a gallery by their bundle.
_METRIC, _BESIDE = "metric", "beside"
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


def keep_metric(rows: Rows, gallery: Path, name: str) -> None:
    """Keep a metric that was noted for a gallery, where it is not kept yet."""
    content = metric_of(gallery, name).to_bytes()
    rows.put(attachments, {"kind": _METRIC, "id": name, "name": "", "content": content}, keep=True)


def metric_of(gallery: Path, name: str) -> LabelMetric:
    """The metric of a name.

    Raises:
        CalibrationRecordError: It is missing or damaged.
    """
    with _noting:
        found = _metrics.get(name)
    if found is not None:
        return found
    try:
        with state_of(gallery).reading() as rows:
            row = rows.first(attachments, attachments.c.kind == _METRIC, attachments.c.id == name)
    except DamagedRowError as error:
        raise CalibrationRecordError(f"{error}: calibrate again") from error
    if row is None:
        raise CalibrationRecordError(f"the metric of gallery '{gallery.name}' is missing: calibrate again")
    found = LabelMetric.from_bytes(row.content)
    with _noting:
        _metrics[name] = found
    return found


def keep_beside(gallery: Path, bundle: str, labels: LabelScatter) -> None:
    """Let calibrations use labels beside the gallery's, in place of any before."""
    with state_of(gallery).changing() as rows:
        rows.put(attachments, {"kind": _BESIDE, "id": bundle, "name": "", "content": labels.to_bytes()})
        rows.remove(attachments, attachments.c.kind == _BESIDE, attachments.c.id != bundle)


def forget_beside(gallery: Path) -> None:
    """Let calibrations use no labels but the gallery's, and remove what was kept of others."""
    with state_of(gallery).changing() as rows:
        rows.remove(attachments, attachments.c.kind == _BESIDE)


def labels_beside(gallery: Path, bundle: str) -> LabelScatter | None:
    """Labels that are used beside the gallery's, where embeddings are those of a bundle.

    Raises:
        CalibrationRecordError: They are damaged.
    """
    try:
        with state_of(gallery).reading() as rows:
            row = rows.first(attachments, attachments.c.kind == _BESIDE, attachments.c.id == bundle)
    except DamagedRowError as error:
        raise CalibrationRecordError(
            f"the photos beside gallery '{gallery.name}' are damaged: ",
            advise("fit again, or {forget_fit()}", gallery=gallery.name),
        ) from error
    return None if row is None else LabelScatter.from_bytes(row.content)


class LabelScores:
    """Scores of the labels of one state of a gallery by one metric.

    Items have (n,) `codes` of labels. Those below C have `sums`, (C, d), of (C,) `counts` live items; a code
    beyond is that of an item alone.
    """

    def __init__(
        self, metric: LabelMetric, view: GalleryView, codes: Ints, sums: Floats, counts: Ints
    ) -> None:
        self._metric, self._view, self._codes, self._sums, self._counts = metric, view, codes, sums, counts
        self._labels = metric.all_labels(sums, counts)

    def of_candidates(self, candidates: Ints, queries: FloatArray, excluded: Sequence[Ints] | None) -> Floats:
        """(B, n) score of the label of each candidate of (B, d) queries by its code, -inf at -1; items that a
        query leaves out are in no label's mean.
        """
        rows, columns = np.nonzero(candidates >= 0)
        width = len(self._counts) + self._view.n_positions
        keys, scores = rows * width + candidates[rows, columns], np.full(candidates.shape, -np.inf)
        each, places = (keys, ...) if excluded is None else np.unique(keys, return_inverse=True)
        scores[rows, columns] = self._of_pairs(queries, each, width, excluded)[places]
        return scores

    def _of_pairs(
        self, queries: FloatArray, keys: Ints, width: int, excluded: Sequence[Ints] | None
    ) -> Floats:
        """(R,) score of each pair's label: by ascending rows of (B, d) queries times a width and codes."""
        rows, codes = np.divmod(keys, width)
        pairs, gone = self._left_out(keys, width, excluded)
        is_whole = codes < len(self._counts)
        is_whole[pairs] = False
        projected, scores = self._metric.projected(queries), np.empty(len(keys))
        scores[is_whole] = self._labels.scores(projected, rows[is_whole], codes[is_whole])
        rest = np.flatnonzero(~is_whole)
        if len(rest):
            sums, counts = self._sums_of(codes[rest])
            taken = self._view.vectors(gone), np.searchsorted(rest, pairs)
            lost, n_lost = label_sums(iter([taken]), len(rest), sums.shape[1])
            sums, counts = sums - lost, counts - n_lost
            means = self._metric.projected(sums / np.maximum(counts, 1)[:, None])
            labels = self._metric.labels(means, counts)
            scores[rest] = labels.scores(projected, rows[rest], np.arange(len(rest)))
        return scores

    def _sums_of(self, codes: Ints) -> tuple[Floats, Ints]:
        """(R, d) sums and (R,) numbers of the items of labels, or of items alone."""
        n = len(self._counts)
        named, alone = np.flatnonzero(codes < n), np.flatnonzero(codes >= n)
        sums, counts = np.empty((len(codes), self._sums.shape[1])), np.ones(len(codes), np.int64)
        sums[named], counts[named] = self._sums[codes[named]], self._counts[codes[named]]
        sums[alone] = self._view.vectors(codes[alone] - n)
        return sums, counts

    def _left_out(self, keys: Ints, width: int, excluded: Sequence[Ints] | None) -> tuple[Ints, Ints]:
        """Live items that queries leave out, and the pair of each that it would have a part in."""
        out = [len(one) for one in excluded or ()]
        if not sum(out) or not len(keys):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        positions = np.concatenate(excluded or ())
        is_live = ~self._view.is_dead(positions)
        positions, of = positions[is_live], np.repeat(np.arange(len(out)), out)[is_live]
        asked = of * width + self._codes[positions]
        places = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        is_there = keys[places] == asked
        return places[is_there], positions[is_there]

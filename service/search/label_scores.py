"""Label scores: how labels score for a query by a metric that was learned from the gallery's labels.

    <gallery>/calibrations/metrics/
      <SHA-256>.npz                          a metric, which the group of a calibration names
      beside.json, <SHA-256>.npz             sums of labelled photos beside the gallery, of one bundle

A metric is made when a gallery is calibrated, and stays what it was; the means and numbers of photos that it
is used with are those of the gallery at the moment, live changes included.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from cachetools import LRUCache

from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import FloatArray, Floats, Ints
from vicinal.calibration.frozen import Frozen
from vicinal.calibration.lda import LabelMetric, LabelScatter, label_sums
from vicinal.indexer.storage.files import read_bound, read_sealed, remove_file, write_bound, write_sealed
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


class LabelsBeside(Frozen):
    """Labelled photos beside a gallery's: the bundle that embedded them, and the file of their sums."""

    bundle: str
    sha256: str


def keep_beside(gallery: Path, bundle: str, labels: LabelScatter) -> None:
    """Let calibrations use labels beside the gallery's, in place of any before."""
    forget_beside(gallery)
    content = labels.to_bytes()
    name = hashlib.sha256(content).hexdigest()
    path = _file_of(gallery, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bound(path, content)
    write_sealed(_beside(gallery), LabelsBeside(bundle=bundle, sha256=name).model_dump_json())


def forget_beside(gallery: Path) -> None:
    """Let calibrations use no labels but the gallery's, and remove what was kept of others."""
    with suppress(OSError, ValueError):
        remove_file(_file_of(gallery, _kept_beside(gallery).sha256))
    remove_file(_beside(gallery))


def labels_beside(gallery: Path, bundle: str) -> LabelScatter | None:
    """Labels that are used beside the gallery's, where embeddings are those of a bundle.

    Raises:
        CalibrationRecordError: Their file is missing or damaged.
    """
    if not _beside(gallery).is_file():
        return None
    try:
        kept = _kept_beside(gallery)
        if kept.bundle != bundle:
            return None
        return LabelScatter.from_bytes(read_bound(_file_of(gallery, kept.sha256), kept.sha256))
    except (OSError, ValueError) as error:
        raise CalibrationRecordError(
            f"the photos beside gallery '{gallery.name}' are missing or damaged: ",
            advise("fit again, or {forget_fit()}", gallery=gallery.name),
        ) from error


def _kept_beside(gallery: Path) -> LabelsBeside:
    return LabelsBeside.model_validate_json(read_sealed(_beside(gallery)))


def _beside(gallery: Path) -> Path:
    return gallery / "calibrations" / "metrics" / "beside.json"


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

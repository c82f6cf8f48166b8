"""Threshold of copies: where the scores of made copies lie, and where those of photos that are none run out.

The latter fall exponentially beyond a low score, measured where hardly any made copies reach down to.
"""

from __future__ import annotations

import numpy as np

from vicinal.calibration import LabelCounts
from vicinal.calibration.arrays import FloatArray, Floats
from vicinal.calibration.rates.intervals import rate_interval
from vicinal.service.duplicates.record import CopyThreshold
from vicinal.service.words import percent, span

_THRESHOLDS = np.arange(0.30, 0.991, 0.01)
# The tail is measured from here to where this share of the made copies begins.
_TAIL_START = 0.1
_COPIES_BELOW = 0.02
_TAIL_ENDS = (0.3, 0.4)
# Pairs from here on are copies, as good as all of them.
_SURE = 0.75
# How fast the tail falls, by a unit of score. Before anything is seen it is about 5, worth 8 pairs: photos
# of one scene taken one after the other, the hardest, fall by 7 to 10.
_FALLS = np.linspace(0.5, 30.0, 600)
_USUAL_FALL, _WORTH = 5.0, 8
# One-sided, 95 times in 100.
_DEVIATIONS = 1.64


def choose_threshold(made: FloatArray, pairs: FloatArray, precision: float) -> CopyThreshold:
    """Lowest threshold with a precision in [0.5, 1), of (photos, copies) and (m,) scores of other pairs."""
    wrong = _wrong_above(_THRESHOLDS, pairs, made)
    n_pairs = np.array([(pairs >= one).sum() for one in _THRESHOLDS])
    precisions = np.where(n_pairs > 0, 1.0 - wrong / np.maximum(n_pairs, 1), 0.0)
    reached = np.flatnonzero(precisions >= precision)
    at = int(reached[0]) if len(reached) else int(precisions.argmax())
    value = float(_THRESHOLDS[at].round(2))
    found = made >= value
    counts = LabelCounts(found.sum(axis=1), np.full(len(made), made.shape[1]))
    interval = rate_interval(counts)
    return CopyThreshold(
        value=value if len(reached) else None,
        asked_precision=precision,
        best_precision=max(0.0, float(precisions.max())),
        n_pairs=int(n_pairs[at]) if len(reached) else 0,
        n_wrong=float(wrong[at]) if len(reached) else 0.0,
        n_made=made.size,
        n_made_of=len(made),
        n_made_found=int(found.sum()),
        found_low=interval.low,
        found_high=interval.high,
    )


def threshold_sentence(found: CopyThreshold, *, n_certain: int = 0) -> str:
    """Sentence on what a threshold rests on; without one, `n_certain` pairs have the same pixels."""
    if found.value is None:
        best = int(100 * found.best_precision) / 100
        reason = (
            f"Changed copies were left out{' but for those of the same pixels' if n_certain else ''}: no "
            f"threshold has a precision of {percent(found.asked_precision)}"
        )
        if best < 0.5:
            return f"{reason}, nor even of 50 %; no photos stand out as copies of each other"
        return f"{reason}; the best is {percent(best)}, to be had with --precision {best:.2f}"
    share = found.n_made_found / found.n_made
    return (
        f"Changed copies score at least {found.value:.2f}: so do {found.n_made_found:,} of {found.n_made:,} "
        f"copies made of {found.n_made_of:,} of these photos ({percent(share)}; 95 % interval "
        f"{span(found.found_low, found.found_high)}), and of the {found.n_pairs:,} pairs found at most "
        f"{found.n_wrong:.1f} are expected to be no copies"
    )


def _wrong_above(thresholds: Floats, pairs: FloatArray, made: FloatArray) -> Floats:
    """Upper ends of the number of pairs above each threshold that are no copies."""
    end = float(np.clip(np.quantile(made, _COPIES_BELOW), *_TAIL_ENDS))
    length = end - _TAIL_START
    n, total = _beyond(pairs, end)
    # Without the copies among them, as far as made copies show how many there are.
    n_low, total_low = _beyond(made, end)
    share = (pairs >= _SURE).sum() / max((made >= _SURE).sum(), 1)
    n = max(n - share * n_low, 0.0)
    total = float(np.clip(total - share * total_low, 0.0, n * length))
    # Of a truncated exponential distribution, times a gamma prior.
    log_likelihood = n * np.log(_FALLS / -np.expm1(-_FALLS * length)) - _FALLS * total
    fall = _FALLS[(log_likelihood + _WORTH * (np.log(_FALLS) - _FALLS / _USUAL_FALL)).argmax()]
    expected = (n + 1) * np.exp(-fall * (thresholds - _TAIL_START)) / -np.expm1(-fall * length)
    by_fall = (fall * (thresholds - _TAIL_START) - 1.0) ** 2 / (n + _WORTH)
    return np.asarray(expected * np.exp(_DEVIATIONS * np.sqrt(1.0 / (n + 1) + by_fall)))


def _beyond(scores: FloatArray, end: float) -> tuple[float, float]:
    """Number of scores in the tail up to its end, and how far beyond its start they are together."""
    inside = scores[(scores >= _TAIL_START) & (scores < end)] - _TAIL_START
    return float(len(inside)), float(inside.sum())

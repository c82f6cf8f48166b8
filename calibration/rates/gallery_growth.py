"""FPIR of a gallery that has grown: what a threshold will do among ten times as many labels.

Two predictions, both for a gallery that grows by labels like its present ones, at the same threshold:

- *independent*: every part of the larger gallery tempts every query alike, `1 - (1 - FPIR)^r` at r times
  the size. Where some queries are tempted much more than others this is too high: these are answered
  wrongly already, and the rest stays out of danger for longer.
- *fitted*: how FPIR grew up to the present size says how it goes on. Let c_q of the n labels reach the
  threshold for query q. In a random part of m labels it is answered with probability
  1 - C(n - c_q, m) / C(n, m), so the mean FPIR of every smaller gallery is known exactly (rarefaction:
  Hurlbert, 1971). A gamma distribution of the queries' temptation gives -log(1 - FPIR) = k log(1 + theta f)
  at f times the size; theta makes it exact at f = 1, k is fitted on smaller parts, and k -> infinity is the
  independent case.

The first is an upper end. The second is a lower one where the temptation has another distribution: with a
log-normal in place of the gamma it comes out a quarter too low at ten times the size, and half too low at a
hundred times. Neither knows of labels unlike the present ones, such as near duplicates of the query's. From
a tenth of the labels of two real image sets, an FPIR of 0.20 of the whole is predicted as 0.21 and 0.22
by the second, and 0.25 and 0.27 by the first (`benchmarks/quality/gallery_growth.py`, means of 100 draws).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vicinal.calibration.arrays import Floats, Ints
from vicinal.calibration.errors import CalibrationError

_SHARES = (0.125, 0.25, 0.375, 0.5, 0.75)
_SHAPES = np.geomspace(0.01, 1e4, 400)


@dataclass(frozen=True)
class GalleryGrowth:
    """Growth of FPIR with the gallery."""

    fpir: float  # At the present size
    shape: float  # k, the evenness of the queries' temptation; large when all are tempted alike

    def fpir_at(self, ratio: float, fpir: float | None = None) -> float:
        """FPIR of a gallery with `ratio`, above 0, times the labels, by the fitted growth of the measured
        FPIR or of another, such as an end of its interval.
        """
        if ratio <= 0.0:
            raise CalibrationError(f"ratio is {ratio}, expected above 0")
        present = self.fpir if fpir is None else fpir
        if present in (0.0, 1.0):
            return present
        exponent = _grown(np.array([-np.log1p(-present)]), self.shape, np.array([ratio]))
        return float(-np.expm1(-exponent[0]))


def independent_fpir(fpir: float, ratio: float) -> float:
    """FPIR at `ratio` times the gallery if every part of it tempts every query alike: `1 - (1 - FPIR)^r`."""
    return 1.0 - (1.0 - fpir) ** ratio


def fit_gallery_growth(n_reached: Ints, n_labels: int) -> GalleryGrowth:
    """Fit the growth of FPIR to the (Q,) gallery labels with an item that reaches the threshold, for each
    query without a mate, of so many that it could reach.
    """
    shares = np.array([share for share in _SHARES if share * n_labels >= 1.0])
    present = rarefied_fpir(n_reached, n_labels, n_labels)
    smaller = np.array([rarefied_fpir(n_reached, n_labels, round(share * n_labels)) for share in shares])
    usable = smaller > 0.0
    if present in (0.0, 1.0) or not usable.any():
        return GalleryGrowth(present, float(_SHAPES[-1]))
    sizes = np.round(shares[usable] * n_labels) / n_labels
    measured = np.log(-np.log1p(-smaller[usable]))
    total = np.full(len(sizes), -np.log1p(-present))
    errors = [((np.log(_grown(total, shape, sizes)) - measured) ** 2).sum() for shape in _SHAPES]
    return GalleryGrowth(present, float(_SHAPES[int(np.argmin(errors))]))


def rarefied_fpir(n_reached: Ints, n_labels: int, n_kept: int) -> float:
    """Mean FPIR over all parts of the gallery with a number of its labels, exactly, by the (Q,) numbers of
    labels that reach the threshold for each query.
    """
    reached = np.asarray(n_reached, dtype=np.int64)
    if not len(reached) or reached.min() < 0 or reached.max() > n_labels or not 0 <= n_kept <= n_labels:
        raise CalibrationError(
            f"{len(reached)} queries, {n_labels} labels and {n_kept} of them kept: expected at least one "
            "query, none that reaches more labels than there are, and no more kept"
        )
    # C(n - c, m) / C(n, m) is the product of (n - m - j) / (n - j) over j < c.
    steps = np.arange(reached.max())
    factors = np.clip(n_labels - n_kept - steps, 0, None) / (n_labels - steps)
    unanswered = np.concatenate([[1.0], factors.cumprod()])
    return float(1.0 - unanswered[reached].mean())


def _grown(exponent: Floats, shape: float, ratio: Floats) -> Floats:
    """-log(1 - FPIR) at `ratio` times the size, where `exponent` is that of the present size."""
    # theta = e^(y / k) - 1 overflows for a tiny k; the logarithm of theta does not.
    scaled = exponent / shape
    log_theta = scaled + np.log(-np.expm1(-scaled))
    return np.asarray(shape * np.logaddexp(0.0, log_theta + np.log(ratio)))

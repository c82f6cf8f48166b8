"""A world of equal classes: what their pairs have in common when nothing but their images differs.

See `calibration.opis_floor`, whose model this is.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import numpy.typing as npt

__all__ = ["image_correlation", "mean_product", "normal_quantiles"]

Floats = npt.NDArray[np.float64]

_CORRELATIONS = np.linspace(0.0, 0.5, 501)[:-1]


def normal_quantiles(shares: Floats) -> Floats:
    """Standard normal quantiles of shares in [0, 1], infinite at the ends."""
    normal = NormalDist()
    ends = {0.0: -np.inf, 1.0: np.inf}
    return np.array([ends[p] if p in ends else normal.inv_cdf(p) for p in shares.tolist()])


def image_correlation(covariance: Floats, cuts: Floats) -> float:
    """The rho at which two pairs that share an image have the given covariance, averaged over the cuts.

    The derivative of P(z_1 <= c, z_2 <= c) with respect to the correlation is the bivariate normal density
    at (c, c) (Plackett, 1954), integrated here by the trapezoidal rule.
    """
    r = _CORRELATIONS[:, None]
    density = np.exp(-(cuts**2) / (1.0 + r)) / (2.0 * np.pi * np.sqrt(1.0 - r**2))
    steps = (density[1:] + density[:-1]) / 2.0 * np.diff(r, axis=0)
    by_correlation = np.concatenate([[0.0], steps.mean(axis=1).cumsum()])
    return float(np.interp(covariance.mean(), by_correlation, _CORRELATIONS))


def mean_product(rates: Floats, weights: Floats) -> Floats:
    """Weighted mean of the product of two different classes' rates (T, N); of the square with one class."""
    if len(rates) < 2:
        return (rates**2).sum(axis=0)
    total, squares = (weights * rates).sum(axis=0), ((weights * rates) ** 2).sum(axis=0)
    return (total**2 - squares) / (1.0 - (weights**2).sum())

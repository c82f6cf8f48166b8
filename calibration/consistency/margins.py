"""Margins that a calibration implies for the threshold-consistent margin loss.

Zhang et al., "Threshold-Consistent Margin Loss for Open-World Deep Metric Learning" (TCM, ICLR 2024),
appendix A.3.1, corrected: an L2 distance d between normalized embeddings is the cosine similarity
m = 1 - d^2 / 2. The ends of the calibration range, the distances that 1 % and 10 % of the negative pairs stay
below, give m+ and m-.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.calibration.errors import CalibrationError

__all__ = ["Margins", "NegativeSimilarities", "cosine_margin"]

# Bins over [-1, 1]: a quantile is known to 1e-5.
_BINS = 200_000


@dataclass(frozen=True)
class Margins:
    """Margins on the cosine similarity.

    Attributes:
        positive: m+, above which a positive pair is left alone; 1 % of the negative pairs are above it.
        negative: m-, below which a negative pair is left alone; 10 % of the negative pairs are above it.
    """

    positive: float
    negative: float


def cosine_margin(distance: float) -> float:
    """Cosine similarity of two normalized embeddings at an L2 distance in [0, 2].

    Raises:
        CalibrationError: The distance is out of range.
    """
    if not 0.0 <= distance <= 2.0:
        raise CalibrationError(f"distance is {distance}, expected 0 to 2 between normalized embeddings")
    return 1.0 - distance**2 / 2.0


class NegativeSimilarities:
    """Cosine similarities of negative pairs, of which only a histogram is kept."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BINS, dtype=np.int64)

    def add(self, similarities: npt.NDArray[np.floating]) -> None:
        """Count the similarities of some more pairs.

        Args:
            similarities: Any shape, in [-1, 1].
        """
        bins = ((np.ravel(similarities) + 1.0) * (_BINS / 2.0)).astype(np.int64)
        self._counts += np.bincount(np.clip(bins, 0, _BINS - 1), minlength=_BINS)

    def margins(self, far_range: tuple[float, float] = (0.01, 0.1)) -> Margins | None:
        """Margins of the calibration range, to 1e-5; None without pairs.

        Args:
            far_range: Shares of negative pairs below the ends of the range, the stricter first.
        """
        n = int(self._counts.sum())
        if not n:
            return None
        positive, negative = (cosine_margin(self._distance(share * (n - 1))) for share in far_range)
        return Margins(positive, negative)

    def _distance(self, rank: float) -> float:
        """Distance of the pair with a rank from the closest on, the middle of its bin."""
        closer = self._counts[::-1].cumsum()
        place = int(np.searchsorted(closer, rank, side="right"))
        similarity = 1.0 - (place + 0.5) * 2.0 / _BINS
        return float(np.sqrt(2.0 - 2.0 * similarity))

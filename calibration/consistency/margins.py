"""Margins that a calibration implies for the threshold-consistent margin loss.

Zhang et al., "Threshold-Consistent Margin Loss for Open-World Deep Metric Learning" (TCM, ICLR 2024),
appendix A.3.1, corrected: an L2 distance d between normalized embeddings is the cosine similarity
m = 1 - d^2 / 2. The ends of the calibration range, the distances that 1 % and 10 % of the negative pairs stay
below, give m+ and m-.
"""

from __future__ import annotations

from dataclasses import dataclass

from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.trials import Trials

__all__ = ["Margins", "cosine_margin", "implied_margins"]


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


def implied_margins(trials: Trials, far_range: tuple[float, float] = (0.01, 0.1)) -> Margins | None:
    """Margins of the calibration range; None without negative pairs.

    Args:
        trials: Pairs that are scored 1 - d / 2 with the L2 distance d of their embeddings.
        far_range: Shares of negative pairs within the ends of the range, the stricter first.
    """
    if not trials.n_non_mates:
        return None
    strict, loose = trials.calibration_range(far_range)
    return Margins(cosine_margin(2.0 * (1.0 - strict)), cosine_margin(2.0 * (1.0 - loose)))

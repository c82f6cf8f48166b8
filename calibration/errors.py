"""Errors of the calibration package.

CalibrationError (ValueError)
└── NotEnoughTrialsError     too few pairs or queries for the rate that was asked for
"""

from __future__ import annotations

__all__ = ["CalibrationError", "NotEnoughTrialsError"]


class CalibrationError(ValueError):
    """A calibration cannot be made of these scores, or a target cannot be reached."""


class NotEnoughTrialsError(CalibrationError):
    """Too few trials for a rate.

    Args:
        rate: The rate that was asked for.
        n_trials: Trials at hand.
        what: What a trial is, in the plural.
    """

    def __init__(self, rate: float, n_trials: int, what: str) -> None:
        needed = int(-(-3.0 // rate))
        reason = f"a rate of {rate:g} needs at least {needed:,} {what}, this calibration has {n_trials:,}"
        if n_trials:
            reason += f"; the lowest rate that {n_trials:,} can show is {3.0 / n_trials:.2g}"
        super().__init__(reason)
        self.rate = rate
        self.n_trials = n_trials
        self.needed = needed

"""From a stated error rate to the one threshold."""

from __future__ import annotations

import re
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from calibration.errors import CalibrationError, NotEnoughTrialsError
from calibration.operating_curve import Trials

__all__ = ["Target", "choose_threshold"]

Floats = npt.NDArray[np.float64]
_TARGET = re.compile(r"^(?P<rate>[a-z]+)\s*=\s*(?P<value>[0-9.eE+-]+)\s*(?P<percent>%?)$")


class Target(BaseModel):
    """An error rate that the threshold must hold.

    Attributes:
        rate: `far` (share of negative pairs accepted) or `fpir` (share of queries without a mate that
            get any match).
        value: The highest rate that is allowed, in (0, 0.5].
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rate: Literal["far", "fpir"]
    value: float = Field(gt=0.0, le=0.5)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `far=1e-3` or `fpir=5%`.

        Raises:
            CalibrationError: The text is no target, or its value is out of range.
        """
        found = _TARGET.match(text.strip())
        try:
            if found is None:
                raise ValueError
            value = float(found["value"]) / (100.0 if found["percent"] else 1.0)
            return cls.model_validate({"rate": found["rate"], "value": value})
        except ValueError as error:
            raise CalibrationError(
                f"'{text}' is no target: write far=0.001 or fpir=5%, with a value up to 0.5"
            ) from error

    def __str__(self) -> str:
        return f"{self.rate.upper()} {100.0 * self.value:.4g} %"


def choose_threshold(trials: Trials, target: Target) -> float:
    """The lowest threshold at which the rate, measured on the trials, is at most the target.

    Lower thresholds find more mates, so the lowest is the best that the rate allows.

    Raises:
        NotEnoughTrialsError: Fewer than 3 / value trials: then a rate of zero in the trials
            would not show, at 95 % confidence, that the true rate is below the target.
    """
    if target.rate == "far":
        scores, what = trials.non_mate_scores, "negative pairs"
    else:
        scores, what = trials.best_scores_without_mate, "queries without a mate"
    if len(scores) * target.value < 3.0:
        raise NotEnoughTrialsError(target.value, len(scores), what)
    return _lowest_threshold(scores, target.value)


def _lowest_threshold(scores: Floats, rate: float) -> float:
    n_allowed = int(rate * len(scores))
    # The product may round to the other side of a whole number; what counts is the quotient.
    if (n_allowed + 1) / len(scores) <= rate:
        n_allowed += 1
    elif n_allowed / len(scores) > rate:
        n_allowed -= 1
    # Every score up to the first one too many must stay below the threshold, ties included.
    first_too_many = np.partition(scores, len(scores) - 1 - n_allowed)[len(scores) - 1 - n_allowed]
    return float(np.nextafter(first_too_many, np.inf))

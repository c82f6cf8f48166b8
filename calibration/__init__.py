"""Calibration in plain numpy: error rates over the threshold, and the threshold for a stated rate."""

from calibration.errors import CalibrationError, NotEnoughTrialsError
from calibration.operating_curve import OperatingCurve, Trials, operating_curve
from calibration.opis import Opis, opis
from calibration.targets import Target, choose_threshold

__all__ = [
    "CalibrationError",
    "NotEnoughTrialsError",
    "OperatingCurve",
    "Opis",
    "Target",
    "Trials",
    "choose_threshold",
    "operating_curve",
    "opis",
]

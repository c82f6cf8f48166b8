"""Calibration in plain numpy: error rates over the threshold, the threshold for a stated rate, and OPIS."""

from calibration.errors import CalibrationError, NotEnoughTrialsError
from calibration.operating_curve import OperatingCurve, Trials, operating_curve
from calibration.opis import Opis, opis
from calibration.opis_floor import OpisFloor, opis_floor
from calibration.targets import Target, choose_threshold

__all__ = [
    "CalibrationError",
    "NotEnoughTrialsError",
    "OperatingCurve",
    "Opis",
    "OpisFloor",
    "Target",
    "Trials",
    "choose_threshold",
    "operating_curve",
    "opis",
    "opis_floor",
]

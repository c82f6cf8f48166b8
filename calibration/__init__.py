"""Calibration in plain numpy: error rates over the threshold, the threshold for a stated target, and OPIS."""

from calibration.errors import CalibrationError, NotEnoughTrialsError, UnreachableTargetError
from calibration.operating_curve import OperatingCurve, operating_curve
from calibration.opis import Opis, opis
from calibration.opis_floor import OpisFloor, opis_floor
from calibration.targets import Target, choose_threshold
from calibration.trials import TrialLabels, Trials

__all__ = [
    "CalibrationError",
    "NotEnoughTrialsError",
    "OperatingCurve",
    "Opis",
    "OpisFloor",
    "Target",
    "TrialLabels",
    "Trials",
    "UnreachableTargetError",
    "choose_threshold",
    "operating_curve",
    "opis",
    "opis_floor",
]

"""Calibration in plain numpy: error rates over the threshold, the threshold for a stated target, and OPIS."""

from calibration.errors import CalibrationError, NotEnoughTrialsError, UnreachableTargetError
from calibration.intervals import RateInterval, prediction_interval, rate_interval
from calibration.label_counts import LabelCounts, label_counts
from calibration.operating_curve import OperatingCurve, operating_curve
from calibration.opis import Opis, opis
from calibration.opis_floor import OpisFloor, opis_floor
from calibration.targets import Target, choose_threshold
from calibration.trials import TrialLabels, Trials

__all__ = [
    "CalibrationError",
    "LabelCounts",
    "NotEnoughTrialsError",
    "OperatingCurve",
    "Opis",
    "OpisFloor",
    "RateInterval",
    "Target",
    "TrialLabels",
    "Trials",
    "UnreachableTargetError",
    "choose_threshold",
    "label_counts",
    "operating_curve",
    "opis",
    "opis_floor",
    "prediction_interval",
    "rate_interval",
]

"""Calibration in plain numpy: error rates over the threshold, the threshold for a stated target, and OPIS.

A public name is loaded when it is first asked for: `vicinal --help` reads the errors of this package alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vicinal.calibration.consistency.opis import Opis, cosine_margin, opis
    from vicinal.calibration.consistency.opis_floor import OpisFloor, opis_floor
    from vicinal.calibration.drift import Drift, TopScoreCounts, measure_drift
    from vicinal.calibration.errors import (
        CalibrationError,
        NotEnoughLabelsError,
        NotEnoughTrialsError,
        OneLabelError,
        UnlabelledGalleryError,
        UnreachableTargetError,
    )
    from vicinal.calibration.rates.intervals import (
        RateInterval,
        rate_interval,
        ratio_interval,
    )
    from vicinal.calibration.rates.label_counts import LabelCounts, label_counts
    from vicinal.calibration.rates.promise import PromiseTest, check_promise
    from vicinal.calibration.search_results import CalibratedThreshold, calibrate_threshold
    from vicinal.calibration.targets import Target, choose_threshold
    from vicinal.calibration.trials import OperatingCurve, TrialLabels, Trials, operating_curve

__all__ = [
    "CalibratedThreshold",
    "CalibrationError",
    "Drift",
    "LabelCounts",
    "NotEnoughLabelsError",
    "NotEnoughTrialsError",
    "OneLabelError",
    "OperatingCurve",
    "Opis",
    "OpisFloor",
    "PromiseTest",
    "RateInterval",
    "Target",
    "TopScoreCounts",
    "TrialLabels",
    "Trials",
    "UnlabelledGalleryError",
    "UnreachableTargetError",
    "calibrate_threshold",
    "check_promise",
    "choose_threshold",
    "cosine_margin",
    "label_counts",
    "measure_drift",
    "operating_curve",
    "opis",
    "opis_floor",
    "rate_interval",
    "ratio_interval",
]

_NAMES = {
    "consistency.opis": "Opis cosine_margin opis",
    "consistency.opis_floor": "OpisFloor opis_floor",
    "drift": "Drift TopScoreCounts measure_drift",
    "errors": "CalibrationError NotEnoughLabelsError NotEnoughTrialsError OneLabelError "
    "UnlabelledGalleryError UnreachableTargetError",
    "rates.intervals": "RateInterval rate_interval ratio_interval",
    "rates.label_counts": "LabelCounts label_counts",
    "rates.promise": "PromiseTest check_promise",
    "search_results": "CalibratedThreshold calibrate_threshold",
    "targets": "Target choose_threshold",
    "trials": "OperatingCurve TrialLabels Trials operating_curve",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"vicinal.calibration.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'vicinal.calibration' has no attribute '{name}'")

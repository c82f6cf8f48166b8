"""Near and far queries: by the coarse labels of the other labels of the gallery."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.calibration import CalibrationError, TrialLabels, Trials
from vicinal.calibration.rates.label_counts import near_far_counts, near_labels

COARSE = {
    "boot": "shoe",
    "pump": "shoe",
    "cat": "animal",
    "dog": "animal",
    "car": "vehicle",
    "bus": "vehicle",
}


def test_a_label_is_near_when_another_of_its_kind_is_in_the_gallery() -> None:
    assert near_labels(["boot", "cat", "bus"], ["pump", "car"], COARSE).tolist() == [True, False, True]


def test_a_label_of_the_gallery_is_not_its_own_neighbor() -> None:
    """In leave-one-out the label is taken out of the gallery before it is searched for."""
    assert near_labels(["pump", "cat", "dog"], ["pump", "cat", "dog"], COARSE).tolist() == [False, True, True]


def test_a_label_without_a_coarse_label_is_refused_by_name() -> None:
    with pytest.raises(CalibrationError, match="1 labels have no coarse label, such as 'ant'"):
        near_labels(["ant"], ["pump"], COARSE)


def labelled_trials() -> Trials:
    """Four queries of boots, two of which are answered, and four of cats, one of which is."""
    none, no_codes = np.empty(0), np.empty(0, dtype=np.uint8)
    without = np.array([1, 1, 1, 1, 0, 0, 0, 0], dtype=np.uint8)
    labels = TrialLabels(np.array(["cat", "boot", "pump"], dtype=object), *[no_codes] * 4, without, no_codes)
    return Trials(none, none, none, np.array([0.9, 0.8, 0.1, 0.2, 0.9, 0.1, 0.1, 0.3]), labels=labels)


def test_near_and_far_queries_are_counted_apart() -> None:
    near, far = near_far_counts(labelled_trials(), 0.5, gallery_labels=["pump"], coarse_labels=COARSE)
    assert (near.rate, far.rate) == (0.5, 0.25)

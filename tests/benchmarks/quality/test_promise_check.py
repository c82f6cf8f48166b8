"""The worlds of the promise check: their true rates are those that many labels show."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.quality.promise_check import RATES, World, shifted, tried, true_rates
from vicinal.calibration import LabelCounts, RateInterval

WORLDS = [
    World(name, differences, even)
    for name, differences in (("fixed", "low"), ("fixed", "strong"), ("chosen", "low"), ("chosen", "strong"))
    for even in (True, False)
]


@pytest.mark.parametrize("world", WORLDS, ids=str)
@pytest.mark.parametrize(("rate", "truth"), [("fnir", 0.32), ("fpir", 0.05), ("fpir", 0.2)])
def test_many_labels_show_the_true_rate(world: World, rate: str, truth: float) -> None:
    counts = world.count(np.random.default_rng(0), rate, truth, 20_000)
    assert counts.n_events / counts.n_trials == pytest.approx(truth, abs=0.012)


def test_a_chosen_threshold_holds_the_target_on_its_labels_and_misses_it_on_others() -> None:
    """That is what the check has to reckon with."""
    world, found = World("chosen", "strong", True), []
    for repetition in range(60):
        promised, truth = world.calibrate(np.random.default_rng(repetition), 15)["fpir"]
        assert promised.rate <= RATES["fpir"][0]
        found.append(truth)
    assert np.mean(found) > 0.055
    assert min(found) < 0.03 < 0.08 < max(found)


def test_a_broken_rate_is_as_far_off_on_the_scale_of_the_scores() -> None:
    found = true_rates("fpir", RateInterval(0.05, 0.02, 0.11, 0.95), 0.05)
    assert (found["kept"], found["at_end"]) == (0.05, 0.11)
    assert found["broken"] == pytest.approx(0.2)
    assert true_rates("fnir", RateInterval(0.3, 0.2, 0.4, 0.95), 0.4)["broken"] > 0.69
    assert shifted(shifted(0.3, 0.7), -0.7) == pytest.approx(0.3)


def test_the_other_test_asks_for_a_range_beyond_the_promised_one() -> None:
    promised = RateInterval(0.3, 0.2, 0.4, 0.95)
    all_missed = tried(LabelCounts(np.full(20, 8), np.full(20, 8)), promised)
    as_promised = tried(LabelCounts(np.full(20, 2), np.full(20, 8)), promised)
    assert (all_missed["end"], all_missed["verdict"]) == (True, "broken")
    assert (as_promised["end"], as_promised["p"]) == (False, 1.0)

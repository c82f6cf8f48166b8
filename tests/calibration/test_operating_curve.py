"""Operating curves against counting."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vicinal.calibration import Trials, operating_curve
from vicinal.calibration.trials import rate_at_or_above

scores = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.5000001, 0.9, 1.0]), min_size=1, max_size=40)


def trials(mates=(0.9,), non_mates=(0.1,), best_mates=(0.9,), without=(0.1,)) -> Trials:
    return Trials(
        *(np.asarray(values, dtype=np.float64) for values in (mates, non_mates, best_mates, without))
    )


@given(scores, scores)
def test_rates_are_counts_of_scores_at_or_above_the_threshold(mates, non_mates) -> None:
    curve = operating_curve(trials(mates, non_mates), [0.0, 0.25, 0.5, 1.0])
    counted = [sum(score >= t for score in non_mates) / len(non_mates) for t in curve.thresholds]
    rejected = [sum(score < t for score in mates) / len(mates) for t in curve.thresholds]
    np.testing.assert_allclose(curve.far, counted)
    np.testing.assert_allclose(curve.frr, rejected, atol=1e-12)


@given(scores, scores)
def test_far_falls_and_frr_rises_with_the_threshold(mates, non_mates) -> None:
    curve = operating_curve(trials(mates, non_mates))
    assert (np.diff(curve.far) <= 0).all()
    assert (np.diff(curve.frr) >= 0).all()


def test_search_rates_count_queries_and_not_pairs() -> None:
    curve = operating_curve(trials(best_mates=[0.9, 0.4], without=[0.6, 0.2, 0.1, 0.1]), [0.5])
    assert (curve.fpir[0], curve.fnir[0]) == (0.25, 0.5)


def test_a_rate_without_trials_is_not_a_number() -> None:
    assert np.isnan(rate_at_or_above(np.empty(0), np.array([0.5]))).all()

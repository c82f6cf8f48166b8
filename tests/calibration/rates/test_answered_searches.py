"""Answered searches: which are drawn, and what the answers say of rates, against truths that are known."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vicinal.calibration.rates.answered_searches import SearchStrata, next_draws

scores_of_searches = st.lists(
    st.floats(0.0, 1.0).map(lambda one: round(one, 2)), min_size=1, max_size=200
).map(lambda one: np.array(one))


def searches(n: int = 1000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Best scores, and the random order of the searches."""
    rng = np.random.default_rng(seed)
    return rng.beta(4.0, 3.0, n), rng.random(n)


@given(scores=scores_of_searches, threshold=st.floats(0.0, 1.0))
def test_every_search_is_in_one_stratum_and_the_threshold_is_an_edge(
    scores: np.ndarray, threshold: float
) -> None:
    strata = SearchStrata.of(scores, threshold)
    own = strata.stratum(scores)
    assert np.bincount(own, minlength=len(strata.sizes)).tolist() == strata.sizes.tolist()
    assert (strata.sizes > 0).all()
    # None holds searches on both sides of the threshold.
    assert not set(own[scores >= threshold]) & set(own[scores < threshold])


def test_half_of_the_draws_are_near_the_threshold_and_half_everywhere() -> None:
    scores, order = searches()
    strata = SearchStrata.of(scores, 0.7)
    drawn = next_draws(scores, 0.7, order, np.zeros(1000, bool), n=120)
    counts = np.bincount(strata.stratum(scores[drawn]), minlength=8)
    nearest = np.argsort(np.abs(strata.means - 0.7))[:3]
    wanted = 60.0 * strata.sizes / 1000
    wanted[nearest] += 20.0
    assert np.abs(counts - wanted).max() <= 1.0


def test_drawing_one_by_one_is_drawing_at_once() -> None:
    scores, order = searches(100)
    at_once = next_draws(scores, 0.6, order, np.zeros(100, bool), n=30)
    drawn, one_by_one = np.zeros(100, bool), []
    for _ in range(30):
        (place,) = next_draws(scores, 0.6, order, drawn)
        drawn[place] = True
        one_by_one.append(place)
    assert one_by_one == at_once.tolist()


def test_all_are_drawn_in_the_end_and_each_once() -> None:
    scores, order = searches(50)
    found = next_draws(scores, 0.6, order, np.zeros(50, bool), n=80)
    assert sorted(found) == list(range(50))
    assert len(next_draws(scores, 0.6, order, np.ones(50, bool))) == 0
    assert len(next_draws(np.empty(0), 0.6, [], np.empty(0, bool))) == 0


def test_within_a_stratum_the_order_alone_decides() -> None:
    scores, order = searches()
    strata = SearchStrata.of(scores, 0.7)
    drawn = next_draws(scores, 0.7, order, np.zeros(1000, bool), n=100)
    own = strata.stratum(scores)
    for stratum in range(len(strata.sizes)):
        members = np.flatnonzero(own == stratum)
        first = members[np.argsort(order[members])]
        taken = [place for place in drawn if own[place] == stratum]
        assert taken == first[: len(taken)].tolist()


def test_one_search_of_a_visit_is_asked_about_and_none_where_one_was() -> None:
    scores, order = searches(60)
    visits = np.array([f"visit {i // 3}" for i in range(30)] + [""] * 15 + [None] * 15, dtype=object)
    drawn = np.zeros(60, bool)
    drawn[4] = True
    found = next_draws(scores, 0.6, order, drawn, n=60, visits=visits)
    named = [visits[place] for place in found if place < 30]
    assert len(named) == len(set(named)) == 9
    assert "visit 1" not in named
    assert sorted(found[found >= 30]) == list(range(30, 60))


def test_what_is_out_of_the_sample_is_counted_and_not_drawn() -> None:
    scores, order = searches(200)
    drawn, sampled = np.zeros(200, bool), np.ones(200, bool)
    sampled[:20] = False
    drawn[:10] = True
    found = next_draws(scores, 0.6, order, drawn, n=200, in_sample=sampled)
    assert sorted(found) == list(range(20, 200))


def test_searches_that_found_nothing_are_drawn_too() -> None:
    scores, order = searches(100)
    scores[:40] = -np.inf
    found = next_draws(scores, 0.6, order, np.zeros(100, bool), n=50)
    assert (found < 40).sum() >= 8

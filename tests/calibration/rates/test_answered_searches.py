"""Answered searches: which are drawn, and what the answers say of rates, against truths that are known."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.calibration.rates.answered_searches import (
    AnsweredSearches,
    SearchStrata,
    next_draws,
)

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


def answered(
    n: int = 120,
    *,
    seed: int = 0,
    errs: float = 0.0,
    unsure: float = 0.0,
    m: int = 1000,
    threshold: float = 0.6,
) -> tuple[AnsweredSearches, dict[str, float]]:
    """Answers to drawn searches of a world whose rates at the threshold are known, and these rates. Each
    known thing scores as its label does, more or less; who errs calls what is known absent, or the reverse.
    """
    rng = np.random.default_rng(seed)
    is_known = rng.random(m) < 0.6
    labels = np.where(is_known, rng.integers(0, 40, m), 100 + np.arange(m))
    means = np.random.default_rng(9).normal(0.62, 0.08, 40)
    known_scores = rng.normal(means[labels % 40], 0.08)
    scores = np.clip(np.where(is_known, known_scores, rng.normal(0.46, 0.08, m)), 0.0, 1.0)
    drawn = next_draws(scores, threshold, rng.random(m), np.zeros(m, bool), n=n)
    said = np.where(rng.random(n) < errs, ~is_known[drawn], is_known[drawn])
    untold = rng.random(n) < unsure
    found = AnsweredSearches(
        top_scores=scores[drawn],
        mate_scores=scores[drawn],
        is_known=said & ~untold,
        is_absent=~said & ~untold,
        is_unsure=untold,
        codes=np.where(said, labels[drawn] % 40, 100 + drawn),
        sample_scores=scores,
        threshold=threshold,
    )
    # Of all searches to come: the same labels, and strangers like these.
    normal = NormalDist()
    missed = np.mean([normal.cdf((threshold - mean) / 0.08) for mean in means])
    return found, {"fnir": float(missed), "fpir": 1.0 - normal.cdf((threshold - 0.46) / 0.08)}


def test_weights_of_a_stratum_add_up_to_its_searches() -> None:
    found, _ = answered()
    strata = SearchStrata.of(found.sample_scores, 0.6)
    sums = np.bincount(strata.stratum(found.top_scores), found.weights)
    assert sums == pytest.approx(strata.sizes)


def test_strata_without_an_answer_go_to_what_is_next_to_them_on_their_side() -> None:
    found, _ = answered(40)
    below = found.top_scores < 0.55
    few = replace(
        found,
        **{
            name: getattr(found, name)[~below]
            for name in ("top_scores", "mate_scores", "is_known", "is_absent", "is_unsure", "codes")
        },
    )
    assert few.weights.sum() == pytest.approx(1000)
    above = few.top_scores >= 0.6
    assert few.weights[above].sum() == pytest.approx((few.sample_scores >= 0.6).sum())


@pytest.mark.slow
def test_rates_are_those_of_all_searches_however_they_were_drawn() -> None:
    rates = {"fnir": [], "fpir": []}
    for seed in range(40):
        found, truth = answered(seed=seed)
        for rate, values in rates.items():
            values.append(found.interval(rate, 0.6).rate - truth[rate])
    for values in rates.values():
        assert abs(np.mean(values)) < 3.0 * np.std(values) / np.sqrt(40) + 0.002


@pytest.mark.slow
@pytest.mark.parametrize("errs", [0.0, 0.05])
@pytest.mark.parametrize("n", [60, 120])
def test_intervals_hold_the_truth_of_what_is_to_come(n: int, errs: float) -> None:
    held = {"fnir": 0, "fpir": 0}
    for seed in range(40):
        found, truth = answered(n, seed=100 + seed, errs=errs)
        for rate in held:
            interval = found.interval(rate, 0.6)
            held[rate] += interval.low <= truth[rate] <= interval.high
    # 92 % of 40 and what chance takes.
    assert min(held.values()) >= 34


def test_what_cannot_be_told_widens_both_ends() -> None:
    found, _ = answered(unsure=0.1)
    told = replace(found, is_unsure=np.zeros_like(found.is_unsure))
    for rate in ("fnir", "fpir"):
        with_unsure, without = found.interval(rate, 0.6), told.interval(rate, 0.6)
        assert with_unsure.low <= without.low
        assert with_unsure.high > without.high
        assert with_unsure.rate == without.rate


def test_without_an_event_an_interval_ends_where_all_or_nothing_labels_would() -> None:
    found, _ = answered()
    interval = found.interval("fpir", 0.99)
    assert interval.rate == interval.low == 0.0
    n = int(found.is_absent.sum())
    # The upper end of none of n, and more where the strangers weigh unevenly.
    assert interval.high > 1.0 - 0.025 ** (1.0 / (n + 1))


def test_persons_who_disagree_with_themselves_make_low_ends_lower() -> None:
    found, _ = answered()
    careful, careless = replace(found, n_again=20), replace(found, n_again=20, n_disagreed=6)
    for rate in ("fnir", "fpir"):
        assert careless.interval(rate, 0.5).low < careful.interval(rate, 0.5).low
        assert careless.interval(rate, 0.5).high == careful.interval(rate, 0.5).high


def test_nothing_is_said_of_a_rate_without_an_answer_for_it() -> None:
    found, _ = answered(errs=0.0)
    known = replace(
        found, is_known=found.is_known | found.is_absent, is_absent=np.zeros_like(found.is_absent)
    )
    assert known.interval("fpir", 0.6) is None
    assert known.interval("fnir", 0.6) is not None
    assert known.strangers == 0.0


def test_few_answers_above_a_threshold_leave_its_fpir_open() -> None:
    """Questions lay lower: above it an answer stands for ten times as many searches, and no stranger's is."""
    rng = np.random.default_rng(0)
    sample = np.concatenate([rng.uniform(0.2, 0.5, 500), rng.uniform(0.8, 1.0, 500)])
    low, high = rng.uniform(0.3, 0.5, 90), rng.uniform(0.8, 1.0, 9)
    top = np.concatenate([low, high])
    is_known = np.arange(len(top)) >= 40
    found = AnsweredSearches(
        top_scores=top,
        mate_scores=np.where(is_known, top, 0.0),
        is_known=is_known,
        is_absent=~is_known,
        is_unsure=np.zeros(len(top), bool),
        codes=np.arange(len(top)),
        sample_scores=sample,
        threshold=0.4,
    )
    one = found.interval("fpir", 0.75)
    assert one is not None
    assert one.rate == 0.0
    # 40 strangers that all weigh alike would leave less than .1.
    assert one.high > 0.3


@pytest.mark.parametrize(("rate", "value"), [("fpir", 0.05), ("fnir", 0.6)])
@pytest.mark.parametrize("n", [60, 240])
def test_scores_are_unsure_from_where_a_rate_cannot_be_told_and_at_most_for_a_tenth_of_strangers(
    rate: str, value: float, n: int
) -> None:
    found, threshold = answered(n)[0], 0.65
    scores = found.top_scores[found.of_rate(rate)]
    tried = ((one, found.interval(rate, one, 0.8)) for one in sorted(scores[scores < threshold]))
    first = next(one for one, end in tried if end.low <= value <= end.high)
    lowest = found.unsure_from(rate, threshold, value)
    weights = found.weights * (found.is_absent & (found.top_scores < threshold))
    wide, chosen = (weights[found.top_scores >= one].sum() for one in (first, lowest))
    most = 0.1 * found.weights[found.is_absent].sum()
    assert first <= lowest < threshold
    assert chosen <= most
    assert lowest == first or wide > most


def test_photos_that_see_what_searches_became_may_be_missed_less() -> None:
    found, _ = answered()
    less = np.where(np.arange(120) % 2, found.mate_scores - 0.1, np.nan)
    as_is, more = found.interval("fnir", 0.6), replace(found, less_scores=less).interval("fnir", 0.6)
    events, items = found.events("fnir", 0.6), found.is_known & ~np.isnan(less)
    missed, lost = (found.weights[items & one].sum() for one in (events, less < 0.6))
    own = missed / found.weights[events].sum()
    assert more.low == pytest.approx(as_is.low * (own * missed / lost + 1.0 - own))
    assert (more.rate, more.high) == (as_is.rate, as_is.high)

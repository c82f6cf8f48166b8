"""Answered pairs: what few answers say of precision and FAR, against truths that are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.calibration import CalibrationError, Target
from vicinal.calibration.rates.answered_pairs import AnsweredPairs, PairAnswers, PairStrata

PRECISION, FAR = Target(rate="precision", value=0.9), Target(rate="far", value=0.01)
SCORES = np.linspace(1.0, 0.0, 2001)


def answers(strata: PairStrata, shares: np.ndarray, n: int, errs: float, seed: int) -> PairAnswers:
    """Single answers about pairs of random strata, wrong as often as said."""
    rng = np.random.default_rng(seed)
    asked = rng.integers(0, len(strata.sizes), n)
    same = (rng.random(n) < shares[asked]) != (rng.random(n) < errs)
    return PairAnswers(asked, same.astype(int), (~same).astype(int))


def falling(strata: PairStrata) -> np.ndarray:
    """A share of same pairs that falls from 1 to 0 in the middle of the strata."""
    places = np.arange(len(strata.sizes))
    return np.asarray(1.0 / (1.0 + np.exp(1.5 * (places - 0.6 * len(places)))))


@given(
    scores=st.lists(st.floats(0.0, 1.0).map(lambda one: round(one, 2)), min_size=1, max_size=200),
    first=st.integers(1, 10),
)
def test_strata_hold_every_pair_once_and_equal_scores_together(scores: list[float], first: int) -> None:
    strata = PairStrata.of(np.array(scores), first=first)
    own = strata.stratum(np.array(scores))
    assert np.bincount(own, minlength=len(strata.sizes)).tolist() == strata.sizes.tolist()
    assert (np.diff(strata.lowest) < 0.0).all()
    for border, lowest in enumerate(strata.lowest):
        assert ((np.array(scores) >= lowest) == (own <= border)).all()


def test_many_answers_tell_both_rates_exactly() -> None:
    strata = PairStrata.of(SCORES, growth=2.0, n_others=8000)
    shares = falling(strata)
    found = AnsweredPairs(strata, answers(strata, shares, 4000, 0.0, seed=1))
    accepted = strata.sizes.cumsum()
    precision = (shares * strata.sizes).cumsum() / accepted
    different = ((1.0 - shares) * strata.sizes).cumsum()
    far = different / (different[-1] + 8000)
    np.testing.assert_allclose(found.precision().mean(axis=0), precision, atol=0.02)
    np.testing.assert_allclose(found.far().mean(axis=0), far, atol=0.01)


@pytest.mark.slow
def test_intervals_hold_the_truth_and_not_what_is_far_from_it() -> None:
    """Of 120 sessions with 100 answers 95 % intervals hold the truth in nine of ten at least."""
    strata = PairStrata.of(SCORES)
    shares = falling(strata)
    border = len(strata.sizes) // 2
    rng = np.random.default_rng(0)
    hits, far_hits = 0, 0
    for seed in range(120):
        same = rng.binomial(strata.sizes, shares)
        truth = float(same[: border + 1].sum() / strata.sizes[: border + 1].sum())
        found = AnsweredPairs(strata, answers(strata, same / strata.sizes, 100, 0.0, seed=seed))
        ends = found.interval(PRECISION, border)
        hits += ends.low <= truth <= ends.high
        far_hits += ends.low <= truth - 0.2 <= ends.high
    assert hits >= 108
    assert far_hits <= 60


def test_pairs_that_are_shown_twice_tell_how_often_a_person_errs() -> None:
    strata = PairStrata.of(SCORES)
    rng = np.random.default_rng(3)
    shares = falling(strata)
    asked = rng.integers(0, len(strata.sizes), 600)
    is_same = rng.random(600) < shares[asked]
    n_same = rng.binomial(2, np.where(is_same, 0.9, 0.1))
    found = AnsweredPairs(strata, PairAnswers(asked, n_same, 2 - n_same)).error_interval()
    assert found.low <= 0.1 <= found.high
    assert found.low > 0.05
    sure = AnsweredPairs(strata, PairAnswers(asked, 2 * is_same, 2 * ~is_same)).error_interval()
    assert sure.high < 0.03


def test_slips_do_not_hide_a_precise_threshold() -> None:
    """With 8 % of wrong answers only 92 % are called the same where all are: repeated answers tell."""
    strata = PairStrata.of(SCORES, growth=2.0)
    shares = np.where(np.arange(len(strata.sizes)) < 6, 1.0, 0.0)
    rng = np.random.default_rng(4)
    asked = rng.integers(0, len(strata.sizes), 200)
    n_same = rng.binomial(3, np.where(shares[asked] == 1.0, 0.92, 0.08))
    found = AnsweredPairs(strata, PairAnswers(asked, n_same, 3 - n_same))
    target = Target(rate="precision", value=0.97)
    assert found.border(target) == 5


def test_the_border_is_the_last_one_that_holds() -> None:
    strata = PairStrata.of(SCORES, growth=2.0, n_others=10_000)
    found = AnsweredPairs(strata, answers(strata, falling(strata), 500, 0.0, seed=5))
    border = found.border(PRECISION)
    means = found.precision().mean(axis=0)
    assert border is not None
    assert means[border] >= 0.9
    assert (means[border + 1 :] < 0.9).all()
    accepted_different = found.border(FAR)
    assert accepted_different is not None
    assert (found.far().mean(axis=0)[accepted_different + 1 :] > 0.01).all()


def test_no_border_holds_where_even_the_best_pairs_differ() -> None:
    strata = PairStrata.of(SCORES)
    n = len(strata.sizes)
    found = AnsweredPairs(strata, PairAnswers(np.arange(n), np.zeros(n, int), np.full(n, 5)))
    assert found.border(PRECISION) is None


def test_high_scores_are_trusted_more_than_answers_alone_would_allow() -> None:
    """Ten answers alone, all the same, leave 1 in 12 different: that the best pairs begin high tells more."""
    strata = PairStrata.of(SCORES, growth=2.0)
    found = AnsweredPairs(strata, PairAnswers(np.repeat([0, 1], 5), np.ones(10, int), np.zeros(10, int)))
    assert found.precision()[:, 0].mean() > 0.97
    mixed = AnsweredPairs(strata, PairAnswers(np.repeat([0, 1], 5), np.arange(10) % 2, 1 - np.arange(10) % 2))
    assert mixed.precision()[:, 0].mean() < 0.8


@pytest.mark.parametrize("rate", ["fnir", "fpir", "frr"])
def test_rates_that_pairs_say_nothing_of_are_refused(rate: str) -> None:
    strata = PairStrata.of(SCORES)
    nothing = PairAnswers(*np.zeros((3, 0), dtype=int))
    with pytest.raises(CalibrationError, match="say nothing of"):
        AnsweredPairs(strata, nothing).rate(Target.model_validate({"rate": rate, "value": 0.05}))


def test_questions_go_where_the_threshold_could_lie() -> None:
    strata = PairStrata.of(SCORES, growth=2.0)
    shares = falling(strata)
    found = AnsweredPairs(strata, answers(strata, shares, 400, 0.0, seed=6))
    rng = np.random.default_rng(0)
    border = found.border(PRECISION)
    assert border is not None
    asked = np.zeros(len(strata.sizes), dtype=np.int64)
    drawn = [found.next_stratum(PRECISION, asked, strata.sizes, rng) for _ in range(50)]
    # Neither the first pairs, which are the same beyond doubt, nor those far below.
    assert border - 3 <= min(drawn)
    assert max(drawn) <= border + 3
    empty = strata.sizes.copy()
    empty[border - 3 : border + 4] = 0
    assert {found.next_stratum(PRECISION, asked, empty, rng) for _ in range(20)} <= set(np.flatnonzero(empty))

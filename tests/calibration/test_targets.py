"""Thresholds for a target: exact on their trials, refused where trials are too few or none will do."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.calibration import (
    CalibrationError,
    NotEnoughLabelsError,
    NotEnoughTrialsError,
    Target,
    TrialLabels,
    Trials,
    UnreachableTargetError,
    choose_threshold,
    operating_curve,
)
from vicinal.calibration.errors import NotEnoughAnswersError
from vicinal.calibration.targets import threshold_of_mean

NONE = np.empty(0)
GRID = st.integers(0, 6).map(lambda i: i / 7)
FIELDS = {
    "far": "non_mate_scores",
    "frr": "mate_scores",
    "fpir": "best_scores_without_mate",
    "fnir": "best_mate_scores",
}


def negative_pairs(scores) -> Trials:
    return Trials(np.array([1.0]), np.asarray(scores, dtype=np.float64), NONE, NONE)


def own_scores(rate: str, scores) -> dict:
    return {FIELDS[rate]: np.asarray(scores, dtype=np.float64)}


def of_rate(rate: str, scores) -> Trials:
    """Trials in which only those exist that the rate counts."""
    return Trials(**{**dict.fromkeys(FIELDS.values(), NONE), **own_scores(rate, scores)})


def answers(scores, is_mate) -> Trials:
    flags = np.asarray(is_mate, dtype=bool)
    return Trials(
        NONE, NONE, NONE, NONE, answer_scores=np.asarray(scores, dtype=np.float64), answer_is_mate=flags
    )


def tried(scores) -> list[float]:
    """Every threshold in [0, 1] at which anything can change."""
    around = {0.0, 1.0, *scores, *(float(np.nextafter(score, np.inf)) for score in scores)}
    return sorted(t for t in around if 0.0 <= t <= 1.0)


def slow_lowest_threshold(scores, rate):
    return next(t for t in tried(scores) if np.mean([score >= t for score in scores]) <= rate)


def slow_highest_threshold(scores, rate):
    return next(t for t in tried(scores)[::-1] if np.mean([score < t for score in scores]) <= rate)


def slow_precise_threshold(scores, is_mate, precision):
    for t in tried(scores):
        returned = [mate for score, mate in zip(scores, is_mate, strict=True) if score >= t]
        if returned and sum(returned) / len(returned) >= precision:
            return t, len(returned)
    return None


@pytest.mark.parametrize("rate", ["far", "fpir"])
@settings(deadline=None)
@given(scores=st.lists(GRID, min_size=12, max_size=60), value=st.sampled_from([0.25, 0.5]))
def test_false_accepts_get_the_lowest_threshold_that_holds_the_rate(rate, scores, value) -> None:
    threshold = choose_threshold(of_rate(rate, scores), Target(rate=rate, value=value))
    assert threshold == slow_lowest_threshold(scores, value)


@pytest.mark.parametrize("rate", ["frr", "fnir"])
@settings(deadline=None)
@given(scores=st.lists(GRID, min_size=12, max_size=60), value=st.sampled_from([0.25, 0.5]))
def test_false_rejects_get_the_highest_threshold_that_holds_the_rate(rate, scores, value) -> None:
    threshold = choose_threshold(of_rate(rate, scores), Target(rate=rate, value=value))
    assert threshold == slow_highest_threshold(scores, value)


@settings(deadline=None)
@given(st.lists(st.tuples(GRID, st.booleans()), min_size=12, max_size=60), st.sampled_from([0.5, 0.7]))
def test_a_precision_gets_the_lowest_threshold_that_has_it(candidates, precision) -> None:
    scores, is_mate = zip(*candidates, strict=True)
    found = slow_precise_threshold(scores, is_mate, precision)
    trials, target = answers(scores, is_mate), Target(rate="precision", value=precision)
    if found is None:
        with pytest.raises(UnreachableTargetError, match="the highest"):
            choose_threshold(trials, target)
    elif found[1] * (1.0 - precision) < 3.0 - 1e-9:
        with pytest.raises(NotEnoughTrialsError, match="returned matches"):
            choose_threshold(trials, target)
    else:
        assert choose_threshold(trials, target) == found[0]


def test_the_wrong_direction_would_be_noticed() -> None:
    """Negative control: the lowest threshold that holds an FRR is 0, the highest that holds a FAR 1."""
    scores = np.arange(1, 101) / 101
    lowest, highest = slow_lowest_threshold(scores, 0.1), slow_highest_threshold(scores, 0.1)
    assert choose_threshold(of_rate("frr", scores), Target(rate="frr", value=0.1)) == highest != lowest
    assert choose_threshold(of_rate("far", scores), Target(rate="far", value=0.1)) == lowest != highest


@pytest.mark.parametrize("rate", FIELDS)
def test_just_enough_trials_are_accepted(rate: str) -> None:
    """0.05 times 60 is 3, and one trial less is refused."""
    target = Target(rate=rate, value=0.05)
    assert 0.0 <= choose_threshold(of_rate(rate, np.linspace(0.0, 0.9, 60)), target) <= 1.0
    with pytest.raises(NotEnoughTrialsError, match="at least 60 "):
        choose_threshold(of_rate(rate, np.linspace(0.0, 0.9, 59)), target)


@pytest.mark.parametrize("rate", ["far", "fpir"])
def test_perfect_scores_of_non_mates_make_a_rate_unreachable(rate: str) -> None:
    """No threshold up to 1 keeps out a duplicate; one above 1 would never match anything."""
    scores = np.concatenate([np.ones(12), np.zeros(88)])
    with pytest.raises(UnreachableTargetError, match=r"score 1; the lowest .* reaches is 12 %") as caught:
        choose_threshold(of_rate(rate, scores), Target(rate=rate, value=0.1))
    assert caught.value.reachable == pytest.approx(0.12)


def test_an_unreachable_precision_says_the_highest_that_can_be_reached() -> None:
    trials = answers(np.repeat([0.9, 0.5], 100), np.arange(200) % 2 == 0)
    with pytest.raises(UnreachableTargetError, match=r"precision 90 % cannot .* highest .* reaches is 50 %"):
        choose_threshold(trials, Target(rate="precision", value=0.9))


def labelled_pairs(seed: int = 0, n_labels: int = 12, n: int = 4000) -> Trials:
    """Negative pairs of all labels, and positive ones that some labels find harder to accept."""
    rng = np.random.default_rng(seed)
    queries = rng.integers(0, n_labels, n)
    items = (queries + rng.integers(1, n_labels, n)) % n_labels
    mates = rng.integers(0, n_labels - 1, 600)
    hardness = np.linspace(0.0, 0.35, n_labels)
    labels = TrialLabels(
        names=np.array([f"label {i}" for i in range(n_labels)], dtype=object),
        mates=mates.astype(np.uint8),
        non_mate_queries=queries.astype(np.uint8),
        non_mate_items=items.astype(np.uint8),
        best_mates=np.empty(0, np.uint8),
        without_mate=np.empty(0, np.uint8),
        answers=np.empty(0, np.uint8),
    )
    positive = np.clip(rng.normal(0.8, 0.1, 600) - hardness[mates], 0, 1)
    return Trials(positive, np.clip(rng.normal(0.3, 0.12, n), 0, 1), NONE, NONE, labels=labels)


def slow_worst_utility(trials: Trials, threshold: float, share: float) -> float:
    """Sets of pairs and loops, straight from the definition."""
    labels, utilities = trials.labels, []
    for code in range(len(labels.names)):
        own = trials.mate_scores[labels.mates == code]
        others = trials.non_mate_scores[(labels.non_mate_queries == code) | (labels.non_mate_items == code)]
        if len(own) and len(others):
            psi, phi = np.mean(own >= threshold), np.mean(others < threshold)
            utilities.append(2 * psi * phi / (psi + phi) if psi + phi else 0.0)
    ranked = sorted(utilities)
    return float(np.mean(ranked[: math.ceil(Fraction(str(share)) * len(ranked))]))


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_a_utility_gets_the_best_threshold_of_the_calibration_range(share: float) -> None:
    trials = labelled_pairs()
    t_min, t_max = np.quantile(1.0 - trials.non_mate_scores, [0.01, 0.1])
    grid = [1.0 - (t_min + (t_max - t_min) * j / 100) for j in range(1, 101)]
    best = max(slow_worst_utility(trials, t, share) for t in grid)
    threshold = choose_threshold(trials, Target(rate="utility", value=share))
    assert min(abs(threshold - t) for t in grid) < 1e-9
    assert slow_worst_utility(trials, threshold, share) == pytest.approx(best, abs=1e-12)


def test_the_worst_classes_ask_for_another_threshold_than_all() -> None:
    """Negative control of the share: with hard classes among easy ones it matters."""
    trials = labelled_pairs()
    mean, worst = (choose_threshold(trials, Target.parse(f"utility={text}")) for text in ("mean", "worst"))
    assert slow_worst_utility(trials, worst, 0.1) > slow_worst_utility(trials, mean, 0.1) + 1e-3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("far=0.001", 0.001),
        ("fpir=5%", 0.05),
        (" far = 1e-2 ", 0.01),
        ("frr=10%", 0.1),
        ("fnir=.2", 0.2),
        ("precision=95%", 0.95),
        ("utility=mean", 1.0),
        ("utility=worst", 0.1),
        ("utility=20%", 0.2),
        ("FPIR 5 %", 0.05),
        ("FPIR=5%", 0.05),
        ("fpir<=0.05", 0.05),
        ("FNIR ≤ 20 %", 0.2),
        ("precision >= 95 %", 0.95),
    ],
)
def test_targets_are_read_from_text(text: str, value: float) -> None:
    target = Target.parse(text)
    assert (target.rate, target.value) == (re.split("[ =<]", text.strip())[0].lower(), pytest.approx(value))


@pytest.mark.parametrize(
    "text",
    [
        "far",
        "far=0",
        "recall=0.1",
        "far=1e",
        "frr=51%",
        "fnir=mean",
        "precision=40%",
        "utility=101%",
        "utility=best",
        "fpir>=5%",
        "precision<=95%",
        "utility<=20%",
        "fpir5%",
        "fpir 5 %, sure",
    ],
)
def test_text_that_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(CalibrationError, match="is no target"):
        Target.parse(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("fpir=5%", "FPIR 5 %"),
        ("far=0.001", "FAR 0.1 %"),
        ("precision=0.95", "precision 95 %"),
        ("utility=mean", "mean utility"),
        ("utility=worst", "utility of the worst 10 %"),
        ("fnir=20%, sure 95 %", "FNIR 20 %, sure 95 %"),
        ("fpir <= 5 %, in the mean", "FPIR 5 %, in the mean"),
    ],
)
def test_targets_are_shown_in_words_and_percent(text: str, shown: str) -> None:
    assert str(Target.parse(text)) == shown
    assert Target.parse(shown) == Target.parse(text)


@pytest.mark.parametrize(("rate", "n_accepted"), [(0.49999999999999994, 5), (0.5, 6), (0.35, 4)])
def test_rates_that_round_to_a_whole_number_of_trials_are_counted_exactly(
    rate: float, n_accepted: int
) -> None:
    scores = np.arange(12) / 12
    threshold = choose_threshold(negative_pairs(scores), Target(rate="far", value=rate))
    assert (scores >= threshold).sum() == n_accepted


@pytest.mark.parametrize("rate", ["fpir", "fnir"])
@given(
    readings=st.lists(st.lists(GRID, min_size=1, max_size=30), min_size=1, max_size=3),
    value=st.sampled_from([0.1237, 0.2371, 0.4129]),
)
def test_the_mean_of_readings_gets_the_best_threshold_that_holds_it(rate, readings, value) -> None:
    def mean(t: float) -> float:
        events = [[score < t if rate == "fnir" else score >= t for score in one] for one in readings]
        return sum(sum(one) / len(one) for one in events) / len(events)

    every = tried([score for one in readings for score in one])
    in_turn = every[::-1] if rate == "fnir" else every
    expected = next((t for t in in_turn if mean(t) <= value), in_turn[-1])
    found = threshold_of_mean([np.array(one) for one in readings], Target(rate=rate, value=value))
    assert found == expected


def weighted(rate: str, scores, weights) -> Trials:
    """Trials of queries that stand for different numbers of searches."""
    field = "best_mate_weights" if rate == "fnir" else "without_mate_weights"
    return replace(of_rate(rate, scores), **{field: np.asarray(weights, dtype=np.float64)})


@pytest.mark.parametrize("rate", ["fpir", "fnir"])
@given(
    searches=st.lists(st.tuples(GRID, st.integers(1, 4)), min_size=20, max_size=40),
    value=st.sampled_from([0.0617, 0.1237, 0.2371, 0.4129]),
)
def test_a_query_that_stands_for_several_searches_counts_as_often(rate, searches, value) -> None:
    scores, times = map(list, zip(*searches, strict=True))
    repeated = of_rate(rate, np.repeat(scores, 3 * np.array(times)))
    target = Target(rate=rate, value=value)
    threshold = choose_threshold(weighted(rate, scores, times), target)
    assert threshold == pytest.approx(choose_threshold(repeated, target), abs=1e-12)
    curves = [operating_curve(one, [threshold]) for one in (weighted(rate, scores, times), repeated)]
    assert getattr(curves[0], rate) == pytest.approx(getattr(curves[1], rate))


@pytest.mark.parametrize("rate", ["fpir", "fnir"])
def test_few_answers_are_refused_with_their_number(rate: str) -> None:
    few = weighted(rate, np.linspace(0.1, 0.9, 9), np.ones(9))
    with pytest.raises(
        NotEnoughAnswersError, match=r"at least [0-9]+ searches for things that the gallery .* 9"
    ):
        choose_threshold(few, Target(rate=rate, value=0.05))
    with pytest.raises(NotEnoughAnswersError, match="at least 99"):
        choose_threshold(
            weighted(rate, np.linspace(0.1, 0.9, 98), np.ones(98)), Target(rate=rate, value=0.01)
        )


@pytest.mark.parametrize("sure", [0.95, "mean"])
def test_labels_count_by_what_they_stand_for_where_a_target_is_held_more_surely(sure) -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(300)
    codes = np.arange(300)
    labels = TrialLabels(np.arange(300).astype(object), *[codes[:0]] * 4, codes, codes[:0])
    # What scores high was drawn ten times as often, and stands for a tenth.
    weights = np.where(scores > 0.7, 0.1, 1.0)
    even, uneven = (replace(weighted("fpir", scores, one), labels=labels) for one in (np.ones(300), weights))
    target = Target(rate="fpir", value=0.1, sure=sure)
    assert choose_threshold(uneven, target) < choose_threshold(even, target)
    plain = replace(of_rate("fpir", scores), labels=labels)
    assert choose_threshold(even, target) == choose_threshold(plain, target)


def test_a_precision_of_weighted_searches_is_that_of_all() -> None:
    candidates = answers(np.linspace(0.01, 0.99, 60), np.arange(60) % 3 > 0)
    drawn = replace(
        candidates,
        answer_weights=np.where(np.arange(60) % 3 > 0, 9.0, 1.0),
        best_mate_weights=np.ones(1),
        best_mate_scores=np.ones(1),
    )
    assert choose_threshold(drawn, Target(rate="precision", value=0.9)) == 0.0
    with pytest.raises(NotEnoughAnswersError, match="precision 99 % needs answers to at least 99"):
        choose_threshold(drawn, Target(rate="precision", value=0.99))


def trials_of(n_labels: int, n: int = 120) -> Trials:
    """Trials of every kind, of so many labels each."""
    codes, other = np.arange(n) % n_labels, (np.arange(n) + 1) % n_labels
    scores = np.linspace(0.0, 1.0, n)
    names = np.array([f"label {i}" for i in range(n_labels)], dtype=object)
    right = np.ones(n, dtype=bool)
    return Trials(*(scores,) * 5, right, labels=TrialLabels(names, codes, codes, other, codes, codes, codes))


@pytest.mark.parametrize("text", ["far=5%", "frr=5%", "fpir=5%", "fnir=5%", "precision=95%"])
def test_a_rate_of_too_few_labels_is_refused_with_what_would_help(text: str) -> None:
    with pytest.raises(NotEnoughLabelsError, match="of at least 5 labels, this calibration has 4") as found:
        choose_threshold(trials_of(4), Target.parse(text))
    assert (found.value.members["n_labels"], found.value.members["needed"]) == (4, 5)
    assert "add items of other labels, or search for some of them by queries" in str(found.value)
    assert 0.0 <= choose_threshold(trials_of(5), Target.parse(text)) <= 1.0


def test_trials_come_first_and_labels_that_nobody_knows_are_not_asked_for() -> None:
    with pytest.raises(NotEnoughTrialsError):
        choose_threshold(trials_of(4, n=40), Target.parse("fpir=5%"))
    assert choose_threshold(of_rate("fpir", np.linspace(0.0, 1.0, 60)), Target.parse("fpir=5%")) <= 1.0

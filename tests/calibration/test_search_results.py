"""Thresholds for the results of any search engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.calibration import (
    CalibratedThreshold,
    CalibrationError,
    calibrate_threshold,
)

Results = tuple[np.ndarray, np.ndarray, np.ndarray]


def made_up(seed: int = 0, n_labels: int = 60, n_queries: int = 240, k: int = 20, d: int = 12) -> Results:
    """Results of an exact search among five items a label, a quarter of the queries of no label in it."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_labels + n_labels // 3, d))
    item_labels = np.repeat(np.arange(n_labels), 5)
    items = centers[item_labels] + 0.7 * rng.normal(size=(len(item_labels), d))
    query_labels = rng.integers(len(centers), size=n_queries)
    queries = centers[query_labels] + 0.7 * rng.normal(size=(n_queries, d))
    unit_items = items / np.linalg.norm(items, axis=1, keepdims=True)
    unit_queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    similarities = unit_queries @ unit_items.T
    order = np.argsort(-similarities, axis=1)[:, :k]
    return np.take_along_axis(similarities, order, axis=1), item_labels[order], query_labels


def rates_by_hand(results: Results, threshold: float, known: set[Any]) -> tuple[float, float, float]:
    """FPIR, FNIR and precision, query by query."""
    answered, missed, mates, returned = [], [], 0, 0
    for scores, labels, own in zip(*results, strict=True):
        pairs = [(s, label) for s, label in zip(scores, labels, strict=True) if np.isfinite(s)]
        others = [s for s, label in pairs if label != own]
        answered.append(any(s >= threshold for s in others))
        returned += sum(s >= threshold for s in others)
        if own in known:
            ours = [s for s, label in pairs if label == own]
            missed.append(not any(s >= threshold for s in ours))
            mates += sum(s >= threshold for s in ours)
            returned += sum(s >= threshold for s, _ in pairs)
    return float(np.mean(answered)), float(np.mean(missed)), mates / max(returned, 1)


@pytest.mark.parametrize("target", ["fpir=5%", "fpir=20%", "fnir=10%", "precision=90%"])
def test_the_rates_are_those_of_a_count_by_hand(target: str) -> None:
    results = made_up()
    found = calibrate_threshold(*results, target=target)
    by_hand = rates_by_hand(results, found.threshold, set(results[1].flat))
    assert found.fnir is not None
    assert found.precision is not None
    assert (found.fpir.rate, found.fnir.rate, found.precision.rate) == pytest.approx(by_hand)


@pytest.mark.parametrize("target", ["fpir=5%", "fpir=20%"])
def test_the_threshold_is_the_lowest_that_holds_the_rate(target: str) -> None:
    scores, labels, queries = made_up()
    found = calibrate_threshold(scores, labels, queries, target=target)
    others = np.where(labels == queries[:, None], -np.inf, scores).max(axis=1)
    assert found.fpir.rate <= found.target.value
    next_lower = others[others < found.threshold].max()
    assert (others >= next_lower).mean() > found.target.value


def test_a_target_of_misses_gives_the_highest_threshold_that_holds_it() -> None:
    scores, labels, queries = made_up()
    found = calibrate_threshold(scores, labels, queries, target="fnir=10%")
    best = np.where(labels == queries[:, None], scores, -np.inf).max(axis=1)[np.isin(queries, labels)]
    assert (best < found.threshold).mean() <= 0.1
    assert (best <= found.threshold).mean() > 0.1


@given(st.sampled_from(["fpir=5%", "fnir=10%", "precision=70%"]), st.integers(0, 5))
@settings(max_examples=12, deadline=None)
def test_any_scale_with_the_same_order_accepts_the_same(target: str, seed: int) -> None:
    scores, labels, queries = made_up(seed)
    plain = calibrate_threshold(scores, labels, queries, target=target)
    for scaled in (1000.0 * scores - 7.0, np.exp(9.0 * scores), -np.sqrt(2.0 - 2.0 * scores)):
        other = calibrate_threshold(scaled, labels, queries, target=target)
        assert np.array_equal(other.accepts(scaled), plain.accepts(scores))
        assert (other.fpir, other.fnir, other.precision) == (plain.fpir, plain.fnir, plain.precision)


def test_neither_the_order_of_results_nor_padding_counts() -> None:
    scores, labels, queries = made_up()
    expected = calibrate_threshold(scores, labels, queries)
    rng = np.random.default_rng(1)
    order = rng.permuted(np.tile(np.arange(scores.shape[1] + 2), (len(scores), 1)), axis=1)
    pad = np.full((len(scores), 2), np.nan)
    wider = np.concatenate([scores, pad], axis=1), np.concatenate([labels, pad], axis=1).astype(object)
    shuffled = [np.take_along_axis(one, order, axis=1) for one in wider]
    assert calibrate_threshold(*shuffled, queries) == expected


def test_labels_may_be_texts_numbers_or_missing() -> None:
    scores, labels, queries = made_up()
    texts = np.array([f"product {one}" for one in labels.flat], dtype=object).reshape(labels.shape)
    asked = [f"product {one}" for one in queries]
    assert calibrate_threshold(scores, texts, asked) == calibrate_threshold(scores, labels, queries)
    unlabelled = labels.astype(object)
    unlabelled[:, -1] = None
    unlabelled[0, -2] = float("nan")
    assert calibrate_threshold(scores, unlabelled, queries).threshold > 0.0


def test_a_result_without_a_label_is_a_wrong_answer_to_a_query_without_a_mate() -> None:
    scores, labels, queries = made_up()
    hidden = labels.astype(object)
    hidden[labels != queries[:, None]] = None
    known = sorted(set(labels.flat))
    shown, unlabelled = (
        calibrate_threshold(scores, one, queries, gallery_labels=known) for one in (labels, hidden)
    )
    assert shown.threshold == unlabelled.threshold
    assert shown.fpir.rate == unlabelled.fpir.rate


def test_mates_that_no_search_shows_are_misses_when_the_gallery_is_said_to_have_them() -> None:
    scores, labels, queries = made_up()
    lost = int(queries[np.isin(queries, labels)][0])
    kept = np.where(labels == lost, -1, labels)
    told = calibrate_threshold(scores, kept, queries, gallery_labels=sorted(set(labels.flat)))
    untold = calibrate_threshold(scores, kept, queries)
    assert told.fnir is not None
    assert untold.fnir is not None
    assert told.fnir.rate > untold.fnir.rate


def test_results_of_one_label_alone_bound_what_comes_after_and_warn() -> None:
    """The next one of another label scores no more than the last: FPIR is told too high, not too low."""
    scores, labels, queries = made_up(k=20)
    whole = calibrate_threshold(scores, labels, queries)
    cut = calibrate_threshold(scores[:, :4], labels[:, :4], queries)
    assert whole.warnings == ()
    assert "FPIR is at most" in cut.warnings[0]
    assert cut.threshold >= whole.threshold


def test_it_says_what_it_promises() -> None:
    found = calibrate_threshold(*made_up())
    assert str(found).startswith(f"threshold {found.threshold:.6g} for FPIR 5 %: precision ")
    mix = f"{100 * found.absent:.0f} % of searches for what is lacking"
    assert str(found).endswith(f"on {found.n_labels} labels, {mix}")


def test_scores_that_reach_the_threshold_are_accepted_and_nan_is_not() -> None:
    found = calibrate_threshold(*made_up())
    below = np.nextafter(found.threshold, -np.inf)
    assert found.accepts([[found.threshold, below], [np.nan, 9.0]]).tolist() == [[True, False], [False, True]]
    assert isinstance(found, CalibratedThreshold)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (lambda s, i, q: (s[:, 0], i, q), r"scores have the shape \(240,\)"),
        (lambda s, i, q: (s, i[:, :3], q), r"labels \(240, 3\)"),
        (lambda s, i, q: (s, i, q[:5]), r"query_labels \(5,\)"),
        (lambda s, i, q: (np.full_like(s, np.nan), i, q), "there are no results"),
        (lambda s, i, q: (np.full_like(s, np.inf), i, q), "the score of result 0 of query 0 is infinite"),
        (lambda s, i, q: (s, i, [None, *q[1:]]), "a query has no label"),
        (
            lambda s, i, q: (s, i, q.astype(str)),
            r"query label '\d+' is no label of a result, and \d+ of type int",
        ),
        (
            lambda s, i, q: (s, i.astype(str), q),
            r"query label \d+ is no label of a result, and '\d+' of type str",
        ),
        (lambda s, i, q: (s, i, [f"{one}".encode() for one in q]), r"query label b'\d+' is no label of"),
    ],
)
def test_what_fits_not_is_refused(given_: Any, message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        calibrate_threshold(*given_(*made_up()))


@pytest.mark.parametrize("absent", [0.0, 0.1, 0.5, 0.9])
def test_precision_is_that_of_the_expected_mix(absent: float) -> None:
    """Every query is judged with its label and without; how often each happens is for the caller to say."""
    scores = np.array([[0.9, 0.7 if i % 10 in (3, 6) else 0.3, 0.2] for i in range(40)])
    own = np.arange(40) % 8
    labels = np.stack([own, own ^ 1, own], axis=1)
    found = calibrate_threshold(scores, labels, own.tolist(), target="fpir=50%", absent=absent)
    shown = scores >= found.threshold
    right, wrong = ((shown & flags).sum() / 40 for flags in (labels == own[:, None], labels != own[:, None]))
    known, unknown = (1 - absent) * (right + wrong), absent * wrong
    assert wrong > 0
    assert found.absent == absent
    assert found.precision.rate == pytest.approx((1 - absent) * right / (known + unknown))

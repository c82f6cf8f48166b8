"""OPIS against a loop over pairs, its bounds, and wrong variants that must be noticed."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.calibration import CalibrationError, TrialLabels, Trials, opis
from vicinal.calibration.consistency.opis import class_utilities, epsilon_opis, n_of_share


def labelled_embeddings(seed: int, sizes=(4, 3, 6, 1, 5), dim: int = 6):
    rng = np.random.default_rng(seed)
    labels = np.repeat([f"class-{i}" for i in range(len(sizes))], sizes)
    centers = rng.normal(size=(len(sizes), dim))
    spread = rng.uniform(0.2, 1.0, len(sizes))
    noise = np.repeat(spread, sizes)[:, None] * rng.normal(size=(len(labels), dim))
    return np.repeat(centers, sizes, axis=0) + noise, labels


def slow_opis(embeddings, labels, far_range=(0.01, 0.1), n=100, epsilon=0.1, *, first=1):
    """Sets of pairs and Python loops, straight from the definition."""
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    pairs = [
        (labels[a], labels[b], float(np.linalg.norm(unit[a] - unit[b])))
        for a in range(len(unit))
        for b in range(a)
    ]
    negatives = [distance for x, y, distance in pairs if x != y]
    t_min, t_max = np.quantile(negatives, far_range)
    classes = [name for name in sorted(set(labels)) if (labels == name).sum() >= 2]
    squares, gaps = [], []
    for j in range(first, first + n):
        t = t_min + (t_max - t_min) * j / n
        rows = [class_rates(pairs, name, t) for name in classes]
        utilities = [harmonic(*row) for row in rows]
        squares += [(u - np.mean(utilities)) ** 2 for u in utilities]
        ranked = [row for _, row in sorted(zip(utilities, rows, strict=True), key=lambda pair: pair[0])]
        size = math.ceil(Fraction(str(epsilon)) * len(classes))
        gaps.append((harmonic(*np.mean(ranked[-size:], 0)) - harmonic(*np.mean(ranked[:size], 0))) ** 2)
    return float(np.mean(squares)), float(np.mean(gaps))


def class_rates(pairs, name, t):
    positive = [d for x, y, d in pairs if x == y == name]
    negative = [d for x, y, d in pairs if (x == name) != (y == name)]
    return np.mean([d > t for d in negative]), np.mean([d <= t for d in positive])


def harmonic(phi, psi):
    return 2 * phi * psi / (phi + psi) if phi + psi else 0.0


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.1, 0.3, 0.5, 0.8, 1.0]))
def test_opis_equals_the_definition(seed: int, epsilon: float) -> None:
    embeddings, labels = labelled_embeddings(seed)
    fast = opis(embeddings, labels, far_range=(0.05, 0.3), n_thresholds=20, epsilon=epsilon)
    slow = slow_opis(embeddings, labels, (0.05, 0.3), 20, epsilon)
    np.testing.assert_allclose((fast.opis, fast.epsilon_opis), slow, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("share", ["0.1", "0.07", "0.3", "0.55", "1"])
def test_a_share_of_the_classes_is_counted_exactly_and_rounded_up(share: str) -> None:
    """19 classes at 10 % are two; 30 are three, though 0.1 * 30 is above 3 in floats."""
    counted = [n_of_share(float(share), n) for n in range(1, 400)]
    assert counted == [math.ceil(Fraction(share) * n) for n in range(1, 400)]


@pytest.mark.parametrize(("share", "n", "expected"), [(0.1, 30, 3), (14.1 / 100, 1000, 141), (1e-12, 5, 1)])
def test_a_share_that_was_divided_is_counted_as_what_it_was(share: float, n: int, expected: int) -> None:
    assert n_of_share(share, n) == expected


def test_groups_above_one_half_overlap() -> None:
    """Of three classes two are the best and two the worst: the middle one is both."""
    specificity, sensitivity = np.ones((3, 1)), np.array([[1.0], [0.5], [0.0]])
    gap = harmonic(1.0, 0.75) - harmonic(1.0, 0.25)
    assert epsilon_opis(specificity, sensitivity, 0.6) == pytest.approx(gap**2)


def pooled(embeddings, labels, **options) -> tuple[float, float]:
    """Wrong: one variance over classes and thresholds together."""
    found = opis(embeddings, labels, **options)
    return float(found.utilities.var()), found.epsilon_opis


def without_grid_step(embeddings, labels, *, far_range, n_thresholds, epsilon) -> tuple[float, float]:
    """Wrong: the grid starts at the lower end of the range, one step early."""
    return slow_opis(embeddings, labels, far_range, n_thresholds, epsilon, first=0)


def ranked_once(embeddings, labels, **options) -> tuple[float, float]:
    """Wrong: the best and the worst classes are those over the whole range."""
    found = opis(embeddings, labels, **options)
    order = np.argsort(found.utilities.mean(axis=1))
    size = math.ceil(Fraction(str(options["epsilon"])) * len(order))
    best, worst = (found.utilities[rows].mean(axis=0) for rows in (order[-size:], order[:size]))
    return found.opis, float(((best - worst) ** 2).mean())


def by_pairs(embeddings, labels, **options) -> tuple[float, float]:
    """By `class_utilities`, on pairs scored 1 - d / 2."""
    utilities = class_utilities(
        scored_pairs(embeddings, labels),
        far_range=options["far_range"],
        n_thresholds=options["n_thresholds"],
        epsilon=options["epsilon"],
    )
    return utilities.opis, utilities.epsilon_opis


def by_embeddings(embeddings, labels, **options) -> tuple[float, float]:
    found = opis(embeddings, labels, **options)
    return found.opis, found.epsilon_opis


def scored_pairs(embeddings, labels) -> Trials:
    """Each pair once, under both of its labels."""
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    names, codes = np.unique(labels, return_inverse=True)
    first, second = np.triu_indices(len(codes), 1)
    scores = 1.0 - np.linalg.norm(unit[first] - unit[second], axis=1) / 2.0
    first, second = codes[first].astype(np.uint8), codes[second].astype(np.uint8)
    same, none = first == second, np.empty(0, np.uint8)
    of = TrialLabels(names.astype(object), first[same], first[~same], second[~same], none, none, none)
    return Trials(scores[same], scores[~same], np.empty(0), np.empty(0), labels=of)


def equals_the_definition(measure) -> bool:
    """The generic check: both figures equal the slow loop on several sets."""
    options = {"far_range": (0.05, 0.4), "n_thresholds": 12, "epsilon": 0.4}
    for seed in range(4):
        embeddings, labels = labelled_embeddings(seed, sizes=(4, 3, 6, 1, 5, 4))
        slow = slow_opis(embeddings, labels, (0.05, 0.4), 12, 0.4)
        if not np.allclose(measure(embeddings, labels, **options), slow, rtol=1e-9, atol=1e-12):
            return False
    return True


@pytest.mark.parametrize("measure", [by_embeddings, by_pairs])
def test_both_ways_to_opis_equal_the_definition(measure) -> None:
    assert equals_the_definition(measure)


@pytest.mark.parametrize("wrong", [pooled, without_grid_step, ranked_once])
def test_wrong_opis_fails_the_same_check(wrong) -> None:
    """Negative controls."""
    assert not equals_the_definition(wrong)


def test_a_class_with_one_embedding_is_left_out_by_name() -> None:
    result = opis(*labelled_embeddings(0))
    assert result.left_out.tolist() == ["class-3"]
    assert result.utilities.shape == (4, 100)


def test_equal_classes_have_no_inconsistency() -> None:
    corners = np.repeat(np.eye(6), 3, axis=0)
    result = opis(corners, np.repeat(np.arange(6), 3))
    assert (result.opis, result.epsilon_opis) == (0.0, 0.0)


def test_perfect_classes_among_useless_ones_reach_the_bound() -> None:
    """A share a of perfect classes among useless ones gives a (1 - a).

    The perfect classes are axes of their own; each useless one is a vector and its opposite, so that no
    threshold accepts its pair, and only useless classes come close to each other.
    """
    useless = np.random.default_rng(0).normal(size=(5, 3))
    embeddings = np.zeros((16, 6))
    embeddings[:6, :3] = np.repeat(np.eye(3), 2, axis=0)
    embeddings[6:, 3:] = np.stack([useless, -useless], axis=1).reshape(10, 3)
    result = opis(embeddings, np.repeat(np.arange(8), 2), far_range=(0.0, 0.1))
    assert (result.opis, result.epsilon_opis) == pytest.approx((3 / 8 * 5 / 8, 1.0))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 1, 1], "no negative pairs"),
        ([1, 2, 3], "no positive pairs"),
        ([1, 1], "3 embeddings, but 2 labels"),
    ],
)
def test_sets_without_the_needed_pairs_are_refused(labels, message) -> None:
    with pytest.raises(CalibrationError, match=message):
        opis(np.eye(3), labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"far_range": 5}, "far_range is 5, expected two rising shares"),
        ({"far_range": (0.1, "x")}, "expected two rising shares"),
        ({"far_range": (0.4, 0.1)}, "far_range is"),
        ({"n_thresholds": 2.5}, "n_thresholds is 2.5, expected at least 1, and whole"),
        ({"epsilon": "x"}, "epsilon is 'x', expected a share"),
    ],
)
def test_options_of_another_kind_are_refused_by_name(options: dict, message: str) -> None:
    embeddings, labels = np.random.default_rng(0).normal(size=(12, 4)), np.arange(12) % 3
    with pytest.raises(CalibrationError, match=re.escape(message)):
        opis(embeddings, labels, **options)

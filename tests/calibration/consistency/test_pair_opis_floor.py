"""OPIS on the pairs of a calibration, and its floor: on all pairs of a set they are those of the set."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest

from vicinal.calibration import CalibrationError, TrialLabels, Trials, opis, opis_floor
from vicinal.calibration.consistency.opis import class_utilities
from vicinal.calibration.consistency.opis_floor import (
    MatePairs,
    PairImages,
    _unordered_pairs,
    pair_opis_floor,
)

floor_module = importlib.import_module("vicinal.calibration.consistency.opis_floor")
NONE = np.empty(0)


def embedded_classes(sizes, *, seed: int = 0, spreads=(1.0,), dim: int = 16):
    """Classes around centers of one length, with noise of the given spreads in turn."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    centers = rng.normal(size=(len(sizes), dim))
    centers *= 0.8 * np.sqrt(dim) / np.linalg.norm(centers, axis=1, keepdims=True)
    widths = np.resize(spreads, len(sizes))
    raw = centers[labels] + widths[labels, None] * rng.normal(size=(len(labels), dim))
    return raw / np.linalg.norm(raw, axis=1, keepdims=True), labels


def pairs_of(embeddings, labels, queries=None) -> tuple[Trials, PairImages]:
    """Every query with every other image, in both directions, scored 1 - d / 2."""
    queries = np.arange(len(labels)) if queries is None else queries
    scores = 1.0 - np.linalg.norm(embeddings[queries, None] - embeddings[None], axis=2) / 2.0
    same, itself = labels[queries, None] == labels, queries[:, None] == np.arange(len(labels))
    rows, items = np.nonzero(same & ~itself)
    negative_rows, negative_items = np.nonzero(~same)
    codes, none = labels.astype(np.uint16), np.empty(0, np.uint16)
    trial_labels = TrialLabels(
        names=np.array([f"label {i:03}" for i in range(labels.max() + 1)], dtype=object),
        mates=codes[queries[rows]],
        non_mate_queries=codes[queries[negative_rows]],
        non_mate_items=codes[negative_items],
        best_mates=none,
        without_mate=none,
        answers=none,
    )
    trials = Trials(
        scores[rows, items], scores[negative_rows, negative_items], NONE, NONE, labels=trial_labels
    )
    mates = MatePairs.of(queries[rows], items)
    n_negatives = np.bincount(negative_rows, minlength=len(queries))
    return trials, PairImages(mates, negative_rows, codes[queries], n_negatives)


def spreads_above(trials: Trials, images: PairImages) -> float:
    """How many of its spreads OPIS lies above its floor."""
    found = class_utilities(trials)
    draws = pair_opis_floor(found, trials, images).opis_draws
    return float((found.opis - draws.mean()) / draws.std(ddof=1))


def test_opis_of_all_pairs_is_that_of_the_embeddings() -> None:
    """Each pair once: twice the pairs would interpolate the ends of the range at other places."""
    embeddings, labels = embedded_classes([4, 3, 6, 1, 5])
    trials = pairs_of(embeddings, labels)[0]
    codes = trials.labels
    once = codes.non_mate_queries < codes.non_mate_items
    one_way = dataclasses.replace(
        codes, non_mate_queries=codes.non_mate_queries[once], non_mate_items=codes.non_mate_items[once]
    )
    trials = dataclasses.replace(trials, non_mate_scores=trials.non_mate_scores[once], labels=one_way)
    found, expected = class_utilities(trials), opis(embeddings, labels)
    assert (found.opis, found.epsilon_opis) == pytest.approx((expected.opis, expected.epsilon_opis))
    assert found.left_out.tolist() == ["label 003"]


@pytest.mark.parametrize("sizes", [[5] * 40, [3, 5, 8, 13] * 10, [3] * 60])
def test_the_floor_of_all_pairs_is_that_of_the_embeddings(sizes: list[int]) -> None:
    embeddings, labels = embedded_classes(sizes, spreads=(1.0, 0.8))
    trials, images = pairs_of(embeddings, labels)
    found = pair_opis_floor(class_utilities(trials), trials, images, n_repetitions=60)
    expected = opis_floor(embeddings, labels, n_repetitions=60)
    assert found.image_correlation == pytest.approx(expected.image_correlation, abs=2e-3)
    error = 4 * expected.opis_spread / np.sqrt(60)
    assert found.opis_draws.mean() == pytest.approx(expected.opis, abs=2 * error)


@pytest.mark.parametrize("sizes", [[5] * 60, [20] * 30, [3, 5, 8, 13] * 12])
def test_equal_classes_lie_within_the_spread(sizes: list[int]) -> None:
    assert abs(spreads_above(*pairs_of(*embedded_classes(sizes, seed=1)))) < 3.5


def test_equal_classes_lie_within_the_spread_for_a_sample_of_the_queries() -> None:
    """Two queries a class: their pairs share them, and hardly any stands in both directions."""
    embeddings, labels = embedded_classes([10] * 60)
    queries = np.flatnonzero(np.arange(len(labels)) % 10 < 2)
    assert abs(spreads_above(*pairs_of(embeddings, labels, queries))) < 3.5


def test_unequal_classes_lie_clearly_above() -> None:
    assert spreads_above(*pairs_of(*embedded_classes([20] * 40, spreads=(1.0, 0.7)))) > 4.0


def test_pairs_taken_for_independent_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a floor that forgets that pairs share images is far too low."""
    monkeypatch.setattr(floor_module, "_image_correlation", lambda _covariance, _cuts: 0.0)
    assert spreads_above(*pairs_of(*embedded_classes([20] * 30))) > 4.0


def test_directions_that_differ_count_half_where_one_is_accepted() -> None:
    """Slow loop over pairs of pairs, at each threshold."""
    embeddings, labels = embedded_classes([5, 6, 4])
    trials, images = pairs_of(embeddings, labels)
    noise = np.random.default_rng(0).normal(scale=0.05, size=len(trials.mate_scores))
    trials = dataclasses.replace(trials, mate_scores=trials.mate_scores + noise)
    found = class_utilities(trials)
    pairs, mates = _unordered_pairs(found, trials, images), images.mates.images[images.mates.places]
    shares, squares = floor_module._accepted(np.arange(len(pairs.rows)), pairs.strict, pairs.loose, 100)
    np.testing.assert_array_equal(squares, shares**2)
    for number in range(0, len(pairs.rows), 5):
        ends = set(pairs.images[number])
        both = [s for s, two in zip(trials.mate_scores, mates, strict=True) if set(two) == ends]
        slow = np.mean([score >= found.thresholds for score in both], axis=0)
        np.testing.assert_array_equal(shares[number], slow)


def test_a_range_below_the_listed_pairs_is_refused() -> None:
    trials, images = pairs_of(*embedded_classes([5] * 10))
    low = dataclasses.make_dataclass("Low", ["ceiling"])(2.0)
    found = class_utilities(trials)
    object.__setattr__(trials, "low_pairs", low)
    with pytest.raises(CalibrationError, match="reaches below the pairs"):
        pair_opis_floor(found, trials, images)

"""Impostor labels: how much longer an interval has to be because labels are queries and impostors."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.calibration.rates.label_counts import impostor_label_effect

THRESHOLD = 0.5


def searches(likeness: np.ndarray, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries of each label among all other labels, whose scores are a likeness and noise."""
    rng = np.random.default_rng(seed)
    n_labels = len(likeness)
    own = np.repeat(np.arange(n_labels), n)
    scores = likeness[own] + 0.1 * rng.normal(size=(len(own), n_labels))
    scores[np.arange(len(own)), own] = -np.inf
    order = np.argsort(-scores, axis=1)
    return np.take_along_axis(scores, order, axis=1), order, own


def pairs_of_alike_labels(n_labels: int, share: float, seed: int) -> np.ndarray:
    """A likeness under which some labels have one that is like them, and the others none."""
    rng = np.random.default_rng(seed)
    likeness = np.zeros((n_labels, n_labels))
    for one in range(0, n_labels, 2):
        if rng.random() < share:
            likeness[one, one + 1] = likeness[one + 1, one] = 0.8
    return likeness


def rates_of_new_labels(share: float, n_labels: int, times: int) -> np.ndarray:
    """FPIR of many samples of labels."""
    found = []
    for seed in range(times):
        scores, _, _ = searches(pairs_of_alike_labels(n_labels, share, seed), 5, seed)
        found.append((scores[:, 0] >= THRESHOLD).mean())
    return np.array(found)


def test_labels_that_are_like_each_other_count_for_half() -> None:
    """With alike pairs the variance is twice that of labels by themselves, and the effect says so."""
    n_labels, share = 60, 0.3
    effects = []
    for seed in range(30):
        scores, labels, own = searches(pairs_of_alike_labels(n_labels, share, seed), 5, seed)
        effects.append(impostor_label_effect(scores, labels, own, THRESHOLD))
    rates = rates_of_new_labels(share, n_labels, 400)
    alone = share * (1.0 - share) / n_labels
    assert rates.var() / alone == pytest.approx(2.0, rel=0.25)
    assert np.mean(effects) >= 1.8


def test_one_label_that_answers_for_all_counts() -> None:
    likeness = np.zeros((40, 40))
    likeness[::2, 1] = 0.8
    scores, labels, own = searches(likeness, 5, 0)
    assert impostor_label_effect(scores, labels, own, THRESHOLD) > 10.0


def test_labels_that_are_answered_by_chance_need_nothing() -> None:
    """Negative control: whoever is answered is so by many labels, so that none of them matters."""
    likeness = np.zeros((40, 40))
    likeness[::3] = 0.8
    scores, labels, own = searches(likeness, 5, 0)
    assert impostor_label_effect(scores, labels, own, THRESHOLD) == pytest.approx(1.0, abs=0.05)

"""Threshold of copies: it holds the precision asked for, for few copies and many, or says that none does."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.service.duplicates.threshold import choose_threshold


def made_scores(n: int, seed: int = 0) -> np.ndarray:
    """Scores as made copies have them: most near 1, few low."""
    return np.random.default_rng([seed, 1]).beta(12.0, 1.0, (n, 6)).astype(np.float32)


def wrong_scores(n: int, seed: int = 0) -> np.ndarray:
    """Scores of pairs that are no copies: an exponential tail."""
    tail = 0.1 + np.random.default_rng([seed, 2]).exponential(1 / 8, n)
    return tail[tail < 1].astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("n_copies", [60, 200, 1000])
@pytest.mark.parametrize("precision", [0.9, 0.95, 0.99])
def test_of_the_pairs_found_no_more_are_wrong_than_asked(n_copies: int, precision: float) -> None:
    """Over 30 galleries together; one alone may have bad luck."""
    n_found = n_wrong = n_reached = 0
    for seed in range(30):
        copies, wrong = made_scores(n_copies, seed)[:, 0], wrong_scores(60, seed)
        found = choose_threshold(made_scores(150, seed + 100), np.concatenate([copies, wrong]), precision)
        if found.value is None:
            continue
        n_reached += 1
        n_found += found.n_pairs
        n_wrong += int((wrong >= found.value).sum())
    assert n_reached >= 5
    assert n_wrong <= 1.2 * (1 - precision) * n_found + 2


def test_a_threshold_at_half_would_not_hold_it() -> None:
    """Negative control: what holds the precision above is the choice and not the numbers."""
    scores = [(made_scores(30, seed)[:, 0], wrong_scores(60, seed)) for seed in range(30)]
    n_wrong = sum(int((wrong >= 0.5).sum()) for _, wrong in scores)
    n_found = n_wrong + sum(int((copies >= 0.5).sum()) for copies, _ in scores)
    assert n_wrong > 1.2 * 0.01 * n_found + 2


def test_what_was_found_of_the_made_copies_is_counted_with_an_interval() -> None:
    made = made_scores(150)
    found = choose_threshold(made, np.concatenate([made_scores(500, 7)[:, 0], wrong_scores(60)]), 0.99)
    assert found.n_made_found == (made >= found.value).sum()
    assert (found.n_made, found.n_made_of) == (900, 150)
    assert found.found_low <= found.n_made_found / found.n_made <= found.found_high

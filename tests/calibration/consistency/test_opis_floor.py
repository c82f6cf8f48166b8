"""The sampling floor: equal classes lie on it, unequal ones above, and its parts equal slow loops."""

from __future__ import annotations

import math
from itertools import combinations, permutations

import numpy as np
import pytest

from vicinal.calibration import opis_floor
from vicinal.calibration import opis_floor as floor_function
from vicinal.calibration.consistency.image_rates import ImageRates, measure_images

floor_module = __import__("sys").modules[floor_function.__module__]

SIZES = {
    "threes": [3] * 120,
    "fives": [5] * 120,
    "twenties": [20] * 60,
    "fifties": [50] * 40,
    "mixed": [2, 3, 5, 8, 13] * 25,
}


def classes_alike(sizes, *, seed: int = 0, spreads=None, dim: int = 32):
    """Classes around centers of one length, with noise of one spread, or of the given spread a class."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    centers = rng.normal(size=(len(sizes), dim))
    centers *= 0.8 * math.sqrt(dim) / np.linalg.norm(centers, axis=1, keepdims=True)
    widths = np.ones(len(sizes)) if spreads is None else np.resize(spreads, len(sizes))
    return centers[labels] + widths[labels, None] * rng.normal(size=(len(labels), dim)), labels


def spreads_above(floor) -> tuple[float, float]:
    """How many of its spreads each measured figure lies above its floor."""
    return (
        (floor.measured.opis - floor.opis) / floor.opis_spread,
        (floor.measured.epsilon_opis - floor.epsilon_opis) / floor.epsilon_opis_spread,
    )


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_equal_classes_lie_within_the_spread(sizes: list[int]) -> None:
    floor = opis_floor(*classes_alike(sizes, seed=1), n_repetitions=30)
    assert max(np.abs(spreads_above(floor))) < 3.0


@pytest.mark.parametrize("sizes", [[5] * 120, [20] * 60, [50] * 40, [5, 8, 13, 20] * 25])
def test_unequal_classes_lie_clearly_above(sizes: list[int]) -> None:
    """Every second class is a third narrower."""
    floor = opis_floor(*classes_alike(sizes, spreads=[1.0, 0.7]), n_repetitions=30)
    assert min(spreads_above(floor)) > 4.0


def test_pairs_taken_for_independent_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a floor that forgets that pairs share images is far too low."""
    monkeypatch.setattr(floor_module, "_image_correlation", lambda _covariance, _cuts: 0.0)
    floor = opis_floor(*classes_alike(SIZES["twenties"], seed=1), n_repetitions=30)
    assert min(spreads_above(floor)) > 5.0


def test_two_images_a_class_tell_nothing_apart() -> None:
    """One pair a class: the floor is what was measured, however unequal the classes are."""
    floor = opis_floor(*classes_alike([2] * 200, spreads=[1.0, 0.5]), n_repetitions=30)
    assert abs(spreads_above(floor)[0]) < 3.0


def test_one_seed_gives_one_floor() -> None:
    embeddings, labels = classes_alike([4] * 20)
    first, again, other = (
        opis_floor(embeddings, labels, n_repetitions=3, seed=seed).opis_draws.tolist() for seed in (5, 5, 6)
    )
    assert first == again
    assert first != other


def slow_products(embeddings, labels, t):
    """Weighted mean products of the acceptance of pairs that share an image, and of pairs of four images."""
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    rows = []
    for name in np.unique(labels):
        members = unit[labels == name]
        if len(members) < 4:
            continue
        hit = np.linalg.norm(members[:, None] - members[None], axis=2) <= t
        shared = [hit[a, b] * hit[a, c] for a, b, c in permutations(range(len(members)), 3)]
        apart = [hit[a, b] * hit[c, d] for a, b, c, d in permutations(range(len(members)), 4)]
        rate = np.mean([hit[a, b] for a, b in combinations(range(len(members)), 2)])
        rows.append((len(members), np.mean(shared), np.mean(apart), rate))
    sizes, shared, apart, rates = np.array(rows).T
    pairs = list(permutations(range(len(sizes)), 2))
    weights = [sizes[i] * sizes[j] for i, j in pairs]
    products = [rates[i] * rates[j] for i, j in pairs]
    between = np.average(apart, weights=sizes) - np.average(products, weights=weights)
    return np.average(shared - apart, weights=sizes), between


def test_the_covariance_of_pairs_that_share_an_image_equals_the_slow_loop() -> None:
    embeddings, labels = classes_alike([4, 6, 5, 7, 2, 3], seed=4, dim=4, spreads=[1.0, 0.5])
    rates = measure_images(embeddings, labels, (0.05, 0.5), 8)
    sensitivity = rates.sensitivity.mean(axis=0)
    actual = floor_module._shared_covariance(floor_module._all_pairs(rates), sensitivity)
    variance = sensitivity * (1 - sensitivity)
    for t, total, covariance in zip(rates.thresholds, variance, actual, strict=True):
        shared, between = slow_products(embeddings, labels, t)
        expected = shared * total / (total - min(max(between, 0.0), 0.95 * total))
        assert covariance == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.1, 0.3, 0.45])
def test_the_correlation_is_recovered_where_its_covariance_is_known(rho: float) -> None:
    """Sheppard (1899): two normal variables fall below their means together with 1/4 + arcsin(rho) / 2 pi."""
    covariance = np.array([math.asin(rho) / (2 * math.pi)])
    assert floor_module._image_correlation(covariance, np.zeros(1)) == pytest.approx(rho, abs=1e-5)


def rates_of(sizes: list[int]) -> ImageRates:
    """Classes of the given sizes; what they measured does not matter."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    none = np.empty((len(labels), 0), np.int64)
    unit = np.tile([[1.0, 0.0]], (len(labels), 1))
    names = np.arange(len(sizes))
    return ImageRates(unit, names, labels, np.array(sizes), np.zeros(1), (0.0, 0.0), none, none)


def test_drawn_classes_have_hoeffdings_variance() -> None:
    """4,000 classes of 6 at the cut 0, where both terms are known."""
    rho, n = 0.2, 6
    pairs = floor_module._all_pairs(rates_of([n] * 4000))
    drawn = floor_module._draw_sensitivities(np.random.default_rng(0), pairs, np.zeros(1), correlation=rho)
    zeta_1 = math.asin(rho) / (2 * math.pi)
    expected = (2 * 0.25 + 4 * (n - 2) * zeta_1) / (n * (n - 1))
    assert drawn.mean() == pytest.approx(0.5, abs=0.01)
    assert drawn.var() == pytest.approx(expected, rel=0.08)

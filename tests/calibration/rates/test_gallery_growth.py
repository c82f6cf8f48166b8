"""FPIR of a larger gallery, against worlds in which the truth is known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from vicinal.calibration.rates.gallery_growth import fit_gallery_growth, independent_fpir, rarefied_fpir

N_LABELS, N_QUERIES = 400, 4000
RATIOS = (1, 2, 10, 100, 1000)


def tempted(kind: str, rng: np.random.Generator):
    """For each query the probability that one label of the gallery reaches the threshold."""
    mean = 0.06 / N_LABELS
    if kind == "alike":
        return np.full(N_QUERIES, mean)
    if kind == "gamma":
        return np.minimum(rng.gamma(0.2, mean / 0.2, N_QUERIES), 1.0)
    # Log-normal: unlike what is fitted, and heavier in the tail.
    return np.minimum(mean * rng.lognormal(-2.0, 2.0, N_QUERIES), 1.0)


def world(kind: str, seed: int = 0):
    """Labels that reach the threshold for each query, and the true FPIR at any number of labels."""
    rng = np.random.default_rng(seed)
    chances = tempted(kind, rng)
    return rng.binomial(N_LABELS, chances), lambda ratio: 1.0 - ((1.0 - chances) ** (ratio * N_LABELS)).mean()


@pytest.mark.parametrize("ratio", [10, 100])
def test_where_all_queries_are_tempted_alike_both_predictions_hold(ratio: int) -> None:
    reached, truth = world("alike")
    growth = fit_gallery_growth(reached, N_LABELS)
    assert independent_fpir(growth.fpir, ratio) == pytest.approx(truth(ratio), abs=0.05)
    assert growth.fpir_at(ratio) == pytest.approx(truth(ratio), abs=0.08)


@pytest.mark.parametrize("kind", ["alike", "gamma", "log-normal"])
@pytest.mark.parametrize(("ratio", "open_by"), [(10, 0.06), (100, 0.08)])
def test_the_truth_lies_between_the_two_predictions(kind: str, ratio: int, open_by: float) -> None:
    """Up to what 4,000 queries leave open."""
    for seed in range(5):
        reached, truth = world(kind, seed)
        growth = fit_gallery_growth(reached, N_LABELS)
        assert growth.fpir_at(ratio) - open_by <= truth(ratio)
        assert truth(ratio) <= independent_fpir(growth.fpir, ratio) + open_by


@pytest.mark.parametrize("kind", ["gamma", "log-normal"])
def test_where_some_queries_are_tempted_more_the_fitted_prediction_is_nearer(kind: str) -> None:
    """Negative control of the independent one: it is far too high at ten times the gallery."""
    for seed in range(5):
        reached, truth = world(kind, seed)
        growth = fit_gallery_growth(reached, N_LABELS)
        too_high = independent_fpir(growth.fpir, 10) - truth(10)
        assert too_high > 0.08
        assert abs(growth.fpir_at(10) - truth(10)) < 0.7 * too_high


def test_tenfold_growth_is_predicted_closely_where_the_model_is_right() -> None:
    errors = []
    for seed in range(10):
        reached, truth = world("gamma", seed)
        errors.append(fit_gallery_growth(reached, N_LABELS).fpir_at(10) - truth(10))
    assert abs(np.mean(errors)) < 0.01
    assert np.abs(errors).max() < 0.04


def test_rarefied_rates_are_those_of_all_smaller_galleries() -> None:
    """Every part of three labels of six, one after another."""
    reached = [{0, 1}, {5}, set(), {0, 2, 3, 4}]
    parts = list(itertools.combinations(range(6), 3))
    slow = np.mean([[bool(labels & set(part)) for labels in reached] for part in parts])
    assert rarefied_fpir(np.array([len(labels) for labels in reached]), 6, 3) == pytest.approx(slow)


def test_the_present_size_shows_the_measured_rate() -> None:
    reached, _ = world("gamma")
    growth = fit_gallery_growth(reached, N_LABELS)
    assert growth.fpir == pytest.approx((reached > 0).mean())
    assert growth.fpir_at(1.0) == pytest.approx(growth.fpir)


def test_growth_rises_with_the_ratio_and_never_above_the_independent_case() -> None:
    growth = fit_gallery_growth(world("gamma")[0], N_LABELS)
    grown = [growth.fpir_at(ratio) for ratio in RATIOS]
    assert grown == sorted(grown)
    assert all(g <= independent_fpir(growth.fpir, r) + 1e-9 for g, r in zip(grown, RATIOS, strict=True))

"""How often 95 % intervals hold the truth, where the truth is known.

Five worlds. `rates`: each label has its own rate from a beta distribution, and the threshold is fixed.
`unlike`: the same with trials of a label that agree up to always, so that labels are all or nothing.
`scores`: each label has its own normal mean, all scores are normal around it, and the threshold is chosen on
the sample, so that at most the target has the event. `pairs`: trials that stand under two labels, with
normal effects of both. `likenesses`: the same with the scalar product of both labels' random vectors in place
of effects, which the model of `calibration.rates.intervals` does not know. Labels have 20 trials each, or
numbers that differ by a factor of 10 and more.

The scale of that model's prior was chosen among .5, .6, .7 and .8 in settings like those of the world
`other`, which is `pairs` with other rates, correlations and numbers of labels: .7 came nearest to 95 % there.

Three intervals: a bootstrap over trials, a percentile bootstrap over labels, and that of
`calibration.rate_interval`. The prediction interval is held against the rate that 10 further labels show.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

from benchmarks.common.record import save_result
from vicinal.calibration import LabelCounts, rate_interval

N_BOOTSTRAP = 500
N_DIMENSIONS = 8
NORMAL = NormalDist()


@dataclass(frozen=True)
class Sample:
    """One calibration: what was counted, and the true rate."""

    counts: LabelCounts
    truth: float


def draw_sizes(rng, n_labels: int, balanced: bool) -> np.ndarray:
    """Trials of each label: 20 each, or log-normal with a median of 12."""
    if balanced:
        return np.full(n_labels, 20)
    return np.maximum(2, np.round(rng.lognormal(np.log(12.0), 1.0, n_labels))).astype(int)


def sample_rates(rng, n_labels: int, balanced: bool, rate: float, correlation: float) -> Sample:
    """Labels whose rates are Beta distributed, at a fixed threshold."""
    m = 1.0 / correlation - 1.0

    sizes = draw_sizes(rng, n_labels, balanced)
    # Without m each label has the event always or never.
    own = rng.beta(rate * m, (1.0 - rate) * m, n_labels) if m else rng.random(n_labels) < rate
    return Sample(LabelCounts(rng.binomial(sizes, own), sizes), rate)


def sample_scores(rng, n_labels: int, balanced: bool, rate: float, correlation: float) -> Sample:
    """Normal scores around normal means of the labels; the lowest threshold that holds the rate."""
    codes = np.repeat(np.arange(n_labels), draw_sizes(rng, n_labels, balanced))
    means = np.sqrt(correlation) * rng.standard_normal(n_labels)
    scores = means[codes] + np.sqrt(1.0 - correlation) * rng.standard_normal(len(codes))
    threshold = np.sort(scores)[len(scores) - 1 - int(rate * len(scores))]
    counts = LabelCounts.of(scores > threshold, codes)
    return Sample(counts, 1.0 - NORMAL.cdf(threshold))


def sample_pairs(rng, n_labels: int, balanced: bool, rate: float, correlation: float) -> Sample:
    """Normal scores of pairs of labels around the sum of both labels' effects; fixed threshold."""
    effects = np.sqrt(1.0 / 2.0) * rng.standard_normal(n_labels)
    return Sample(count_pairs(rng, np.add.outer(effects, effects), balanced, correlation, 1.0 - rate), rate)


def sample_likenesses(rng, n_labels: int, balanced: bool, rate: float, correlation: float) -> Sample:
    """The same around the scalar product of both labels' vectors."""
    vectors = rng.standard_normal((n_labels, N_DIMENSIONS))
    likeness = vectors @ vectors.T / np.sqrt(N_DIMENSIONS)
    # Products of normal numbers are not normal: the true rate at this threshold is another.
    truth = likeness_rate(NORMAL.inv_cdf(1.0 - rate), correlation)
    return Sample(count_pairs(rng, likeness, balanced, correlation, 1.0 - rate), truth)


@cache
def likeness_rate(threshold: float, correlation: float) -> float:
    """True rate of pairs above a threshold: the length of one vector says how the product is distributed."""
    lengths = np.random.default_rng(0).chisquare(N_DIMENSIONS, 100_000) / N_DIMENSIONS
    spreads = np.sqrt(correlation * lengths + 1.0 - correlation)
    return float(np.mean([1.0 - NORMAL.cdf(threshold / spread) for spread in spreads]))


def count_pairs(
    rng, effects: np.ndarray, balanced: bool, correlation: float, share_below: float
) -> LabelCounts:
    """Counts of pairs of images by label, with (n, n) effects of pairs of labels, of variance 1."""
    n = len(effects)
    images = np.full(n, 5) if balanced else np.maximum(2, draw_sizes(rng, n, balanced) // 4)
    labels = np.triu_indices(n, 1)
    first, second = (np.repeat(one, np.outer(images, images)[labels]) for one in labels)
    noise = np.sqrt(1.0 - correlation) * rng.standard_normal(len(first))
    scores = np.sqrt(correlation) * effects[first, second] + noise
    return LabelCounts.of(scores >= NORMAL.inv_cdf(share_below), first, second)


def over_trials(rng, counts: LabelCounts) -> tuple[float, float]:
    """Percentile bootstrap over trials, as if each stood for itself."""
    drawn = rng.binomial(counts.n_trials, counts.rate, N_BOOTSTRAP) / counts.n_trials
    return tuple(np.quantile(drawn, [0.025, 0.975]))


def over_labels(rng, counts: LabelCounts) -> tuple[float, float]:
    """Percentile bootstrap over labels."""
    drawn = rng.integers(0, counts.n_labels, (N_BOOTSTRAP, counts.n_labels))
    shares = counts.events[drawn].sum(axis=1) / counts.trials[drawn].sum(axis=1)
    return tuple(np.quantile(shares, [0.025, 0.975]))


WORLDS = {
    "rates": (sample_rates, [(0.05, 0.05), (0.05, 0.2), (0.2, 0.1)], (5, 10, 30, 100)),
    "unlike": (
        sample_rates,
        [(0.05, 0.3), (0.05, 0.5), (0.05, 0.7), (0.05, 0.85), (0.05, 1.0)],
        (20, 40, 80),
    ),
    "scores": (sample_scores, [(0.05, 0.1), (0.05, 0.3), (0.05, 0.5)], (5, 10, 30, 100)),
    "pairs": (sample_pairs, [(0.01, 0.1), (0.01, 0.3), (0.05, 0.3)], (10, 20, 30)),
    "likenesses": (sample_likenesses, [(0.01, 0.3), (0.05, 0.1)], (10, 20, 40)),
    "other": (sample_pairs, [(0.02, 0.05), (0.005, 0.2), (0.02, 0.4), (0.1, 0.2)], (7, 14, 25, 50)),
}


def run_cell(world: str, n_labels: int, balanced: bool, setting: tuple[float, float], n: int) -> dict:
    """Coverage and mean width of each interval in one world."""
    draw = WORLDS[world][0]
    hits = {name: [] for name in ("trials", "labels", "model")}
    widths = {name: [] for name in hits}
    above = []
    for repetition in range(n):
        digits = (round(1000 * one) for one in setting)
        rng = np.random.default_rng([repetition, n_labels, balanced, *digits, list(WORLDS).index(world)])
        sample = draw(rng, n_labels, balanced, *setting)
        own = rate_interval(sample.counts)
        for name, (low, high) in (
            ("trials", over_trials(rng, sample.counts)),
            ("labels", over_labels(rng, sample.counts)),
            ("model", (own.low, own.high)),
        ):
            hits[name].append(low <= sample.truth <= high)
            widths[name].append(high - low)
        above.append(sample.truth > own.high)
    return {
        "world": world,
        "n_labels": n_labels,
        "balanced": balanced,
        "rate": setting[0],
        "correlation": setting[1],
        "coverage": {name: float(np.mean(values)) for name, values in hits.items()},
        "mean_width": {name: round(float(np.mean(values)), 4) for name, values in widths.items()},
        "truth_above": float(np.mean(above)),
    }


def main() -> None:
    """Run every cell of the worlds that were asked for, and save them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--worlds", nargs="+", choices=list(WORLDS), default=["rates", "scores"])
    arguments = parser.parse_args()
    started = time.process_time()
    cells = []
    for world in arguments.worlds:
        _, settings, numbers = WORLDS[world]
        for n_labels in numbers:
            for balanced in (True, False):
                for setting in settings:
                    cells.append(run_cell(world, n_labels, balanced, setting, arguments.repetitions))
                    show(cells[-1])
    result = {"repetitions": arguments.repetitions, "confidence": 0.95}
    seconds = round(time.process_time() - started, 1)
    name = "_".join(["interval_coverage", *(() if "rates" in arguments.worlds else arguments.worlds)])
    print(save_result(name, {**result, "processor_seconds": seconds, "cells": cells}))


def show(cell: dict) -> None:
    """Print the coverage and mean width of each kind of interval in one cell."""
    figures = " ".join(
        f"{name} {cell['coverage'][name]:.3f} ({cell['mean_width'][name]:.3f})" for name in cell["coverage"]
    )
    print(
        f"{cell['world']:6} {cell['n_labels']:4} labels, {'even' if cell['balanced'] else 'uneven':6} "
        f"rate {cell['rate']:.2f} correlation {cell['correlation']:.2f}: {figures}; "
        f"above {cell['truth_above']:.3f}",
        flush=True,
    )


if __name__ == "__main__":
    main()

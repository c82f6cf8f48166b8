"""How often a kept promise is called broken, and a broken one is found, where the truth is known.

A calibration counts 15 or 40 labels and promises a range for FNIR (true rate 32 %) and for FPIR (5 %). Later
5, 15 or 40 labels are counted, whose true rate is the same (`kept`), the end of the promised range (`at_end`:
the worst that still keeps it), or another (`broken`: FNIR 69 %, FPIR 20 %). Labels have 8 photos each, or
numbers that differ by a factor of 10, and differ as little or as much as the cell's correlation says.

Two worlds. `fixed`: rates of labels follow a beta distribution, at a threshold that was there before.
`chosen`: scores are normal around normal means of the labels, and the threshold is chosen on the calibrated
labels as a calibration does, the lowest with an FPIR of at most 5 %. There the true rates of a kept promise
are those at this threshold, and those of a broken one are as far off on the scale of the scores.

Checks of both rates together are counted, at several levels of the p-value, and by the verdict in use; `end`
is another test for comparison, which asks that the later labels leave no rate in the promised range.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist

import numpy as np

from benchmarks.common.record import save_result
from vicinal.calibration import LabelCounts, RateInterval, check_promise, rate_interval
from vicinal.calibration.targets import lowest_threshold

# Promised and broken rate, and the correlations of trials of one label in each world.
RATES = {"fnir": (0.32, 0.69), "fpir": (0.05, 0.20)}
CORRELATIONS = {
    "fixed": {"low": {"fnir": 0.2, "fpir": 0.05}, "strong": {"fnir": 0.5, "fpir": 0.2}},
    "chosen": {"low": {"fnir": 0.15, "fpir": 0.15}, "strong": {"fnir": 0.5, "fpir": 0.5}},
}
CALIBRATED, LATER = (15, 40), (5, 15, 40)
LEVELS = (0.04, 0.03, 0.025, 0.02, 0.015, 0.01)
TRUTHS = ("kept", "at_end", "broken")
# Both rates of a promise share an error rate of 5 %.
ERROR_RATE = 0.025
NORMAL = NormalDist()


def draw_sizes(rng, n_labels: int, *, even: bool) -> np.ndarray:
    """Photos of each label: 8 each, or log-normal with a median of 6."""
    if even:
        return np.full(n_labels, 8)
    return np.maximum(1, np.round(rng.lognormal(np.log(6.0), 0.8, n_labels))).astype(int)


def draw_scores(rng, sizes: np.ndarray, correlation: float) -> tuple[np.ndarray, np.ndarray]:
    """Normal scores around normal means of the labels, and the label of each."""
    codes = np.repeat(np.arange(len(sizes)), sizes)
    means = np.sqrt(correlation) * rng.standard_normal(len(sizes))
    return means[codes] + np.sqrt(1.0 - correlation) * rng.standard_normal(len(codes)), codes


@dataclass(frozen=True)
class World:
    """Labels of one kind.

    Attributes:
        name: `fixed` or `chosen`.
        differences: `low` or `strong`.
        even: Whether labels have as many photos each.
    """

    name: str
    differences: str
    even: bool

    def count(self, rng, rate: str, truth: float, n_labels: int) -> LabelCounts:
        """Counts of labels whose true rate is known."""
        sizes = draw_sizes(rng, n_labels, even=self.even)
        correlation = CORRELATIONS[self.name][self.differences][rate]
        if self.name == "fixed":
            m = 1.0 / correlation - 1.0
            return LabelCounts(rng.binomial(sizes, rng.beta(truth * m, (1.0 - truth) * m, n_labels)), sizes)
        scores, codes = draw_scores(rng, sizes, correlation)
        return LabelCounts.of(scores >= NORMAL.inv_cdf(1.0 - truth), codes)

    def calibrate(self, rng, n_labels: int) -> dict[str, tuple[RateInterval, float]]:
        """What is promised of each rate, and its true value at the threshold."""
        if self.name == "fixed":
            truths = {rate: RATES[rate][0] for rate in RATES}
            counts = {rate: self.count(rng, rate, truths[rate], n_labels) for rate in RATES}
        else:
            sizes = draw_sizes(rng, n_labels, even=self.even)
            scores, codes = draw_scores(rng, sizes, CORRELATIONS["chosen"][self.differences]["fpir"])
            # The product's own choice wants scores in [0, 1].
            squashed = 1.0 / (1.0 + np.exp(-scores))
            threshold = lowest_threshold(squashed, RATES["fpir"][0])
            excess = np.log(threshold / (1.0 - threshold)) - NORMAL.inv_cdf(1.0 - RATES["fpir"][0])
            truths = {"fpir": shifted(RATES["fpir"][0], -excess), "fnir": shifted(RATES["fnir"][0], excess)}
            counts = {
                "fnir": self.count(rng, "fnir", truths["fnir"], n_labels),
                "fpir": LabelCounts.of(squashed >= threshold, codes),
            }
        return {rate: (rate_interval(counts[rate]), truths[rate]) for rate in RATES}


def shifted(rate: float, by: float) -> float:
    """The rate when normal scores shift."""
    return NORMAL.cdf(NORMAL.inv_cdf(rate) + by)


def true_rates(rate: str, promised: RateInterval, kept: float) -> dict[str, float]:
    """The later labels' true rate under each truth."""
    usual, broken = RATES[rate]
    distance = NORMAL.inv_cdf(broken) - NORMAL.inv_cdf(usual)
    return {"kept": kept, "at_end": min(promised.high, 0.98), "broken": shifted(kept, distance)}


def tried(counts: LabelCounts, promised: RateInterval) -> dict[str, object]:
    """The p-value, whether the other test calls the promise broken, and the verdict in use."""
    found = check_promise(counts, promised, error_rate=ERROR_RATE, counts_more=False)
    is_beyond = counts.rate > promised.high
    return {
        "p": found.p_not_worse if is_beyond else 1.0,
        "end": found.measured.low > promised.high,
        "verdict": found.verdict,
    }


def run_world(world: World, n_calibrated: int, n: int) -> list[dict]:
    """One cell for each number of later labels."""
    rows: dict[int, list[dict]] = {n_later: [] for n_later in LATER}
    for repetition in range(n):
        numbers = [list(CORRELATIONS).index(world.name), world.differences == "low", world.even]
        rng = np.random.default_rng([repetition, n_calibrated, *numbers])
        calibrated = world.calibrate(rng, n_calibrated)
        for n_later in LATER:
            row = {}
            for rate, (promised, kept) in calibrated.items():
                truths = true_rates(rate, promised, kept)
                row[rate] = {
                    truth: tried(world.count(rng, rate, truths[truth], n_later), promised) for truth in TRUTHS
                }
                row[rate]["held"] = promised.low <= kept <= promised.high
            rows[n_later].append(row)
    return [
        {
            "world": world.name,
            "correlation": CORRELATIONS[world.name][world.differences],
            "even": world.even,
            "labels_calibrated": n_calibrated,
            "labels_later": n_later,
            **summary(found),
        }
        for n_later, found in rows.items()
    ]


def summary(rows: list[dict]) -> dict[str, object]:
    """Shares of the repetitions, of both rates together and of each."""
    together = {
        truth: {
            "by_level": {
                str(level): share(min(row[rate][truth]["p"] for rate in RATES) < level for row in rows)
                for level in LEVELS
            },
            "end": share(any(row[rate][truth]["end"] for rate in RATES) for row in rows),
            "broken": share(any(row[rate][truth]["verdict"] == "broken" for rate in RATES) for row in rows),
        }
        for truth in TRUTHS
    }
    each = {
        rate: {
            "range_holds_truth": share(row[rate]["held"] for row in rows),
            **{
                truth: {
                    verdict: share(row[rate][truth]["verdict"] == verdict for row in rows)
                    for verdict in ("better", "held", "unclear", "broken")
                }
                for truth in TRUTHS
            },
        }
        for rate in RATES
    }
    return {"called_broken": together, **each}


def share(found) -> float:
    """Mean of some truth values."""
    return float(np.mean(list(found)))


def show(cell: dict) -> None:
    """Print how often one cell was called broken, where its promise was kept and where it was not."""
    kept, broken = (cell["called_broken"][truth] for truth in ("kept", "broken"))
    levels = " ".join(f"{kept['by_level'][str(level)]:.3f}" for level in LEVELS)
    single = "; ".join(
        f"{rate} kept {cell[rate]['kept']['broken']:.3f}, broken {cell[rate]['broken']['broken']:.2f}, "
        f"range holds {cell[rate]['range_holds_truth']:.2f}"
        for rate in RATES
    )
    print(
        f"{cell['world']:6} {cell['correlation']['fnir']:.2f} {'even' if cell['even'] else 'uneven':6} "
        f"{cell['labels_calibrated']} labels, later {cell['labels_later']:2}: called broken though kept "
        f"{kept['broken']:.3f} ({levels}), found {broken['broken']:.2f}; end {kept['end']:.3f}, "
        f"{broken['end']:.2f}; {single}",
        flush=True,
    )


def main() -> None:
    """Run all worlds, print the worst cell, and save them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=800)
    n = parser.parse_args().repetitions
    started, cells = time.process_time(), []
    kinds = product(CORRELATIONS, ("low", "strong"), (True, False))
    for (name, differences, even), n_calibrated in product(kinds, CALIBRATED):
        for cell in run_world(World(name, differences, even), n_calibrated, n):
            cells.append(cell)
            show(cell)
    worst = max(cell["called_broken"]["kept"]["broken"] for cell in cells)
    print(f"called broken though kept, in the worst of {len(cells)} cells: {worst:.3f}")
    seconds = round(time.process_time() - started, 1)
    result = {"repetitions": n, "error_rate": 2 * ERROR_RATE, "rates": RATES, "processor_seconds": seconds}
    print(save_result("promise_check", {**result, "cells": cells}))


if __name__ == "__main__":
    main()

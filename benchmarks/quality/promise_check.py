"""How often a kept promise is called broken, and a broken one is found, where the truth is known.

A calibration counts 15 or 40 labels and promises a range for FNIR (true rate 32 %) and for FPIR (5 %). Later
5, 15 or 40 labels are counted, whose true rate is the same (`kept`), the end of the promised range (`at_end`:
the worst that still keeps it), or another (`broken`: FNIR 69 %, FPIR 20 %). Rates of labels follow a beta
distribution with a stated correlation; they have 8 photos each, or numbers that differ by a factor of 10.

Two tests, each at several levels of its p-value. `both` is that of `calibration.rates.promise`: it reckons
with the uncertainty of the promise and of the later labels. `end` asks that the later labels leave no rate in
the promised range. `either` counts checks of both rates together, each at the level. In use is a level of
0.015 for two rates, and of 0.03 for one.
"""

from __future__ import annotations

import argparse
import time
from itertools import product

import numpy as np

from benchmarks.common.record import save_result
from vicinal.calibration import LabelCounts, RateInterval, check_promise, rate_interval
from vicinal.calibration.rates.intervals import rate_posterior

# Promised and broken rate, and the correlations of trials of one label.
RATES = {"fnir": (0.32, 0.69, (0.2, 0.5)), "fpir": (0.05, 0.20, (0.05, 0.2))}
CALIBRATED, LATER = (15, 40), (5, 15, 40)
LEVELS = (0.03, 0.025, 0.02, 0.015)
TRUTHS = ("kept", "at_end", "broken")


def draw(rng, n_labels: int, rate: float, correlation: float, *, even: bool) -> LabelCounts:
    """Labels whose rates are Beta distributed: 8 photos each, or log-normal with a median of 6."""
    sizes = np.full(n_labels, 8)
    if not even:
        sizes = np.maximum(1, np.round(rng.lognormal(np.log(6.0), 0.8, n_labels))).astype(int)
    m = 1.0 / correlation - 1.0
    return LabelCounts(rng.binomial(sizes, rng.beta(rate * m, (1.0 - rate) * m, n_labels)), sizes)


def tried(counts: LabelCounts, promised: RateInterval) -> dict[str, object]:
    """The p-value of each test, and the verdict at the error rate in use."""
    found = check_promise(counts, promised, counts_more=False)
    is_beyond = counts.rate > promised.high
    return {
        "both": found.p_not_worse if is_beyond else 1.0,
        "end": float(rate_posterior(counts).share_below(promised.high)),
        "verdict": found.verdict,
    }


def run_cell(name: str, level: int, n_calibrated: int, n_later: int, n: int) -> dict[str, list[dict]]:
    """What is found under each truth, repetition by repetition."""
    rate, broken, correlations = RATES[name]
    found: dict[str, list[dict]] = {truth: [] for truth in TRUTHS}
    for repetition in range(n):
        rng = np.random.default_rng([repetition, level, n_calibrated, n_later, list(RATES).index(name)])
        shape = {"correlation": correlations[level], "even": repetition % 2 == 0}
        promised = rate_interval(draw(rng, n_calibrated, rate, **shape))
        truths = (rate, min(promised.high, 0.98), broken)
        for truth, value in zip(TRUTHS, truths, strict=True):
            found[truth].append(tried(draw(rng, n_later, value, **shape), promised))
    return found


def shares(found: list[dict]) -> dict[str, object]:
    """How often each test calls the promise broken, and each verdict."""
    return {
        "called_broken": {
            test: {str(one): float(np.mean([row[test] < one for row in found])) for one in LEVELS}
            for test in ("both", "end")
        },
        "verdicts": {
            name: float(np.mean([row["verdict"] == name for row in found]))
            for name in ("better", "held", "unclear", "broken")
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=600)
    n = parser.parse_args().repetitions
    started, cells = time.process_time(), []
    for level, n_calibrated, n_later in product(range(2), CALIBRATED, LATER):
        runs = {name: run_cell(name, level, n_calibrated, n_later, n) for name in RATES}
        kept = list(zip(*(runs[name]["kept"] for name in RATES), strict=True))
        either = {
            str(one): float(np.mean([min(row["both"] for row in rows) < one for rows in kept]))
            for one in LEVELS
        }
        cells.append(
            {
                "correlation": {name: RATES[name][2][level] for name in RATES},
                "labels_calibrated": n_calibrated,
                "labels_later": n_later,
                "either_called_broken_though_kept": either,
                **{name: {truth: shares(rows) for truth, rows in runs[name].items()} for name in RATES},
            }
        )
        show(cells[-1])
    seconds = round(time.process_time() - started, 1)
    result = {"repetitions": n, "rates": RATES, "processor_seconds": seconds, "cells": cells}
    print(save_result("promise_check", result))


def show(cell: dict) -> None:
    figures = [
        f"{name} {test} "
        + "/".join(f"{cell[name][truth]['called_broken'][test]['0.015']:.3f}" for truth in TRUTHS)
        for name, test in product(RATES, ("both", "end"))
    ]
    either = cell["either_called_broken_though_kept"]["0.015"]
    print(
        f"{cell['labels_calibrated']} labels, later {cell['labels_later']}: either though kept {either:.3f}; "
        f"called broken where kept/at the end/broken: {'; '.join(figures)}",
        flush=True,
    )


if __name__ == "__main__":
    main()

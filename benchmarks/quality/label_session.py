"""How well `vicinal label` tells a threshold, with a simulated person over labelled image sets.

A gallery of one part of an image set is searched as `vicinal label` does, labels hidden. Its questions are
answered by the labels, by a person who never errs, or one who errs in 5 % of the answers. Every run goes on
until the answers are enough, and at most to 400. Of each the stated interval of the target's rate is kept
beside the truth, which is counted on all pairs. Constants were chosen on other galleries (docs/RESULTS.md).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.common.record import save_result
from benchmarks.quality.protocol_data import extract_part
from vicinal.calibration import Target
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.labelling.questions import (
    ScoredPairs,
    next_block,
    posterior,
    progress,
)
from vicinal.service.search.scorer import Scorer
from vicinal.service.settings import Settings

SETS = ("grocery", "dogfacenet")
MOST_ANSWERS = 400


def open_pairs(data: Path, name: str, split: str) -> tuple[ScoredPairs, np.ndarray]:
    """The pairs of one part's gallery, and whether each shows one label."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder) / "data", device="cpu", threads=1)
        bundles = ServedBundles(settings)
        part = extract_part(data / name, split, Path(folder) / "part")
        gallery = Gallery(settings.gallery_path("gallery"), refinement=bundles.own.refinement)
        index_items(gallery, read_source(part.gallery), bundles.own.embedder)
        matcher = bundles.matcher(gallery)
        scorer = Scorer(matcher.snapshot, matcher.pipeline, matcher.refinement(matcher.pipeline))
        pairs = ScoredPairs.of(scorer, seed=0)
        labels = matcher.snapshot.labels
        return pairs, labels[pairs.queries] == labels[pairs.items]


def run(pairs: ScoredPairs, same: np.ndarray, target: Target, errs: float, seed: int) -> dict:
    """One session; the truth of the stated rate, and what the threshold finds."""
    rng = np.random.default_rng([seed, 1])
    asked: list[int] = []
    answers: list[bool | None] = []
    while True:
        found = posterior(pairs, asked, answers, seed)
        if progress(found, len(asked), target) >= 1.0 or len(asked) >= MOST_ANSWERS:
            break
        for question in next_block(pairs, asked, answers, found=found, target=target, seed=seed):
            asked.append(question.pair)
            answers.append(bool(same[question.pair]) != bool(rng.random() < errs))
    border = found.border(target)
    row: dict = {"answers": len(asked), "error": float(found.errors.mean())}
    if border is None:
        return row
    accepted = pairs.own_strata <= border
    n_different = int((~same).sum()) + pairs.n_others
    true = {
        "precision": float(same[accepted].mean()),
        "far": int((~same[accepted]).sum()) / n_different,
    }[target.rate]
    stated = found.interval(target, border)
    ends = {"rate": stated.rate, "low": stated.low, "high": stated.high, "true": true}
    return {**row, **ends, "found": float(same[accepted].sum() / same.sum())}


def summary(rows: list[dict]) -> dict[str, float]:
    """Coverage and means of the runs."""
    told = [row for row in rows if "true" in row]
    inside = [row["low"] <= row["true"] <= row["high"] for row in told]
    means = {name: float(np.mean([row[name] for row in told])) for name in told[0]}
    quantiles = {
        f"answers_{q}": float(np.quantile([row["answers"] for row in rows], q / 100)) for q in (50, 90)
    }
    return {"told": len(told), "inside": float(np.mean(inside)), **means, **quantiles}


def cells(arguments: argparse.Namespace) -> Iterator[dict]:
    """Every image set, target and person."""
    for name in SETS:
        pairs, same = open_pairs(arguments.data, name, arguments.split)
        for text, errs in product(arguments.target, (0.0, 0.05)):
            target = Target.parse(text)
            rows = [run(pairs, same, target, errs, seed) for seed in range(arguments.runs)]
            cell = {"set": name, "split": arguments.split, "target": text, "errs": errs}
            print({**cell, **summary(rows)}, flush=True)
            yield {**cell, **summary(rows), "rows": rows}


def main() -> None:
    """Run the sessions that were asked for, and keep every one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", choices=("calibration", "test"), default="test")
    parser.add_argument("--target", nargs="+", default=["precision=95%"])
    parser.add_argument("--runs", type=int, default=200)
    arguments = parser.parse_args()
    suffix = "" if arguments.split == "test" else f"_{arguments.split}"
    print(save_result(f"label_session{suffix}", {"runs": arguments.runs, "cells": list(cells(arguments))}))


if __name__ == "__main__":
    main()

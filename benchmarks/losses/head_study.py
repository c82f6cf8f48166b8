"""The loss study again, as linear heads on the frozen features of a pretrained network.

    run      features (some 15 minutes on one core), then every run of `head_runs.py`: a second or two each
    report   tables of docs/studies/pretrained-heads.md
A run that is done is not run again. Learning rates, margins and weights of TCM are chosen on held-out
training classes; calibration classes give a threshold; test classes are only reported.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.record import RESULTS, save_result
from benchmarks.losses.features import FeatureParts, load_features
from benchmarks.losses.head_report import head_tables
from benchmarks.losses.head_runs import HEAD_SETS, choose_rates, loss_runs, noise_runs, rate_runs, tcm_runs
from benchmarks.losses.heads import measure_head, measure_held_out, train_head
from benchmarks.losses.measures import measure_test
from benchmarks.losses.report import replace_tables
from benchmarks.losses.training import Run

__all__: list[str] = []

_RESULT = "pretrained_heads"
_PAGE = Path(__file__).parents[2] / "docs" / "studies" / "pretrained-heads.md"


def run_all(sets: Sequence[str], roots: Path, features: Path, work: Path) -> None:
    """All runs of some image sets, then the raw result of everything that was ever run in the work folder."""
    parts = {images: load_features(roots / images, features) for images in sets}
    for images in sets:
        _keep(work, _frozen(images, parts[images]))
        _do(rate_runs(images), parts[images], work)
        rates = choose_rates(images, _records(work))
        _do(tcm_runs(images, rates, _records(work)), parts[images], work)
        _do(loss_runs(images, _records(work)), parts[images], work)
    for images in sets:
        _do(noise_runs(images, _records(work)), parts[images], work)
    save_result(_RESULT, {"threads": torch.get_num_threads(), "runs": _records(work)})


def _do(runs: Sequence[Run], parts: FeatureParts, work: Path) -> None:
    pending = [run for run in runs if not (work / f"{run.key}.json").exists()]
    for done, run in enumerate(pending, start=1):
        head, record = train_head(run, parts.train)
        if run.fold is None:
            record["test"] = measure_head(head, parts)
        else:
            record["held_out"] = measure_held_out(head, run, parts.train)
        _keep(work, record)
        print(f"{done}/{len(pending)} {run.key} {record['seconds']} s", flush=True)


def _frozen(images: str, parts: FeatureParts) -> dict[str, Any]:
    """The features as they are, as a run without a head."""
    embedded = {"calibration": parts.calibration.plain, "test": parts.test.plain}
    record = {"images": images, "group": "heads", "name": "no head", "seed": 0}
    record["key"] = f"{images}--heads--no head--seed0"
    return {**record, "test": measure_test(embedded, parts.calibration, parts.test)}


def _keep(work: Path, record: dict[str, Any]) -> None:
    work.mkdir(parents=True, exist_ok=True)
    partial = work / f"{record['key']}.partial"
    partial.write_text(json.dumps(record), encoding="utf-8")
    partial.rename(work / f"{record['key']}.json")


def _records(work: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(work.glob("*.json"))]


def report() -> None:
    """Write the tables of the page."""
    stored = json.loads((RESULTS / f"{_RESULT}.json").read_text(encoding="utf-8"))
    replace_tables(_PAGE, head_tables(stored["runs"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stage", choices=["run", "report"])
    parser.add_argument("--sets", nargs="+", choices=HEAD_SETS, default=HEAD_SETS)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--features", type=Path, default=Path("build/features"))
    parser.add_argument("--work", type=Path, default=Path("build/head_study"))
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    if given.stage == "run":
        torch.set_num_threads(given.threads)
        run_all(given.sets, given.data, given.features, given.work)
    else:
        report()


if __name__ == "__main__":
    main()

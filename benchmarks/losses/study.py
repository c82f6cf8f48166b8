"""The loss study: every loss on characters and photos, from the first step to the tables.

Three stages, each of which goes on where it stopped:
    train    every run of `runs.py`; embeddings go to the work folder (about two hours on two cores)
    measure  metrics of every run from its embeddings; raw results go to benchmarks/results/loss_study.json
    report   tables and plots of docs/RESULTS.md
Settings are chosen on held-out training classes; the test classes are only reported.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.record import RESULTS, save_result
from benchmarks.losses.images import IMAGE_SIZE, load_parts
from benchmarks.losses.measures import measure_parts
from benchmarks.losses.report import replace_tables, tables, write_plots
from benchmarks.losses.runs import base_runs, dependent_runs
from benchmarks.losses.training import Run, is_done, load_embeddings, load_record, train
from vicinal.calibration import opis

__all__: list[str] = []


def train_all(runs: Sequence[Run], roots: Path, work: Path, jobs: int) -> None:
    """Train what is missing, one run a process and thread."""
    pending = [run for run in runs if not is_done(run, work)]
    for images in {run.images for run in pending}:
        load_parts(roots / images, work)
    started = time.monotonic()
    # A fresh process a run: nothing that one leaves behind can change another.
    with multiprocessing.get_context("spawn").Pool(jobs, _one_thread, maxtasksperchild=8) as pool:
        tasks = [(run, roots, work) for run in pending]
        for done, line in enumerate(pool.imap_unordered(_train_one, tasks), start=1):
            rest = (time.monotonic() - started) / done * (len(pending) - done)
            print(f"{done}/{len(pending)} {line}; {rest / 60:.0f} min left", flush=True)


def _one_thread() -> None:
    torch.set_num_threads(1)


def _train_one(task: tuple[Run, Path, Path]) -> str:
    run, roots, work = task
    record = train(run, load_parts(roots / run.images, work), work)
    return f"{run.key} {record['seconds']} s, loss {record['last_loss']:.3f}"


def choose_margins(roots: Path, work: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """TCM's margins for each loss and image set, from the first run without TCM.

    The margins are the ends of the calibration range (FAR 1 % and 10 %) on held-out training classes, as
    cosines, m = 1 - dist^2 / 2: TCM then acts on the pairs whose decision depends on the threshold.
    """
    margins: dict[str, dict[str, tuple[float, float]]] = {}
    for run in base_runs():
        if run.seed == 0:
            labels = load_parts(roots / run.images, work).validation.labels
            near, far = opis(load_embeddings(run, work)["validation"], labels).threshold_range
            margins.setdefault(run.images, {})[run.name] = (1 - near**2 / 2, 1 - far**2 / 2)
    return margins


def measure_all(roots: Path, work: Path, jobs: int) -> None:
    """Metrics of every run that has been trained; the runs already measured are not measured again."""
    records = {record["key"]: record for record in _stored_records()}
    runs = [run for run in _all_runs(roots, work) if is_done(run, work) and run.key not in records]
    with multiprocessing.get_context("spawn").Pool(jobs, _one_thread) as pool:
        for record in pool.imap_unordered(_measure_one, [(run, roots, work) for run in runs]):
            records[record["key"]] = record
            print(f"{len(records)} {record['key']} {record['test']}", flush=True)
    order = {run.key: place for place, run in enumerate(_all_runs(roots, work))}
    kept = sorted((one for one in records.values() if one["key"] in order), key=lambda one: order[one["key"]])
    save_result("loss_study", {"threads": 1, "image_size": IMAGE_SIZE, "runs": kept})


def _measure_one(task: tuple[Run, Path, Path]) -> dict[str, Any]:
    run, roots, work = task
    parts = load_parts(roots / run.images, work)
    return {**load_record(run, work), **measure_parts(load_embeddings(run, work), parts)}


def _stored_records() -> list[dict[str, Any]]:
    path = RESULTS / "loss_study.json"
    return json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []


def _all_runs(roots: Path, work: Path) -> list[Run]:
    return base_runs() + dependent_runs(choose_margins(roots, work))


def report() -> None:
    """Write the tables and plots of docs/RESULTS.md."""
    records = _stored_records()
    docs = Path(__file__).parents[2] / "docs"
    replace_tables(docs / "RESULTS.md", tables(records))
    write_plots(records, docs / "images")


def main() -> None:
    """One stage of the study: train, measure or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stage", choices=["train", "measure", "report"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--work", type=Path, default=Path("build/loss_study"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if arguments.stage == "train":
        train_all(base_runs(), arguments.data, arguments.work, arguments.jobs)
        train_all(_all_runs(arguments.data, arguments.work), arguments.data, arguments.work, arguments.jobs)
    elif arguments.stage == "measure":
        measure_all(arguments.data, arguments.work, arguments.jobs)
    else:
        report()


if __name__ == "__main__":
    main()

"""The refiner study: what neighbors add to embeddings, on characters and photos.

Studies with the same measurements: `scratch`, whose bases are small networks that learned from scratch
(`bases.py`), `pretrained`, whose bases start from ImageNet weights (`pretrained.py`), and `tuned`: the
paper's refiner alone, with more steps, on heads that were tuned on the classes it learns from.

Three stages, each of which goes on where it stopped:
    train    bases from scratch (about an hour on two cores) go to the work folder; the others make themselves
    measure  controls, refiners, sweeps; what every query got goes to the work folder
    report   the raw result in benchmarks/results (refiner_study.json, refiner_pretrained.json,
             refiner_tuned.json), and the tables and plots of docs/RESULTS.md or of a page of docs/studies

Everything is chosen on held-out training classes: settings of controls, steps of a training, sides.
Calibration classes give the threshold. Test classes are only reported. The gated form itself was designed on
held-out and calibration classes of seed 0.

A refiner's training classes are two thirds of the base's, its held-out classes the rest (and those that a
base from scratch was validated on). `unseen` embeddings of a class come from a base that was trained without
it, turned into the base's own space by the rotation that fits the classes both saw.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.losses.runs import SETS
from benchmarks.losses.study import train_all
from benchmarks.refiner.bases import base_runs
from benchmarks.refiner.embedded import Embedded, Wanted
from benchmarks.refiner.methods import BASE, control_grid
from benchmarks.refiner.recipes import VARIANTS, Start, recipe_of
from benchmarks.refiner.searches import (
    SIDES,
    Embeddings,
    Method,
    Outcome,
    Refined,
    Search,
    chosen_sides,
    cross_opis,
    figures,
    outcome,
    refined,
    reranked_outcome,
    threshold_at,
)
from benchmarks.refiner.tasks import STUDIES, Task
from vicinal.models.similarity import normalize
from vicinal.refine.context_refiner import Neighbors
from vicinal.training.refiner.config import RefinerRecipe
from vicinal.training.refiner.embedding_set import EmbeddingSet
from vicinal.training.refiner.network import ContextRefinerNetwork
from vicinal.training.refiner.trainer import RefinerTrainer, refine_with

__all__: list[str] = []

# A fold of the groceries has eleven classes.
_BATCH = {"omniglot": 128, "grocery": 40, "dogfacenet": 128}
_FUSED = (0.3, 0.6)


def measure_one(task: Task, study: str, roots: Path, work: Path) -> str:
    """Do one measurement and keep what the queries got."""
    started = time.monotonic()
    measure = _measure_controls if task.group == "controls" else _measure_refiner
    rows = measure(task, study, Wanted(task.images, task.seed, roots, work))
    record = {**task.__dict__, "seconds": round(time.monotonic() - started, 1), "rows": rows}
    path = _records(work) / f"{task.key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(record))
    partial.rename(path)
    return f"{task.key} {record['seconds']} s"


@functools.lru_cache(maxsize=8)
def _embedded(study: str, base: str, wanted: Wanted) -> Embedded:
    """The tasks of a process ask for the same embeddings again and again."""
    return STUDIES[study].bases[base].embed(wanted)


def _measure_controls(task: Task, study: str, wanted: Wanted) -> list[dict[str, Any]]:
    """The base, and each control as held-out classes choose it: by FNIR, and by MAP@R."""
    embedded, work = _embedded(study, task.base, wanted), wanted.work
    rows = _report(task, embedded, work, BASE, {"base": "off"}, rerank=STUDIES[study].reranks)
    for control, settings in control_grid().items():
        tried = [
            (name, sides, held)
            for name, method in settings.items()
            for sides, held in _held_out(embedded, method, SIDES[1:]).items()
        ]
        by_fnir = min(tried, key=lambda one: one[2]["fnir_at_fpir_5"])
        by_map = max(tried, key=lambda one: one[2]["map_at_r"])
        for chosen_by, (name, sides, held) in (("FNIR", by_fnir), ("MAP@R", by_map)):
            (row,) = _report(task, embedded, work, settings[name], {f"{control} by {chosen_by}": sides})
            rows.append({**row, "setting": name, "held_out": held})
    return rows


def _measure_refiner(task: Task, study: str, wanted: Wanted) -> list[dict[str, Any]]:
    embedded, work = _embedded(study, task.base, wanted), wanted.work
    variant = VARIANTS[task.group][task.name]
    fields = recipe_of(variant, _start(study, task.base, wanted, variant.starts_by))
    items = _items(task, study, wanted)
    started = time.monotonic()
    results = []
    for number in range(variant.n_networks):
        # Far from the seeds of other tasks.
        recipe = RefinerRecipe.model_validate({**fields, "seed": task.seed + 100 * number})
        results.append(RefinerTrainer(recipe).run(items, embedded.held_set))
    seconds, first = time.monotonic() - started, results[0]
    method = _averaged([one.network for one in results])
    refiner = first.network.architecture
    about = {
        "training_seconds": round(seconds, 1),
        "best_step": first.best.step,
        "n_weights": sum(one.numel() for one in first.network.parameters() if one.requires_grad),
        "verdict": {"sides": first.verdict.sides, "rerank": first.verdict.rerank},
        "held_out": first.verdict.figures,
        "setting": f"k {refiner.n_neighbors}, {refiner.n_steps} steps",
    }
    reranks = STUDIES[study].reranks and task.group == "refiner"
    named = {sides: sides for sides in SIDES[1:]}
    rows = [{**row, **about} for row in _report(task, embedded, work, method, named, rerank=reranks)]
    if reranks:
        rows += [_report_fused(task, embedded, work, method, share) for share in _FUSED]
    return rows


def _averaged(networks: Sequence[ContextRefinerNetwork]) -> Method:
    """The mean of what networks refine, with unit items and with queries as long as their mean."""
    calls = [refine_with(network) for network in networks]

    def refine(rows: Embeddings, neighbors: Neighbors, as_queries: bool) -> Embeddings:
        if len(calls) == 1:
            return calls[0](rows, neighbors, as_queries=as_queries)
        mean = np.mean([call(rows, neighbors, as_queries=as_queries) for call in calls], axis=0)
        return mean if as_queries else normalize(mean)

    return Method(refine, networks[0].architecture.n_neighbors)


def _held_out(embedded: Embedded, method: Method, sides: Sequence[str]) -> dict[str, dict[str, float]]:
    """Figures on held-out classes, by what is refined."""
    both = [(search, refined(search, method)) for search in embedded.held_out]
    return {one: figures([outcome(s, chosen_sides(s, pair, one)) for s, pair in both]) for one in sides}


def _items(task: Task, study: str, wanted: Wanted) -> EmbeddingSet:
    """What a refiner is trained on."""
    trained_on = VARIANTS[task.group][task.name].trained_on
    if trained_on == "all sets":
        others = [dataclasses.replace(wanted, images=images) for images in SETS]
        return EmbeddingSet.join([_embedded(study, task.base, one).unseen for one in others])
    embedded = _embedded(study, task.base, wanted)
    return embedded.seen if trained_on == "seen" else embedded.unseen


@functools.lru_cache(maxsize=8)
def _start(study: str, base: str, wanted: Wanted, by: str) -> Start:
    """The softmax-QE with the best figure `by` held out, both sides refined, and sizes that fit the set."""
    embedded, settings = _embedded(study, base, wanted), control_grid()["softmax-QE"]
    sign = 1 if by == "map_at_r" else -1
    worth = {
        name: sign * _held_out(embedded, method, ["both"])["both"][by] for name, method in settings.items()
    }
    best = max(settings, key=lambda name: worth[name])
    k, temperature, weight = (float(part.split()[-1]) for part in best.split(","))
    class_sizes = np.unique(embedded.unseen.labels, return_counts=True)[1]
    n_candidates = int(np.clip(2 * np.median(class_sizes), 16, 64))
    batch_size, steps_share = _BATCH[wanted.images], STUDIES[study].steps_share
    return Start(int(k), temperature, weight, n_candidates, batch_size, steps_share)


def _report(
    task: Task,
    embedded: Embedded,
    work: Path,
    method: Method,
    named_sides: Mapping[str, str],
    *,
    rerank: bool = False,
) -> list[dict[str, Any]]:
    """Figures on the test classes, a row for each name and the sides it stands for.

    With `rerank` the figures of the re-ranked scores are beside those of the base, or of both sides.
    """
    pairs = [(search, refined(search, method)) for search in (embedded.calibration, embedded.test)]
    rows = []
    for name, sides in named_sides.items():
        compared = [chosen_sides(search, pair, sides) for search, pair in pairs]
        row = _row(task, embedded, work, name, compared)
        if rerank and sides in ("off", "both"):
            calibration = reranked_outcome(embedded.calibration, compared[0])
            test = reranked_outcome(embedded.test, compared[1])
            threshold = threshold_at(calibration.absent)
            row["reranked"] = figures([test], threshold)
            _keep(task, work, f"{name} reranked", test, threshold)
        rows.append({**row, "sides": sides})
    return rows


def _report_fused(task: Task, embedded: Embedded, work: Path, method: Method, share: float) -> dict[str, Any]:
    """Initial and refined similarity added up with these shares: longer vectors do that."""

    def fused(search: Search) -> tuple[Embeddings, Embeddings]:
        gallery, queries = refined(search, method)
        first, second = np.float32(share**0.5), np.float32((1 - share) ** 0.5)
        return (
            np.concatenate([first * search.gallery, second * gallery], axis=1),
            np.concatenate([first * search.queries, second * queries], axis=1),
        )

    compared = [fused(search) for search in (embedded.calibration, embedded.test)]
    return {**_row(task, embedded, work, f"fused {share}", compared), "sides": "both"}


def _row(task: Task, embedded: Embedded, work: Path, name: str, compared: list[Refined]) -> dict[str, Any]:
    calibration, test = (
        outcome(search, one)
        for search, one in zip((embedded.calibration, embedded.test), compared, strict=True)
    )
    threshold = threshold_at(calibration.absent)
    _keep(task, work, name, test, threshold)
    return {
        "name": name,
        "test": {**figures([test], threshold), "opis": cross_opis(embedded.test, compared[1])},
        "calibration": figures([calibration]),
    }


def _keep(task: Task, work: Path, name: str, test: Outcome, threshold: float) -> None:
    """What each query got, for intervals of differences."""
    path = _outcomes(work) / f"{task.key}--{name.replace(' ', '_')}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {key: np.asarray(value, np.float32) for key, value in test.__dict__.items()}
    # Thresholds are in full precision: a float32 score may not cross its own.
    accepted = {"mate_accepted": test.mate >= threshold, "absent_accepted": test.absent >= threshold}
    np.savez_compressed(path, **arrays, **accepted)


def _records(work: Path) -> Path:
    return work / "refiner" / "records"


def _outcomes(work: Path) -> Path:
    return work / "refiner" / "outcomes"


def measure_all(name: str, roots: Path, work: Path, jobs: int) -> None:
    """Every measurement that has not been done and whose base is there."""
    study = STUDIES[name]
    pending = [
        task
        for task in study.tasks
        if not (_records(work) / f"{task.key}.json").exists()
        and study.bases[task.base].is_ready(Wanted(task.images, task.seed, roots, work))
    ]
    started = time.monotonic()
    call = functools.partial(measure_one, study=name, roots=roots, work=work)
    with multiprocessing.get_context("spawn").Pool(jobs, _one_thread, maxtasksperchild=32) as pool:
        for done, line in enumerate(pool.imap_unordered(call, pending), start=1):
            rest = (time.monotonic() - started) / done * (len(pending) - done)
            print(f"{done}/{len(pending)} {line}; {rest / 60:.0f} min left", flush=True)


def _one_thread() -> None:
    torch.set_num_threads(1)


def main() -> None:
    """One stage of the study: train, measure or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stage", choices=["train", "measure", "report"])
    parser.add_argument("--study", choices=list(STUDIES), default="scratch")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--work", type=Path, help="default: build/ and the name of the study's result")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    work = given.work or Path("build") / STUDIES[given.study].result
    if given.stage == "train":
        train_all(base_runs(), given.data, work, given.jobs)
    elif given.stage == "measure":
        measure_all(given.study, given.data, work, given.jobs)
    else:
        from benchmarks.refiner.pretrained_report import report_pretrained, report_tuned
        from benchmarks.refiner.report import report

        reports = {"scratch": report, "pretrained": report_pretrained, "tuned": report_tuned}
        reports[given.study](given.data, work)


if __name__ == "__main__":
    main()

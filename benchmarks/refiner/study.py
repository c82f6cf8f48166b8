"""The refiner study: what neighbors add to embeddings, on characters and photos.

Three stages, each of which goes on where it stopped:
    train    base embeddings (`bases.py`; about an hour on two cores) go to the work folder
    measure  controls, refiners, sweeps; what every query got goes to the work folder, and figures to
             benchmarks/results/refiner_study.json
    report   tables and plots of docs/RESULTS.md

Everything is chosen on held-out training classes: settings of controls, steps of a training, sides.
Calibration classes give the threshold. Test classes are only reported. The gated form itself was designed on
held-out and calibration classes of seed 0.

A refiner's training classes are two thirds of the base's, its held-out classes the rest and those that the
base was validated on. `unseen` embeddings of a class come from a base that was trained without it, turned
into the base's own space by the rotation that fits the classes both saw.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.losses.images import load_parts
from benchmarks.losses.runs import SEEDS, SETS
from benchmarks.losses.study import train_all
from benchmarks.losses.training import load_embeddings
from benchmarks.refiner.bases import BASES, N_FOLDS, base_run, base_runs, fold_runs
from benchmarks.refiner.methods import (
    BASE,
    LADDER,
    SWEPT_NEIGHBORS,
    SWEPT_STEPS,
    control_grid,
    gated,
    paper,
)
from benchmarks.refiner.searches import (
    SIDES,
    Embeddings,
    Method,
    Search,
    chosen_sides,
    cross_opis,
    deal,
    figures,
    outcome,
    refined,
    reranked_outcome,
    search_of,
    threshold_at,
)
from vicinal.refine.training.config import RefinerRecipe
from vicinal.refine.training.embedding_set import EmbeddingSet
from vicinal.refine.training.trainer import RefinerTrainer, refine_with

__all__: list[str] = []

_HELD_FOLD = N_FOLDS - 1
# Rungs of the ladder with all seeds; the others have one.
_THRICE = ["as the paper", "all of these"]
# Of the fold that is held out; more would cost time and tell little.
_MOST_HELD_CLASSES = 100


@dataclass(frozen=True)
class Task:
    """One measurement.

    Attributes:
        images: Image set.
        base: Name of the base embeddings.
        seed: Seed of base and refiner.
        group: `controls`, `refiner`, `ladder`, `neighbors` or `steps`.
        name: What distinguishes it in its group.
    """

    images: str
    base: str
    seed: int
    group: str
    name: str

    @property
    def key(self) -> str:
        """Name of its file."""
        return f"{self.images}--{self.base}--seed{self.seed}--{self.group}--{self.name.replace(' ', '_')}"


@dataclass(frozen=True)
class Embedded:
    """Embeddings of one base.

    Attributes:
        calibration: Search of the calibration classes.
        test: Search of the test classes.
        held_out: Searches among classes that no refiner was trained on.
        held_set: The same embeddings, for validation.
        seen: To train on, as the base embeds what it was trained on.
        unseen: The same classes as bases embed them that never saw them.
    """

    calibration: Search
    test: Search
    held_out: list[Search]
    held_set: EmbeddingSet
    seen: EmbeddingSet
    unseen: EmbeddingSet


def tasks() -> list[Task]:
    """All measurements, those first that matter most."""
    first = next(iter(BASES))

    def over(bases: list[str], seeds: tuple[int, ...], group: str, names: list[str]) -> Iterator[Task]:
        return (
            Task(images, base, seed, group, name)
            for base in bases
            for seed in seeds
            for name in names
            for images in SETS
        )

    return [
        *over([first], SEEDS, "refiner", ["gated"]),
        *over([first], SEEDS, "controls", ["controls"]),
        *over([first], SEEDS, "ladder", _THRICE),
        *over(
            [first], SEEDS, "refiner", ["gated, no level", "gated, untrained level", "gated, seen classes"]
        ),
        *over(list(BASES)[1:], SEEDS, "refiner", ["gated"]),
        *over(list(BASES)[1:], SEEDS, "controls", ["controls"]),
        *over([first], SEEDS[:1], "neighbors", [str(k) for k in SWEPT_NEIGHBORS]),
        *over([first], SEEDS[:1], "steps", [str(t) for t in SWEPT_STEPS]),
        *over([first], SEEDS[:1], "ladder", [name for name in LADDER if name not in _THRICE]),
        *over([first], SEEDS[:1], "steps", [f"paper {t}" for t in SWEPT_STEPS]),
        *over([first], SEEDS[:1], "neighbors", [f"paper {k}" for k in SWEPT_NEIGHBORS]),
    ]


def embed(roots: Path, work: Path, images: str, base: str, seed: int) -> Embedded:
    """Read the embeddings of a base and prepare its searches."""
    parts = load_parts(roots / images, work)
    stored = {
        name: _unit(one) for name, one in load_embeddings(base_run(BASES[base], images, seed), work).items()
    }
    folds = parts.train.class_ids % N_FOLDS
    unseen = np.empty_like(stored["train"])
    for fold, run in enumerate(fold_runs(BASES[base], images, seed)):
        other, left_out = _unit(load_embeddings(run, work)["train"]), folds == fold
        left, _, right = np.linalg.svd(other[~left_out].T @ stored["train"][~left_out])
        unseen[left_out] = (other @ (left @ right))[left_out]
    kept, labels = folds != _HELD_FOLD, parts.train.labels
    held_out = ~kept & np.isin(labels, np.unique(labels[~kept])[:_MOST_HELD_CLASSES])
    held = [(stored["validation"], parts.validation.labels), (unseen[held_out], labels[held_out])]
    return Embedded(
        calibration=search_of(stored["calibration"], parts.calibration),
        test=search_of(stored["test"], parts.test),
        held_out=[search for one in held for search in deal(*one)],
        held_set=EmbeddingSet.join([EmbeddingSet.of(*one) for one in held]),
        seen=EmbeddingSet.of(stored["train"][kept], labels[kept]),
        unseen=EmbeddingSet.of(unseen[kept], labels[kept], folds[kept]),
    )


def measure_one(task: Task, roots: Path, work: Path) -> str:
    """Do one measurement and keep what the queries got."""
    started = time.monotonic()
    embedded = embed(roots, work, task.images, task.base, task.seed)
    if task.group == "controls":
        rows = _measure_controls(task, embedded, work)
    else:
        rows = _measure_refiner(task, embedded, work)
    record = {**task.__dict__, "seconds": round(time.monotonic() - started, 1), "rows": rows}
    path = _records(work) / f"{task.key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(record))
    partial.rename(path)
    return f"{task.key} {record['seconds']} s"


def _measure_controls(task: Task, embedded: Embedded, work: Path) -> list[dict[str, Any]]:
    """The base, and each control as held-out classes choose it: by FNIR, and by MAP@R."""
    rows = [_report(task, embedded, work, "base", BASE, "off", rerank=True)]
    for control, settings in control_grid().items():
        tried = [
            (name, sides, figures([outcome(s, chosen_sides(s, one, sides)) for s, one in both]))
            for name, method in settings.items()
            for both in [[(s, refined(s, method)) for s in embedded.held_out]]
            for sides in SIDES[1:]
        ]
        by_fnir = min(tried, key=lambda one: one[2]["fnir_at_fpir_5"])
        by_map = max(tried, key=lambda one: one[2]["map_at_r"])
        for chosen_by, (name, sides, held) in (("FNIR", by_fnir), ("MAP@R", by_map)):
            row = _report(task, embedded, work, f"{control} by {chosen_by}", settings[name], sides)
            rows.append({**row, "setting": name, "held_out": held})
    return rows


def _measure_refiner(task: Task, embedded: Embedded, work: Path) -> list[dict[str, Any]]:
    recipe, items = _recipe(task, embedded)
    checked = RefinerRecipe.model_validate({**recipe, "seed": task.seed})
    started = time.monotonic()
    result = RefinerTrainer(checked).run(items, embedded.held_set)
    seconds = time.monotonic() - started
    call = refine_with(result.network)
    method = Method(
        lambda rows, neighbors, as_queries: call(rows, neighbors, as_queries=as_queries),
        checked.refiner.n_neighbors,
    )
    verdict = result.verdict
    about = {
        "training_seconds": round(seconds, 1),
        "best_step": result.best.step,
        "verdict": {"sides": verdict.sides, "rerank": verdict.rerank},
        "held_out": verdict.figures,
        "setting": f"k {checked.refiner.n_neighbors}, {checked.refiner.n_steps} steps",
    }
    rerank = task.group == "refiner"
    rows = [
        {**_report(task, embedded, work, sides, method, sides, rerank=rerank and sides == "both"), **about}
        for sides in SIDES[1:]
    ]
    if task.group == "refiner":
        rows += [_report_fused(task, embedded, work, method, share) for share in (0.3, 0.6)]
    return rows


def _recipe(task: Task, embedded: Embedded) -> tuple[dict[str, Any], EmbeddingSet]:
    sets = {"seen": embedded.seen, "unseen": embedded.unseen}
    # A fold of the groceries has eleven classes.
    batches = {"batch_size": 40 if task.images == "grocery" else 128}
    if task.group == "ladder":
        changes, kind = LADDER[task.name]
        return paper(**_joined(changes, batches)), sets[kind]
    if task.name.startswith("paper"):
        number = int(task.name.split()[1])
        key = "n_steps" if task.group == "steps" else "n_neighbors"
        return paper(refiner={key: number}, batches=batches), embedded.seen
    k, temperature, weight = _start(embedded)
    n_candidates = int(
        np.clip(2 * np.median(np.unique(embedded.unseen.labels, return_counts=True)[1]), 16, 64)
    )
    changes = {"search": {"n_candidates": n_candidates}}
    if task.group == "neighbors":
        k = int(task.name)
    if task.group == "steps":
        number = int(task.name)
        changes["refiner"] = {"n_steps": number}
        weight /= number
    if task.name == "gated, no level":
        changes["refiner"] = {"level": False}
    if task.name == "gated, untrained level":
        changes["optimizer"] = {"steps": 1, "warmup_steps": 0, "learning_rate": 1e-12}
    kind = "seen" if task.name == "gated, seen classes" else "unseen"
    return gated(k, temperature, weight, **changes), sets[kind]


def _joined(changes: dict[str, Any], batches: dict[str, Any]) -> dict[str, Any]:
    return {**changes, "batches": {**changes.get("batches", {}), **batches}}


def _start(embedded: Embedded) -> tuple[int, float, float]:
    """Neighbors, temperature and weight of the softmax-QE on both sides with the best MAP@R held out."""

    def worth(method: Method) -> float:
        return figures([outcome(s, refined(s, method)) for s in embedded.held_out])["map_at_r"]

    settings = control_grid()["softmax-QE"]
    best = max(settings, key=lambda name: worth(settings[name]))
    k, temperature, weight = (float(part.split()[-1]) for part in best.split(","))
    return int(k), temperature, weight


def _report(
    task: Task,
    embedded: Embedded,
    work: Path,
    name: str,
    method: Method,
    sides: str,
    *,
    rerank: bool = False,
) -> dict[str, Any]:
    """Figures on the test classes; with `rerank`, those of the re-ranked scores beside them."""
    compared = [
        chosen_sides(search, refined(search, method), sides)
        for search in (embedded.calibration, embedded.test)
    ]
    row = _row(task, embedded, work, name, compared)
    if rerank:
        calibration = reranked_outcome(embedded.calibration, compared[0])
        test = reranked_outcome(embedded.test, compared[1])
        threshold = threshold_at(calibration.absent)
        row["reranked"] = figures([test], threshold)
        _keep(task, work, f"{name} reranked", test, threshold)
    return {**row, "sides": sides}


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


def _row(task: Task, embedded: Embedded, work: Path, name: str, compared: list[Any]) -> dict[str, Any]:
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


def _keep(task: Task, work: Path, name: str, test: Any, threshold: float) -> None:
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


def _unit(embeddings: npt.NDArray[np.float32]) -> Embeddings:
    return embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)


def _has_bases(task: Task, work: Path) -> bool:
    runs = [
        base_run(BASES[task.base], task.images, task.seed),
        *fold_runs(BASES[task.base], task.images, task.seed),
    ]
    return all((work / "runs" / f"{run.key}.npz").exists() for run in runs)


def measure_all(roots: Path, work: Path, jobs: int) -> None:
    """Every measurement that has not been done and whose base embeddings are there."""
    pending = [
        task
        for task in tasks()
        if not (_records(work) / f"{task.key}.json").exists() and _has_bases(task, work)
    ]
    started = time.monotonic()
    call = functools.partial(measure_one, roots=roots, work=work)
    with multiprocessing.get_context("spawn").Pool(jobs, _one_thread, maxtasksperchild=4) as pool:
        for done, line in enumerate(pool.imap_unordered(call, pending), start=1):
            rest = (time.monotonic() - started) / done * (len(pending) - done)
            print(f"{done}/{len(pending)} {line}; {rest / 60:.0f} min left", flush=True)


def _one_thread() -> None:
    torch.set_num_threads(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stage", choices=["train", "measure", "report"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--work", type=Path, default=Path("build/refiner_study"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if arguments.stage == "train":
        train_all(base_runs(), arguments.data, arguments.work, arguments.jobs)
    elif arguments.stage == "measure":
        measure_all(arguments.data, arguments.work, arguments.jobs)
    else:
        from benchmarks.refiner.report import report

        report(arguments.data, arguments.work)


if __name__ == "__main__":
    main()

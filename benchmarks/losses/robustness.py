"""What wrong labels, foreign images and fewer classes cost the contextual loss, in its paper's own setting.

    run      what the frozen part gives, then every run; one that is done is not run again
    report   tables of docs/studies/pretrained-heads.md
Heads learn on frozen features. The contextual loss stands alone (lambda 1, gamma 0), with 8 images a class
and batches of 256, beside losses of pairs that see the same batches. Learning rates are chosen on
held-out training classes without any harm; test classes are only reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common.record import RESULTS, save_result
from benchmarks.losses.features import FeatureParts, Features
from benchmarks.losses.learners import HEAD, asked_of_heads, measure_search, train
from benchmarks.losses.report import cell, records_of, replace_tables, row
from benchmarks.losses.training import Run

__all__ = ["HARMS", "LOSSES", "Harm", "harmed", "harmed_runs", "rate_runs", "table"]

Record = Mapping[str, Any]

SETS = ("grocery", "omniglot")
SEEDS = (0, 1, 2)
RATES = (3e-4, 1e-3, 3e-3)
FOLDS: dict[str, tuple[tuple[int, int], ...]] = {"grocery": ((0, 3), (1, 3)), "omniglot": ((0, 8),)}
_BATCH, _PER_CLASS, _STEPS = 256, 8, 200
LOSSES: dict[str, dict[str, Any]] = {
    "contextual": {"name": "contextual", "arguments": {"k": _PER_CLASS, "lam": 1.0, "gamma": 0.0}},
    "multi_similarity": {"name": "multi_similarity"},
    "contrastive": {"name": "contrastive"},
    # The paper's own: its contrastive term alone, with cosine margins.
    "contrastive, cosines": {
        "name": "contextual",
        "arguments": {"k": _PER_CLASS, "lam": 0.0, "gamma": 0.0},
    },
}


@dataclass(frozen=True)
class Harm:
    """What is wrong with the training images.

    Attributes:
        wrong: Share of the images that get the label of another class.
        foreign: Share of the images in whose place there is one of another image set.
        classes: Share of the classes that are there.
    """

    wrong: float = 0.0
    foreign: float = 0.0
    classes: float = 1.0


HARMS = {
    "none": Harm(),
    **{f"{share:.0%} wrong": Harm(wrong=share) for share in (0.05, 0.1, 0.2)},
    **{f"{share:.0%} foreign": Harm(foreign=share) for share in (0.05, 0.1, 0.2)},
    **{f"{share:.0%} of the classes": Harm(classes=share) for share in (0.9, 0.8, 0.7, 0.6, 0.5)},
}


def rate_runs(images: str, n_classes: int) -> list[Run]:
    """Every loss at every learning rate, without harm and without the classes of each fold."""
    return [
        _run(
            images,
            "rates",
            f"{name}@{rate:g}",
            name,
            fold[0],
            rate,
            n_classes - -(-n_classes // fold[1]),
            fold,
        )
        for name in LOSSES
        for rate in RATES
        for fold in FOLDS[images]
    ]


def harmed_runs(images: str, n_classes: int, records: Sequence[Record]) -> Iterator[tuple[Run, Harm]]:
    """Every loss with every harm, seed by seed, at the rate of the best MAP@R on held-out classes."""
    for seed in SEEDS:
        for harm_name, harm in HARMS.items():
            for name in LOSSES:
                rate = max(RATES, key=lambda rate, name=name: _held_out(records, images, f"{name}@{rate:g}"))
                left = round(harm.classes * n_classes)
                yield _run(images, harm_name, name, name, seed, rate, left, None, harm.wrong), harm


def harmed(training: Features, others: Features, harm: Harm, seed: int) -> Features:
    """Training images of which some classes are gone, and some images are those of another set.

    The same ones for all losses of a seed. Wrong labels are drawn by the run.
    """
    rng = np.random.default_rng(2_000 + seed)
    n_classes = int(training.class_ids.max()) + 1
    kept = rng.permutation(n_classes)[: round(harm.classes * n_classes)]
    own = training.subset(np.isin(training.class_ids, kept))
    is_foreign = rng.random(len(own.labels)) < harm.foreign
    places = rng.integers(len(others.labels), size=len(own.labels))
    # Another set may have fewer views.
    foreign = others.views[places][:, np.arange(own.views.shape[1]) % others.views.shape[1]]
    mask = is_foreign.reshape(-1, *[1] * (own.views.ndim - 1))
    return Features(np.where(mask, foreign, own.views), own.labels, own.roles)


def table(records: Sequence[Record], images: str) -> str:
    """MAP@R without harm, then what each harm takes of it, seed by seed; mean ± standard deviation."""
    plain = {name: _by_seed(records, images, "none", name) for name in LOSSES}
    lines = [row(["", *LOSSES]), row(["---"] * (len(LOSSES) + 1))]
    lines.append(row(["MAP@R without harm", *(cell(np.array(list(one.values()))) for one in plain.values())]))
    for harm in list(HARMS)[1:]:
        lost = {}
        for name in LOSSES:
            found = _by_seed(records, images, harm, name)
            lost[name] = np.array([found[seed] - plain[name][seed] for seed in sorted(found)])
        if all(map(len, lost.values())):
            lines.append(row([harm.replace("%", " %"), *(cell(one, signed=True) for one in lost.values())]))
    return "\n".join(lines) + "\n"


def _run(
    images: str,
    group: str,
    key: str,
    name: str,
    seed: int,
    rate: float,
    n_classes: int,
    fold: tuple[int, int] | None,
    wrong: float = 0.0,
) -> Run:
    # Fewer groceries than a batch of 256 has classes may be left.
    size = min(_BATCH, n_classes * _PER_CLASS)
    sampler = {"kind": "class_balanced", "batch_size": size, "per_class": _PER_CLASS}
    return Run(images, group, key, LOSSES[name], seed, sampler, _STEPS, rate, fold=fold, label_noise=wrong)


def _held_out(records: Sequence[Record], images: str, name: str) -> float:
    found = records_of(records, images=images, group="rates", name=name)
    return float(np.mean([one["held_out"]["map_at_r"] for one in found]))


def _by_seed(records: Sequence[Record], images: str, group: str, name: str) -> dict[int, float]:
    found = records_of(records, images=images, group=group, name=name)
    return {one["seed"]: one["test"]["map_at_r"] for one in found}


def _run_all(parts: Mapping[str, FeatureParts], work: Path) -> list[dict[str, Any]]:
    for images, own in parts.items():
        n_classes = int(own.train.class_ids.max()) + 1
        for run in rate_runs(images, n_classes):
            _do(run, Harm(), own, own, work)
        other = parts[next((one for one in parts if one != images), images)]
        for run, harm in harmed_runs(images, n_classes, _records(work)):
            _do(run, harm, own, other, work)
    return _records(work)


def _do(run: Run, harm: Harm, own: FeatureParts, other: FeatureParts, work: Path) -> None:
    path = work / f"{run.key}.json"
    if path.exists():
        return
    network, record = train(run, HEAD, harmed(own.train, other.train, harm, run.seed))
    if run.fold is None:
        record["test"] = measure_search(network, own.test)
    else:
        held = own.train.class_ids % run.fold[1] == run.fold[0]
        record["held_out"] = measure_search(network, own.train.subset(held))
    work.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**record, "harm": asdict(harm)}), encoding="utf-8")
    print(f"{run.key} {record['seconds']} s", flush=True)


def _records(work: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(work.glob("*.json"))]


def main() -> None:
    """Run what was not run yet and save the records, or write the tables from them."""
    given = asked_of_heads(__doc__, "contextual_robustness")
    if given.stage == "run":
        torch.set_num_threads(1)
        parts = {images: HEAD.load(given.data / images, given.frozen) for images in SETS}
        save_result("contextual_robustness", {"threads": 1, "runs": _run_all(parts, given.work)})
        return
    records = json.loads((RESULTS / "contextual_robustness.json").read_text(encoding="utf-8"))["runs"]
    page = Path(__file__).parents[2] / "docs" / "studies" / "pretrained-heads.md"
    replace_tables(page, {f"robustness-{images}": table(records, images) for images in SETS})


if __name__ == "__main__":
    main()

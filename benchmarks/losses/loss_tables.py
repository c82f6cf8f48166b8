"""Rows of the papers' tables that the study of heads left out, learned on the same frozen features.

    run      every run that is not done yet; choices first, then seed by seed
    report   tables of docs/studies/loss-tables.md
`regularizers`: other losses in TCM's place beside a base loss. `even` and `skewed`: the balanced contrastive
loss with other exponents of the importance weights, on classes of one size and of very different sizes.
`samplers`: batches of two super-labels, with average precision by super-label. All is chosen on held-out
training classes; test classes are only reported.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.common.record import RESULTS, save_result
from benchmarks.losses.features import FeatureParts, Features
from benchmarks.losses.learners import HEAD, asked_of_heads, measure, measure_held_out, measure_search, train
from benchmarks.losses.pretrained_runs import HEADS, lowest_opis
from benchmarks.losses.report import by_seed, cell, records_of, replace_tables, row
from benchmarks.losses.runs import BASE_LOSSES, run_of
from benchmarks.losses.training import Run

__all__ = ["NAME", "PAGE", "SETS", "Row", "resized", "rows", "tables"]

Record = Mapping[str, Any]
Names = npt.NDArray[np.str_]
# A loss configuration, and other fields of a run.
Try = tuple[dict[str, Any], dict[str, Any]]

NAME = "loss_tables"
PAGE = Path(__file__).parents[2] / "docs" / "studies" / "loss-tables.md"
SETS = ("grocery", "omniglot")
SEEDS = (0, 1, 2)
# What the study of heads found on held-out classes: rates, and m+ of TCM's positive half.
_RATES = {"grocery": 3e-4, "omniglot": 3e-3}
_POS_MARGINS = {
    "grocery": {"recall_at_k": 0.73, "multi_similarity": 0.736},
    "omniglot": {"recall_at_k": 0.868, "multi_similarity": 0.78},
}

# The mean similarity's is a square of small numbers.
_WEIGHTS, _HEAVY_WEIGHTS = (0.1, 0.3, 1.0), (1.0, 3.0, 10.0)
_BALANCED = HEADS.trials["grocery"]["balanced_contrastive"].loss["arguments"]
_FORMS: dict[str, dict[str, Any]] = {
    "delta 0": {"importance": 0.0},
    "delta .5": {"importance": 0.5},
    "delta 1": {"importance": 1.0},
    "delta 1, not normalized": {"normalize": False},
    "eta 1, delta 0": {"balance": False, "importance": 0.0},
    "eta 1, delta 1": {"balance": False, "importance": 1.0},
}
_LAMBDAS = (4, 16, 64, 256, 1024, 4096)
_SHAPES = ("even", "skewed")
# Images of the largest class, and of the smallest, which a group of four still has.
_MOST, _LEAST = {"grocery": 48, "omniglot": 20}, 4
_BATCH = {"grocery": 96, "omniglot": 128}
_SAMPLED = ("contextual", "multi_similarity")
_SAMPLERS = ("class_balanced", "hierarchical")

_FULL = {"R@1": "hit_rate_1", "MAP@R": "map_at_r", "AUROC": "auroc", "FNIR at FPIR 5 %": "fnir_at_fpir_5"}
_COARSE = {"R@1": "hit_rate_1", "MAP@R": "map_at_r", "coarse mAP": "coarse_mean_average_precision"}


@dataclass(frozen=True)
class Row:
    """A row of a table, and what is tried for it.

    Attributes:
        images: Image set.
        group: Table that it belongs to.
        name: What distinguishes it there.
        tries: By name, a loss configuration and other fields of a run.
        base: Row that it must cost little, in return for a lower OPIS; None takes the best MAP@R.
    """

    images: str
    group: str
    name: str
    tries: Mapping[str, Try]
    base: str | None = None

    def choice_runs(self) -> list[Run]:
        """Every try, without the training classes of a fold."""
        fold = HEADS.folds[self.images][0]
        return [self._run(one, f"{self.group}, choice", f"{self.name}: {one}", 0, fold) for one in self.tries]

    def final_run(self, seed: int, records: Sequence[Record]) -> Run:
        """The try that held-out classes choose, on all training classes."""
        return self._run(self.chosen(records), self.group, self.name, seed, None)

    def chosen(self, records: Sequence[Record]) -> str:
        """Name of the best try."""
        tried = {one: self.held_out(one, records) for one in self.tries}
        if self.base is None:
            return max(tried, key=lambda one: float(tried[one]["held_out"]["map_at_r"]))
        base = records_of(
            records, images=self.images, group=f"{self.group}, choice", name=f"{self.base}: alone"
        )
        return lowest_opis(base, {one: [record] for one, record in tried.items()})

    def held_out(self, tried: str, records: Sequence[Record]) -> Record:
        """The record of a try."""
        wanted = {"images": self.images, "group": f"{self.group}, choice", "name": f"{self.name}: {tried}"}
        (found,) = records_of(records, **wanted)
        return found

    def final(self, records: Sequence[Record]) -> list[Record]:
        """Records of all seeds."""
        return records_of(records, images=self.images, group=self.group, name=self.name)

    def _run(self, tried: str, group: str, name: str, seed: int, fold: tuple[int, int] | None) -> Run:
        loss, changes = self.tries[tried]
        fields = {"learning_rate": _RATES[self.images], **HEADS.changes, **changes, "fold": fold}
        return run_of(self.images, group, name, loss, seed, **fields)


def rows(images: str) -> Iterator[Row]:
    """All rows of an image set."""
    for loss in _SAMPLED:
        for sampler in _SAMPLERS:
            batches = {"kind": sampler, "batch_size": _BATCH[images], "per_class": 4}
            tries = {
                f"rate {rate:g}": (BASE_LOSSES[loss], {"learning_rate": rate, "sampler": batches})
                for rate in HEADS.rates
            }
            yield Row(images, "samplers", f"{loss}, {sampler}", tries)
    for shape in _SHAPES:
        for name, changes in _FORMS.items():
            lambdas = {f"lambda {one}": one for one in _LAMBDAS}
            tried = lambdas if changes.get("balance", True) else {"alone": _LAMBDAS[0]}
            tries = {one: (_contrastive(changes, weight), {}) for one, weight in tried.items()}
            yield Row(images, shape, name, tries)
        yield Row(images, shape, "multi_similarity", {"alone": (BASE_LOSSES["multi_similarity"], {})})
    for base, margin in _POS_MARGINS[images].items():
        yield Row(images, "regularizers", base, {"alone": (BASE_LOSSES[base], {})})
        for name, loss in _regularizers(margin).items():
            weights = _HEAVY_WEIGHTS if name == "mean_similarity" else _WEIGHTS
            added = {f"{one:g}": [{**loss, "weight": one}] for one in weights}
            tries = {one: ({**BASE_LOSSES[base], "add": add}, {}) for one, add in added.items()}
            yield Row(images, "regularizers", f"{base} + {name}", tries, base)


def resized(training: Features, shape: str, most: int, seed: int) -> Features:
    """Training images of which every class keeps some, about as many in all for both shapes.

    Args:
        training: All of them.
        shape: `skewed` for sizes from `most` down to 4, each smaller than the last by one factor, given to
            the classes at random; `even` for the mean of these sizes.
        most: Images of the largest class; one that has fewer keeps all.
        seed: Decides which class keeps how many, and which.
    """
    rng = np.random.default_rng(3_000 + seed)
    class_ids = training.class_ids
    sizes = np.geomspace(most, _LEAST, class_ids.max() + 1).round().astype(int)
    sizes = rng.permutation(sizes) if shape == "skewed" else np.full_like(sizes, round(sizes.mean()))
    order = rng.permutation(len(class_ids))
    kept = [order[class_ids[order] == one][:size] for one, size in enumerate(sizes)]
    return training.subset(np.sort(np.concatenate(kept)))


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Markdown tables by name; a cell is mean ± standard deviation over the seeds."""
    made = {}
    for images in SETS:
        by_group: dict[str, list[Row]] = {}
        for one in rows(images):
            by_group.setdefault(one.group, []).append(one)
        made[f"regularizers-{images}"] = _regularizer_table(by_group["regularizers"], records)
        made[f"samplers-{images}"] = _sampler_table(by_group["samplers"], records)
        for shape in _SHAPES:
            made[f"{shape}-{images}"] = _shape_table(by_group[shape], records)
    return made


def _contrastive(changes: Mapping[str, Any], weight: float) -> dict[str, Any]:
    arguments = {**_BALANCED, "negatives_per_positive": weight, **changes}
    return {"name": "balanced_contrastive", "arguments": arguments}


def _regularizers(pos_margin: float) -> dict[str, dict[str, Any]]:
    positive = {"pairs": "positive", "pos_margin": pos_margin}
    return {
        "TCM, margins .9 and .5": {"name": "tcm"},
        "TCM, positive pairs": {"name": "tcm", "arguments": positive},
        "contrastive": {"name": "contrastive"},
        "cosine_contrastive": {"name": "cosine_contrastive"},
        "triplet": BASE_LOSSES["triplet"],
        "mean_similarity": {"name": "mean_similarity"},
    }


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join([row(head), row(["---"] * len(head)), *map(row, lines)]) + "\n"


def _cells(found: Sequence[Record], metrics: Mapping[str, str], base: Sequence[Record] = ()) -> list[str]:
    """Metrics, or what they are above those of the same seeds of another row."""
    if not base:
        return [cell(by_seed(found, metric)) for metric in metrics.values()]
    own = [one for one in base if one["seed"] in {other["seed"] for other in found}]
    return [cell(by_seed(found, one) - by_seed(own, one), signed=True) for one in metrics.values()]


def _regularizer_table(own: Sequence[Row], records: Sequence[Record]) -> str:
    """Each base loss, then what a regularizer beside it changed, seed by seed."""
    lines, base = [], own[0]
    for one in own:
        found, alone = one.final(records), base.final(records)
        if one.base is None:
            base = one
            lines.append([one.name, "", cell(by_seed(found, "opis"), 1000), *_cells(found, _FULL)])
            continue
        share = 100 * (by_seed(found, "opis") / by_seed(alone[: len(found)], "opis") - 1)
        opis = f"{share.mean():+.0f} ± {share.std(ddof=1):.0f} %"
        name = one.name.partition(" + ")[2]
        lines.append([f"+ {name}", one.chosen(records), opis, *_cells(found, _FULL, alone)])
    return _table(["loss", "weight", "OPIS x 1000", *_FULL], lines)


def _shape_table(own: Sequence[Row], records: Sequence[Record]) -> str:
    """MAP@R on held-out classes by lambda, then what test classes say of the best of them."""
    metrics = {name: _FULL[name] for name in ("R@1", "MAP@R")}
    lines = []
    for one in own:
        values = [f"{one.held_out(tried, records)['held_out']['map_at_r']:.3f}" for tried in one.tries]
        best = list(one.tries).index(one.chosen(records))
        values[best] = f"**{values[best]}**"
        if len(values) == 1:
            values = [f"{values[0][2:-2]}, no lambda", *[""] * (len(_LAMBDAS) - 1)]
        lines.append([one.name, *values, *_cells(one.final(records), metrics)])
    return _table(["loss", *(f"lambda {one}" for one in _LAMBDAS), *metrics], lines)


def _sampler_table(own: Sequence[Row], records: Sequence[Record]) -> str:
    """Class-balanced batches, then what batches of two super-labels changed, seed by seed."""
    lines = []
    for plain, other in zip(own[::2], own[1::2], strict=True):
        for one, base in ((plain, ()), (other, plain.final(records))):
            loss, _, sampler = one.name.partition(", ")
            rate = one.chosen(records).removeprefix("rate ")
            lines.append([loss, sampler, rate, *_cells(one.final(records), _COARSE, base)])
    return _table(["loss", "batches", "learning rate", *_COARSE], lines)


def _table_of(run: Run) -> str:
    return run.group.removesuffix(", choice")


@dataclass(frozen=True)
class _Study:
    """Image sets, and a folder that gets a record of each run.

    Attributes:
        data: Folder of the image sets.
        parts: Their features.
        work: Gets the records.
    """

    data: Path
    parts: Mapping[str, FeatureParts]
    work: Path

    def run(self) -> None:
        """Whatever was not run yet; the raw result is saved after each seed."""
        own = [one for images in self.parts for one in rows(images)]
        for one in own:
            for run in one.choice_runs():
                self._do(run)
        chosen = self.records
        for seed in SEEDS:
            for one in own:
                self._do(one.final_run(seed, chosen))
            save_result(NAME, {"threads": 1, "runs": self.records})

    @property
    def records(self) -> list[dict[str, Any]]:
        """Of all runs that are done."""
        return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(self.work.glob("*.json"))]

    def _do(self, run: Run) -> None:
        path = self.work / f"{run.key}.json"
        if path.exists():
            return
        training, super_labels = self.parts[run.images].train, None
        if _table_of(run) in _SHAPES:
            training = resized(training, _table_of(run), _MOST[run.images], run.seed)
        if run.sampler["kind"] == "hierarchical":
            super_labels = self._super_labels(run.images, training)
        network, record = train(run, HEAD, training, super_labels)
        record["test" if run.fold is None else "held_out"] = self._measured(network, run)
        self.work.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record), encoding="utf-8")
        print(f"{run.key} {record['seconds']} s", flush=True)

    def _measured(self, network: torch.nn.Module, run: Run) -> dict[str, Any]:
        parts = self.parts[run.images]
        if _table_of(run) == "regularizers":
            return (
                measure(network, parts) if run.fold is None else measure_held_out(network, run, parts.train)
            )
        part = parts.test
        if run.fold is not None:
            part = parts.train.subset(parts.train.class_ids % run.fold[1] == run.fold[0])
        is_normalized = run.loss.get("arguments", {}).get("normalize", True)
        found = measure_search(network, part, "cosine" if is_normalized else "euclidean")
        if _table_of(run) in _SHAPES:
            return found
        coarse = replace(part, labels=self._super_labels(run.images, part))
        return {**found, **{f"coarse_{name}": one for name, one in measure_search(network, coarse).items()}}

    def _super_labels(self, images: str, part: Features) -> Names:
        """(n,) alphabets, or fruit, vegetables and packages: the second folder of the images' paths."""
        with (self.data / images / "protocol.csv").open(newline="", encoding="utf-8") as stream:
            owner = {line["label"]: line["path"].split("/")[1] for line in csv.DictReader(stream)}
        return np.array([owner[one.removeprefix(f"{images}:")] for one in part.labels.tolist()])


def main() -> None:
    """Run what was not run yet and save the records, or write the tables from them."""
    given = asked_of_heads(__doc__, NAME)
    if given.stage == "run":
        torch.set_num_threads(1)
        parts = {images: HEAD.load(given.data / images, given.frozen) for images in SETS}
        _Study(given.data, parts, given.work).run()
        return
    records = json.loads((RESULTS / f"{NAME}.json").read_text(encoding="utf-8"))["runs"]
    replace_tables(PAGE, tables(records))


if __name__ == "__main__":
    main()

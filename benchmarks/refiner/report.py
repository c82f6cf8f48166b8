"""Raw result, tables and plots of the refiner study."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.common.record import RESULTS, save_result
from benchmarks.losses.images import IMAGE_SIZE, load_parts
from benchmarks.losses.report import replace_tables
from benchmarks.losses.runs import SEEDS, SETS
from benchmarks.refiner.bases import BASES
from benchmarks.refiner.methods import CONTROLS
from benchmarks.refiner.recipes import LADDER, SWEPT_NEIGHBORS, SWEPT_STEPS
from benchmarks.refiner.tasks import Task

__all__ = ["cells", "differences", "intervals", "markdown_table", "outcome_of", "report", "tables"]

Row = dict[str, Any]
Outcome = dict[str, npt.NDArray[Any]]
_FIRST = next(iter(BASES))
_COLUMNS = {
    "R@1": ("hit_rate_1", 3),
    "MAP@R": ("map_at_r", 3),
    "AUROC": ("auroc", 3),
    "FNIR, calibrated": ("fnir_at_calibrated_5", 3),
    "its FPIR": ("fpir_at_calibrated_5", 3),
    "FNIR at FPIR 5 %": ("fnir_at_fpir_5", 3),
    "OPIS x 1000": ("opis", 1),
}
_BOOTSTRAPS = 2000


def report(roots: Path, work: Path) -> None:
    """Collect the records, compare, and write the raw result, the tables and the plots."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((work / "refiner" / "records").glob("*.json"))
    ]
    compared = {images: differences(images, work, load_parts(roots / images, work).test) for images in SETS}
    result = {"image_size": IMAGE_SIZE, "threads": 1, "differences": compared, "records": records}
    save_result("refiner_study", result)
    docs = Path(__file__).parents[2] / "docs"
    stored = json.loads((RESULTS / "refiner_study.json").read_text(encoding="utf-8"))
    replace_tables(docs / "RESULTS.md", tables(stored["records"], stored["differences"]))
    _plot_sweeps(stored["records"], docs / "images" / "refiner-sweeps.png")


def differences(images: str, work: Path, part: Any) -> dict[str, dict[str, Any]]:
    """The refiner against base and controls, with intervals by bootstrap over test classes.

    Returns:
        By what the refiner is compared with: the mean differences over all seeds in MAP@R, AUROC, FNIR at the
        calibrated threshold and FNIR at FPIR 5 %, and their 95 % intervals.
    """
    known, absent = (part.labels[part.roles == role] for role in ("query", "absent"))
    ours = [_outcome(work, images, seed, ("refiner", "gated"), "both") for seed in SEEDS]
    found = {}
    names = ["base", *(f"{control} by {by}" for control in CONTROLS for by in ("FNIR", "MAP@R"))]
    for name in names:
        theirs = [_outcome(work, images, seed, ("controls", "controls"), name) for seed in SEEDS]
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
        if pairs:
            found[name] = {"seeds": len(pairs), **intervals(pairs, known, absent)}
    return found


def _outcome(work: Path, images: str, seed: int, task: tuple[str, str], name: str) -> Outcome | None:
    group, of_group = task
    record = {"images": images, "base": _FIRST, "seed": seed, "group": group, "name": of_group}
    return outcome_of(work, record, name)


def outcome_of(work: Path, record: Row, name: str) -> Outcome | None:
    """What the queries of a row got; None where it was not kept.

    Args:
        work: Folder of the study.
        record: Its image set, base, seed, group and name say which measurement.
        name: Name of the row.
    """
    task = Task(*(record[one.name] for one in dataclasses.fields(Task)))
    path = work / "refiner" / "outcomes" / f"{task.key}--{name.replace(' ', '_')}.npz"
    if not path.exists():
        return None
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def intervals(pairs: Sequence[Any], known: Any, absent: Any, draws: int = _BOOTSTRAPS) -> dict[str, Any]:
    """Mean differences of pairs of outcomes by figure, and 95 % intervals by bootstrap over test classes.

    Args:
        pairs: Outcomes of the one and of the other, a pair a seed.
        known: (n,) classes of the queries with a mate.
        absent: (m,) classes of those without.
        draws: Bootstraps.
    """
    rng = np.random.default_rng(0)
    members, strangers = _members(known), _members(absent)
    values = [_compare(pairs, np.arange(len(known)), np.arange(len(absent)))]
    for _ in range(draws):
        rows = np.concatenate([members[i] for i in rng.integers(0, len(members), len(members))])
        others = np.concatenate([strangers[i] for i in rng.integers(0, len(strangers), len(strangers))])
        values.append(_compare(pairs, rows, others))
    measured = np.array(values)
    low, high = np.quantile(measured[1:], [0.025, 0.975], axis=0)
    names = ("map_at_r", "fnir_at_calibrated_5", "fnir_at_fpir_5", "auroc")
    return {
        name: {"difference": float(measured[0, i]), "interval": [float(low[i]), float(high[i])]}
        for i, name in enumerate(names)
    }


def _members(labels: Any) -> list[npt.NDArray[np.int64]]:
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _compare(pairs: Sequence[Any], rows: Any, others: Any) -> list[float]:
    return np.mean(
        [np.subtract(*(_worth(one, rows, others) for one in pair)) for pair in pairs], axis=0
    ).tolist()


def _worth(one: dict[str, npt.NDArray[Any]], rows: Any, others: Any) -> npt.NDArray[np.float64]:
    absent = one["absent"][others]
    turned_down = np.sort(absent)[::-1][int(0.05 * len(absent))]
    ranks = np.searchsorted(np.sort(absent), one["top"][rows], side="left")
    ties = np.searchsorted(np.sort(absent), one["top"][rows], side="right") - ranks
    return np.array(
        [
            one["precision"][rows].mean(),
            1.0 - one["mate_accepted"][rows].mean(),
            (one["mate"][rows] <= turned_down).mean(),
            ((ranks + 0.5 * ties) / len(absent)).mean(),
        ]
    )


def tables(records: Sequence[Row], compared: dict[str, Any]) -> dict[str, str]:
    """Markdown tables by name; a cell is mean ± standard deviation over the seeds."""
    made = {f"refiner-{images}": _main_table(records, images) for images in SETS}
    made["refiner-differences"] = _difference_table(compared)
    made["refiner-ladder"] = _ladder_table(records)
    made["refiner-bases"] = _base_table(records)
    made["refiner-sweeps"] = _sweep_table(records)
    made["refiner-sides"] = _verdict_table(records)
    return made


def _rows(
    records: Sequence[Row], images: str, group: str, task: str, name: str, base: str = _FIRST
) -> list[Row]:
    return [
        row
        for record in records
        if (record["images"], record["base"], record["group"], record["name"]) == (images, base, group, task)
        for row in record["rows"]
        if row["name"] == name
    ]


def _main_table(records: Sequence[Row], images: str) -> str:
    def of(group: str, task: str, name: str, figures: str = "test") -> list[Row]:
        return [row[figures] for row in _rows(records, images, group, task, name) if figures in row]

    lines: list[tuple[str, list[Row]]] = [
        ("base", of("controls", "controls", "base")),
        ("base, re-ranked", of("controls", "controls", "base", "reranked")),
    ]
    lines += [
        (f"{control}, chosen by {by}", of("controls", "controls", f"{control} by {by}"))
        for control in CONTROLS
        for by in ("FNIR", "MAP@R")
    ]
    lines += [
        ("attention without neighbors", of("ladder", "attention without neighbors", "both")),
        ("refiner as the paper", of("ladder", "as the paper", "both")),
        *(
            (f"**gated refiner**, {sides}", of("refiner", "gated", sides))
            for sides in ("gallery", "query", "both")
        ),
        ("**gated refiner**, both, re-ranked", of("refiner", "gated", "both", "reranked")),
        *(
            (f"gated refiner, fused with {share} initial", of("refiner", "gated", f"fused {share}"))
            for share in (0.3, 0.6)
        ),
    ]
    return markdown_table(["", *_COLUMNS], [[name, *cells(rows)] for name, rows in lines if rows])


def _difference_table(compared: dict[str, Any]) -> str:
    shown = {
        "MAP@R": "map_at_r",
        "AUROC": "auroc",
        "FNIR at FPIR 5 %": "fnir_at_fpir_5",
        "FNIR, calibrated": "fnir_at_calibrated_5",
    }
    lines = [
        [images, name, *(_difference(one[key]) for key in shown.values())]
        for images, of_set in compared.items()
        for name, one in of_set.items()
    ]
    return markdown_table(["", "gated refiner, both sides, minus", *shown], lines)


def _difference(one: dict[str, Any]) -> str:
    low, high = one["interval"]
    text = f"{one['difference']:+.3f} [{low:+.3f}, {high:+.3f}]"
    return f"**{text}**" if low > 0 or high < 0 else text


def _ladder_table(records: Sequence[Row]) -> str:
    lines = []
    for images in SETS:
        named = [("base", _rows(records, images, "controls", "controls", "base"))]
        named += [(name, _rows(records, images, "ladder", name, "both")) for name in LADDER]
        for task in ("gated, no level", "gated, untrained level", "gated, seen classes", "gated"):
            named.append((task, _rows(records, images, "refiner", task, "both")))
        lines += [[images, name, *cells([row["test"] for row in rows])] for name, rows in named if rows]
    return markdown_table(["", "both sides refined", *_COLUMNS], lines)


def _base_table(records: Sequence[Row]) -> str:
    lines = []
    for images in SETS:
        for base in BASES:
            named = [
                ("base", _rows(records, images, "controls", "controls", "base", base)),
                (
                    "softmax-QE by FNIR",
                    _rows(records, images, "controls", "controls", "softmax-QE by FNIR", base),
                ),
                (
                    "softmax-QE by MAP@R",
                    _rows(records, images, "controls", "controls", "softmax-QE by MAP@R", base),
                ),
                ("gated refiner, both", _rows(records, images, "refiner", "gated", "both", base)),
            ]
            lines += [
                [images, base, name, str(len(rows)), *cells([row["test"] for row in rows])]
                for name, rows in named
                if rows
            ]
    return markdown_table(["", "base", "", "seeds", *_COLUMNS], lines)


def _sweep_table(records: Sequence[Row]) -> str:
    lines = []
    for images in SETS:
        for group, values in (("neighbors", SWEPT_NEIGHBORS), ("steps", SWEPT_STEPS)):
            for prefix, label in (("", "gated"), ("paper ", "as the paper")):
                for value in values:
                    rows = _rows(records, images, group, f"{prefix}{value}", "both")
                    if rows:
                        measured = cells([row["test"] for row in rows])
                        lines.append([images, label, f"{group} {value}", *measured])
    return markdown_table(["", "form", "", *_COLUMNS], lines)


def _verdict_table(records: Sequence[Row]) -> str:
    lines = []
    for images in SETS:
        for record in records:
            if (record["images"], record["group"], record["name"]) != (images, "refiner", "gated"):
                continue
            verdict = record["rows"][0]["verdict"]
            by_name = {row["name"]: row for row in record["rows"]}
            test = {
                name: f"{by_name[name]['test']['fnir_at_fpir_5']:.3f}"
                for name in ("gallery", "query", "both")
            }
            held = record["rows"][0]["held_out"]
            lines.append(
                [
                    images,
                    record["base"],
                    str(record["seed"]),
                    verdict["sides"],
                    verdict["rerank"],
                    " / ".join(f"{held[name]['fnir']:.3f}" for name in ("off", "gallery", "query", "both")),
                    " / ".join(test.values()),
                ]
            )
    head = [
        "",
        "base",
        "seed",
        "sides",
        "re-rank",
        "held out: off / gallery / query / both",
        "test: gallery / query / both",
    ]
    return markdown_table(head, lines)


def cells(rows: Sequence[Row], columns: Mapping[str, tuple[str, int]] = _COLUMNS) -> list[str]:
    """Mean ± standard deviation over the rows, by column.

    Args:
        rows: Figures.
        columns: Figure and digits of each column.
    """
    found = []
    for key, digits in columns.values():
        values = [row[key] * (1000 if key == "opis" else 1) for row in rows if key in row]
        if not values:
            found.append("")
            continue
        spread = f" ± {np.std(values):.{digits}f}" if len(values) > 1 else ""
        found.append(f"{np.mean(values):.{digits}f}{spread}")
    return found


def markdown_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table with these cells."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _plot_sweeps(records: Sequence[Row], path: Path) -> None:
    figure = Figure(figsize=(9.0, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2, sharex="col")
    for column, (group, values) in enumerate((("neighbors", SWEPT_NEIGHBORS), ("steps", SWEPT_STEPS))):
        for line, (key, label) in enumerate((("map_at_r", "MAP@R"), ("fnir_at_fpir_5", "FNIR at FPIR 5 %"))):
            axis = axes[line][column]
            for number, images in enumerate(SETS):
                for prefix, style in (("", "-"), ("paper ", ":")):
                    found = _series(
                        records, images, group, prefix, values, lambda row, key=key: row["test"][key]
                    )
                    name = f"{images}, {'as the paper' if prefix else 'gated'}"
                    axis.plot(*found, style, color=f"C{number}", marker="o", markersize=3, label=name)
            axis.set_xscale("log", base=2)
            axis.set_xticks(values, [str(one) for one in values])
            axis.grid(alpha=0.3)
            axis.set_ylabel(label)
            if line:
                axis.set_xlabel("neighbors k" if group == "neighbors" else "steps T")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, dpi=110)


def _series(
    records: Sequence[Row],
    images: str,
    group: str,
    prefix: str,
    values: Sequence[int],
    read: Callable[[Row], float],
) -> tuple[list[int], list[float]]:
    found = [(value, _rows(records, images, group, f"{prefix}{value}", "both")) for value in values]
    kept = [(value, float(np.mean([read(row) for row in rows]))) for value, rows in found if rows]
    return [value for value, _ in kept], [worth for _, worth in kept]

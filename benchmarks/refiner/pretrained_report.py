"""Raw results and tables of the refiner studies from pretrained features, as they are and tuned."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.record import RESULTS, save_result
from benchmarks.losses.report import replace_tables
from benchmarks.losses.runs import SETS
from benchmarks.refiner.embedded import Wanted
from benchmarks.refiner.pretrained import features_of
from benchmarks.refiner.report import cells, intervals, markdown_table, outcome_of
from benchmarks.refiner.searches import SIDES
from benchmarks.refiner.tasks import PRETRAINED, TUNED, Study

__all__ = ["compare_all", "control_of", "pretrained_tables", "report_pretrained", "report_tuned"]

Record = dict[str, Any]
Row = dict[str, Any]
_PAGE = Path(__file__).parents[2] / "docs" / "studies" / "pretrained-refiners.md"
_SWEEPS = ("neighbors", "steps")
_SIDES = "both"
_BOOTSTRAPS = 1000
_MEAN = "mean of neighbors by MAP@R"
# The held-out figures that choose controls.
_CHOSEN_BY = ("MAP@R", "FNIR")
_COLUMNS = {
    "R@1": ("hit_rate_1", 3),
    "MAP@R": ("map_at_r", 3),
    "AUROC": ("auroc", 3),
    "FNIR at FPIR 5 %": ("fnir_at_fpir_5", 3),
    "FNIR, calibrated": ("fnir_at_calibrated_5", 3),
    "its FPIR": ("fpir_at_calibrated_5", 3),
}


def report_pretrained(roots: Path, work: Path) -> None:
    """Collect the records, compare, and write the raw result and the tables."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((work / "refiner" / "records").glob("*.json"))
    ]
    compared = compare_all(records, roots, work)
    save_result("refiner_pretrained", {"threads": 1, "differences": compared, "records": records})
    stored = json.loads((RESULTS / "refiner_pretrained.json").read_text(encoding="utf-8"))
    replace_tables(_PAGE, pretrained_tables(stored["records"], stored["differences"]))


def report_tuned(roots: Path, work: Path) -> None:
    """The same of the paper's refiner on tuned embeddings."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((work / "refiner" / "records").glob("*.json"))
    ]
    compared = compare_all(records, roots, work, TUNED)
    save_result(TUNED.result, {"threads": 1, "differences": compared, "records": records})
    made = {f"tuned-{images}": _set_table(records, images, TUNED) for images in _images(records)}
    made["tuned-differences"] = _difference_table(compared)
    replace_tables(_PAGE.with_name("tuned-refiners.md"), made)


def control_of(record: Record, chosen_by: str) -> Row:
    """The control, its setting and its sides that held-out classes choose of all three.

    Args:
        record: Record of the controls.
        chosen_by: `MAP@R` or `FNIR`.
    """
    rows = [row for row in record["rows"] if row["name"].endswith(f"by {chosen_by}")]
    if chosen_by == "FNIR":
        return min(rows, key=lambda row: row["held_out"]["fnir_at_fpir_5"])
    return max(rows, key=lambda row: row["held_out"]["map_at_r"])


def compare_all(
    records: Sequence[Record], roots: Path, work: Path, study: Study = PRETRAINED
) -> list[dict[str, Any]]:
    """Each refiner, both sides refined, against the chosen controls and against the base.

    Returns:
        One a set, base and refiner: `against`, by what it is compared with (`base`, and the control that
        `MAP@R` or `FNIR` chose on held-out classes), differences and their intervals by figure.
    """
    found = []
    for images in _images(records):
        part = features_of(Wanted(images, 0, roots, work)).test
        known, absent = (part.labels[part.roles == role] for role in ("query", "absent"))
        for base, group, name, own in _refiners(records, images, study):
            controls = {one["seed"]: one for one in _records(records, images, base, "controls", "controls")}
            pairs: dict[str, list[Any]] = {name: [] for name in ("base", *_CHOSEN_BY)}
            for record in own:
                # A base that learns nothing has its controls once, for all seeds of a refiner.
                beside = controls.get(record["seed"], controls[0])
                rows = {"base": "base", **{by: control_of(beside, by)["name"] for by in _CHOSEN_BY}}
                ours = outcome_of(work, record, _SIDES)
                for against, row in rows.items():
                    pairs[against].append((ours, outcome_of(work, beside, row)))
            found.append(
                {
                    "images": images,
                    "base": base,
                    "group": group,
                    "name": name,
                    "seeds": len(own),
                    "against": {
                        against: intervals(one, known, absent, _BOOTSTRAPS) for against, one in pairs.items()
                    },
                }
            )
    return found


def pretrained_tables(records: Sequence[Record], compared: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Markdown tables by name; a cell is mean ± standard deviation over the seeds."""
    made = {f"refiners-{images}": _set_table(records, images) for images in SETS}
    made["refiners-mark"] = _mark_table(records, compared)
    if any(one["group"] in _SWEEPS for one in records):
        made["refiners-sweeps"] = _sweep_table(records)
    made["refiners-controls"] = _control_table(records)
    made["refiners-sides"] = _side_table(records)
    return made


def _records(records: Sequence[Record], images: str, base: str, group: str, name: str) -> list[Record]:
    wanted = (images, base, group, name)
    return [one for one in records if (one["images"], one["base"], one["group"], one["name"]) == wanted]


def _refiners(
    records: Sequence[Record], images: str, study: Study = PRETRAINED
) -> Iterator[tuple[str, str, str, list[Record]]]:
    """Base, group, name and records of each refiner that is no sweep, in the order of the tasks."""
    named = dict.fromkeys((task.base, task.group, task.name) for task in study.tasks)
    for base in study.bases:
        for own_base, group, name in named:
            own = _records(records, images, base, group, name)
            if own and own_base == base and group not in ("controls", *_SWEEPS):
                yield base, group, name, own


def _named(group: str, name: str) -> str:
    return f"as the paper, {name}" if group in ("paper", "long") else name


def _images(records: Sequence[Record]) -> list[str]:
    """Image sets that were measured, in their order."""
    measured = {one["images"] for one in records}
    return [images for images in SETS if images in measured]


def _difference_table(compared: Sequence[dict[str, Any]]) -> str:
    lines = []
    for one in compared:
        by_map, base = one["against"]["MAP@R"], one["against"]["base"]
        cells = [base["map_at_r"], base["fnir_at_fpir_5"], by_map["map_at_r"], by_map["fnir_at_fpir_5"]]
        lines.append(
            [one["images"], one["base"], _named(one["group"], one["name"]), *map(_difference, cells)]
        )
    head = ["set", "base", "refiner, both sides", "MAP@R - base", "FNIR - base"]
    return markdown_table([*head, "MAP@R - control by MAP@R", "FNIR - control by MAP@R"], lines)


def _set_table(records: Sequence[Record], images: str, study: Study = PRETRAINED) -> str:
    lines = []
    for base in study.bases:
        controls = _records(records, images, base, "controls", "controls")
        if not controls:
            continue
        lines.append([base, "base", *cells([one["rows"][0]["test"] for one in controls], _COLUMNS)])
        # The paper's control: averaging without attention.
        means = [row for one in controls for row in one["rows"] if row["name"] == _MEAN]
        lines += [[base, _MEAN, *cells([row["test"] for row in means], _COLUMNS)]] if means else []
        for by in _CHOSEN_BY:
            rows = [control_of(one, by) for one in controls]
            lines.append([base, f"best control by {by}", *cells([row["test"] for row in rows], _COLUMNS)])
        for own_base, group, name, own in _refiners(records, images, study):
            if own_base == base:
                rows = [row for one in own for row in one["rows"] if row["name"] == _SIDES]
                lines.append([base, _named(group, name), *cells([row["test"] for row in rows], _COLUMNS)])
    return markdown_table(["base", "", *_COLUMNS], lines)


def _control_table(records: Sequence[Record]) -> str:
    lines = []
    for images in SETS:
        for base in PRETRAINED.bases:
            for one in _records(records, images, base, "controls", "controls")[:1]:
                for by in _CHOSEN_BY:
                    row = control_of(one, by)
                    kind = row["name"].removesuffix(f" by {by}")
                    lines.append([images, base, by, kind, row["setting"], row["sides"]])
    return markdown_table(["set", "base", "chosen by", "control", "setting", "sides"], lines)


def _side_table(records: Sequence[Record]) -> str:
    """The gated refiner by what is refined."""
    lines = []
    for images in SETS:
        for base in PRETRAINED.bases:
            own = _records(records, images, base, "refiner", "gated")
            for sides in SIDES[1:] if own else ():
                rows = [row["test"] for one in own for row in one["rows"] if row["name"] == sides]
                lines.append([images, base, sides, *cells(rows, _COLUMNS)])
    return markdown_table(["set", "base", "gated, refined", *_COLUMNS], lines)


def _mark_table(records: Sequence[Record], compared: Sequence[dict[str, Any]]) -> str:
    """Differences with their intervals, and whether the mark holds."""
    lines = []
    for one in compared:
        own = _records(records, one["images"], one["base"], one["group"], one["name"])
        held = [record["rows"][0]["held_out"][_SIDES] for record in own]
        by_map, by_fnir, base = (one["against"][name] for name in (*_CHOSEN_BY, "base"))
        lines.append(
            [
                one["images"],
                one["base"],
                _named(one["group"], one["name"]),
                str(one["seeds"]),
                f"{np.mean([h['map_at_r'] for h in held]):.3f} / {np.mean([h['fnir'] for h in held]):.3f}",
                _difference(by_map["map_at_r"]),
                _difference(by_fnir["fnir_at_fpir_5"]),
                _difference(by_fnir["map_at_r"]),
                _difference(by_map["fnir_at_fpir_5"]),
                _difference(base["fnir_at_fpir_5"]),
                _difference(base["auroc"]),
                _mark(by_map, by_fnir, base),
            ]
        )
    head = ["set", "base", "refiner, both sides", "seeds", "held out: MAP@R / FNIR"]
    strict = ["MAP@R - control by MAP@R", "FNIR - control by FNIR"]
    other = ["MAP@R - control by FNIR", "FNIR - control by MAP@R"]
    return markdown_table([*head, *strict, *other, "FNIR - base", "AUROC - base", "mark"], lines)


def _mark(by_map: dict[str, Any], by_fnir: dict[str, Any], base: dict[str, Any]) -> str:
    """Which controls are beaten in MAP@R and in FNIR with certainty, with an AUROC not below the base's."""

    def beats(ranking: dict[str, Any], missing: dict[str, Any]) -> bool:
        return ranking["map_at_r"]["interval"][0] > 0 > missing["fnir_at_fpir_5"]["interval"][1]

    if base["auroc"]["difference"] < 0:
        return "no"
    if beats(by_map, by_fnir):
        return "**holds**"
    beaten = [name for name, one in zip(_CHOSEN_BY, (by_map, by_fnir), strict=True) if beats(one, one)]
    return f"against the control by {' and by '.join(beaten)}" if beaten else "no"


def _difference(one: dict[str, Any]) -> str:
    low, high = one["interval"]
    text = f"{one['difference']:+.3f} [{low:+.3f}, {high:+.3f}]"
    return f"**{text}**" if low > 0 or high < 0 else text


def _sweep_table(records: Sequence[Record]) -> str:
    lines = []
    for task in PRETRAINED.tasks:
        if task.group in _SWEEPS:
            for one in _records(records, task.images, task.base, task.group, task.name):
                (row,) = (row for row in one["rows"] if row["name"] == _SIDES)
                form, _, number = task.name.rpartition(" ")
                what = f"{task.group} {number}"
                lines.append([form or "gated", what, *cells([row["test"]], _COLUMNS)])
    return markdown_table(["form", "", *_COLUMNS], lines)

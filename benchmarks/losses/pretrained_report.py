"""Tables of the studies on a pretrained network, from their raw results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.losses.pretrained_runs import Plan
from benchmarks.losses.report import by_seed, cell, records_of, row

__all__ = ["plan_tables"]

Record = dict[str, Any]
_COLUMNS = {
    "R@1": ("hit_rate_1", 1),
    "MAP@R": ("map_at_r", 1),
    "OPIS x 1000": ("opis", 1000),
    "its floor": ("opis_floor", 1000),
    "10 %-OPIS": ("epsilon_opis", 1),
    "AUROC": ("auroc", 1),
    "FNIR at FPIR 5 %": ("fnir_at_fpir_5", 1),
}
_CHANGES = ("hit_rate_1", "map_at_r", "auroc", "fnir_at_fpir_5")


def plan_tables(plan: Plan, records: Sequence[Record]) -> dict[str, str]:
    """Markdown tables by name; a cell is mean ± standard deviation over the seeds."""
    sets = [images for images in plan.sets if records_of(records, images=images, group=plan.group)]
    made = {f"{plan.group}-{images}": _loss_table(plan, records, images) for images in sets}
    made |= {f"{plan.group}-fit-{images}": _fit_table(plan, records, images) for images in sets}
    made[f"{plan.group}-tcm"] = _tcm_table(plan, records, sets)
    for images in sets:
        if plan.noise and records_of(records, images=images, group=_noise_group(plan.noise[0])):
            made[f"{plan.group}-noise-{images}"] = _noise_table(plan, records, images)
    return made


def _cell(values: np.ndarray, factor: float = 1, *, signed: bool = False) -> str:
    """As `cell`, without a deviation where there is one value."""
    return cell(values, factor, signed=signed).replace(" ± nan", "")


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join([row(head), row(["---"] * len(head)), *map(row, lines)]) + "\n"


def _loss_table(plan: Plan, records: Sequence[Record], images: str) -> str:
    lines = []
    trained = (f"{one}{suffix}" for one in plan.trials[images] for suffix in ("", "+tcm"))
    for name in (plan.untrained, *trained):
        found = records_of(records, group=plan.group, images=images, name=name)
        if not found:
            continue
        cells = [_cell(by_seed(found, metric), factor) for metric, factor in _COLUMNS.values()]
        lines.append([name.replace("+tcm", " + TCM"), *cells])
    return _table(["loss", *_COLUMNS], lines)


def _tcm_table(plan: Plan, records: Sequence[Record], sets: Sequence[str]) -> str:
    """What TCM changed, seed by seed: the same weights and batches without and with it."""
    lines = []
    for name in dict.fromkeys(name for images in sets for name in plan.trials[images]):
        for images in (one for one in sets if name in plan.trials[one]):
            plain, added = _twins(plan, records, images, name)
            if not added:
                continue
            changes = {
                metric: by_seed(added, metric) - by_seed(plain, metric) for metric in (*_CHANGES, "opis")
            }
            share = 100 * changes["opis"] / by_seed(plain, "opis").mean()
            holds = share.mean() <= -20 and changes["hit_rate_1"].mean() >= -0.01
            spread = f" ± {share.std(ddof=1):.0f}" if len(share) > 1 else ""
            opis = f"{share.mean():+.0f}{spread}"
            lines.append(
                [
                    name,
                    images,
                    _margins(added[0]),
                    f"**{opis}**" if holds else opis,
                    f"{100 * (_above_floor(added) / _above_floor(plain) - 1):+.0f}",
                    *(_cell(changes[metric], signed=True) for metric in _CHANGES),
                ]
            )
    opis_head = ["OPIS (%)", "above its floor (%)"]
    rest = ["R@1", "MAP@R", "AUROC", "FNIR at FPIR 5 %"]
    return _table(["loss", "set", "m+, m-; lam+, lam-", *opis_head, *rest], lines)


def _twins(
    plan: Plan, records: Sequence[Record], images: str, name: str
) -> tuple[list[Record], list[Record]]:
    """The runs of a loss without and with TCM, of the seeds that have both."""
    plain = records_of(records, group=plan.group, images=images, name=name)
    added = records_of(records, group=plan.group, images=images, name=f"{name}+tcm")
    seeds = {one["seed"] for one in plain} & {one["seed"] for one in added}
    return [one for one in plain if one["seed"] in seeds], [one for one in added if one["seed"] in seeds]


def _above_floor(records: Sequence[Record]) -> float:
    return float((by_seed(records, "opis") - by_seed(records, "opis_floor")).mean())


def _margins(record: Record) -> str:
    chosen = record["loss"]["add"][0]["arguments"]
    positive, negative = (
        f"{chosen[f'{kind}_margin']:.2f}" if chosen[f"{kind}_weight"] else "none" for kind in ("pos", "neg")
    )
    return f"{positive}, {negative}; {chosen['pos_weight']:g}, {chosen['neg_weight']:g}"


def _fit_table(plan: Plan, records: Sequence[Record], images: str) -> str:
    """OPIS and MAP@R on held-out training classes, without TCM and with each choice of it that was tried."""
    rates = plan.choose_rates(images, records)
    choices = dict.fromkeys(run.name.rpartition("+")[2] for run in plan.tcm_runs(images, records))
    lines = []
    for name, rate in rates.items():
        base = _held_out(records, images, "rates", f"{name}@{rate:g}")
        tried = [_held_out(records, images, "tcm", f"{name}+{choice}") for choice in choices]
        lines.append([name, f"{rate:g}", base, *tried])
    return _table(["loss", "learning rate", "without", *choices], lines)


def _held_out(records: Sequence[Record], images: str, group: str, name: str) -> str:
    found = [one["held_out"] for one in records_of(records, group=group, images=images, name=name)]
    opis, precision = (np.mean([one[metric] for one in found]) for metric in ("opis", "map_at_r"))
    return f"{1000 * opis:.1f} / {precision:.3f}"


def _noise_table(plan: Plan, records: Sequence[Record], images: str) -> str:
    """MAP@R over the share of wrong labels, and what the larger share takes."""
    lines = []
    for name in (f"{one}{suffix}" for one in plan.noise_names for suffix in ("", "+tcm")):
        values = [
            by_seed(records_of(records, group=group, images=images, name=name), "map_at_r")
            for group in (plan.group, *map(_noise_group, plan.noise))
        ]
        lost = _cell(values[-1] - values[0][: len(values[-1])], signed=True)
        lines.append([name.replace("+tcm", " + TCM"), *map(_cell, values), lost])
    return _table(["loss", "0 %", "10 %", "20 %", "20 % against 0 %"], lines)


def _noise_group(share: float) -> str:
    return f"noise-{share:.0%}"

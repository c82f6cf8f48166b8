"""A calibration in words: the threshold, its rates with intervals, and what they let expect."""

from __future__ import annotations

from collections.abc import Iterator

from vicinal.service.calibrator.evidence import Evidence, RateEvidence
from vicinal.service.calibrator.record import CalibrationRecord
from vicinal.service.cli.console import console

__all__ = ["print_calibration"]

_SPACES = {"initial": "the embeddings", "refined": "the refined embeddings", "final": "final scores"}
_RATE_NAMES = {"hit_rate_1": "R@1"}
_TRIALS = {
    "far": "negative pairs",
    "frr": "positive pairs",
    "fpir": "queries without a mate",
    "fnir": "queries with a mate",
    "precision": "returned matches",
}


def print_calibration(record: CalibrationRecord) -> None:
    """Say what a calibration found."""
    console.print(
        f"Threshold [bold]{record.threshold:.4f}[/] for {record.target} on {record.n_items:,} items "
        f"({record.pipeline.key}), calibration {record.id}",
        soft_wrap=True,
    )
    for line in _lines(record):
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _lines(record: CalibrationRecord) -> Iterator[str]:
    if record.evidence:
        yield from _rates(record.evidence)
        if record.rates and record.rates.hit_rate_1 is not None:
            yield f"hit rate R@1 {_percent(record.rates.hit_rate_1)}, whatever the threshold"
        yield from _classes(record.evidence)
        yield from _grouping(record.evidence)
        yield from _expectations(record, record.evidence)
    for warning in record.warnings:
        yield f"note: {warning}"


def _rates(evidence: Evidence) -> Iterator[str]:
    for name, trials in _TRIALS.items():
        if name in evidence.rates:
            yield _rate(_shown(name), evidence.rates[name], trials)
        else:
            yield f"{_shown(name)} not measured: there were no {trials}"
    for kind, found in (("near", evidence.near_fpir), ("far", evidence.far_fpir)):
        if found:
            yield _rate(f"FPIR of {kind} labels", found, f"{kind} queries without a mate")


def _rate(name: str, found: RateEvidence, trials: str) -> str:
    without = " to ".join(_percent(rate) for rate in found.leave_one_label_out)
    return (
        f"{name} {_percent(found.rate)}, 95 % interval {_percent(found.low)} to {_percent(found.high)}, of "
        f"{found.n_trials:,} {trials} of {found.n_labels:,} labels (worth {found.effective_labels:.3g} of "
        f"equal size; {without} without one of them)"
    )


def _expectations(record: CalibrationRecord, evidence: Evidence) -> Iterator[str]:
    if record.target and evidence.predictions:
        sets = ", ".join(
            f"{one.n_labels} labels {_percent(one.low)} to {_percent(one.high)}"
            for one in evidence.predictions
        )
        yield f"further labels will show, 95 times in 100, {_shown(record.target.rate)} of: {sets}"
    if evidence.larger_galleries:
        sizes = ", ".join(
            f"{one.ratio} times the labels {_percent(one.fitted)} to {_percent(one.independent)}"
            for one in evidence.larger_galleries
        )
        yield f"in a larger gallery FPIR will be: {sizes} (by its growth so far; if all labels tempt alike)"
    if evidence.margins:
        yield (
            f"margins for training with TCM: m+ {evidence.margins.positive:.3f}, "
            f"m- {evidence.margins.negative:.3f}"
        )


def _classes(evidence: Evidence) -> Iterator[str]:
    for space, found in evidence.opis.items():
        floor = ""
        if found.floor is not None:
            floor = f", where equal classes would show {found.floor:.2g} and {found.epsilon_floor:.2g}"
        yield (
            f"OPIS of {_SPACES[space]} {found.opis:.2g}, 10 %-OPIS {found.epsilon_opis:.2g}{floor} "
            f"({found.n_classes:,} labels)"
        )
    if evidence.worst_classes:
        named = ", ".join(f"{one.label} {one.mean_utility:.2f}" for one in evidence.worst_classes)
        yield f"labels with the lowest utility over the calibration range: {named}"


def _grouping(evidence: Evidence) -> Iterator[str]:
    found = evidence.grouping
    if found is None:
        return
    yield f"photos of one {found.column} kept apart: {found.n_groups:,} groups"
    names = [name for name in ("far", "frr", "fpir", "fnir", "hit_rate_1") if name in found.promised]
    promises = ", ".join(
        f"{_RATE_NAMES.get(name, name.upper())} {_percent(found.promised[name])} promised, "
        f"{_percent(found.shown[name])} shown"
        for name in names
        if name in found.shown
    )
    threshold = "" if found.ungrouped_threshold is None else f" (threshold {found.ungrouped_threshold:.4f})"
    yield f"optimism without groups{threshold}: {promises}"


def _shown(rate: str) -> str:
    return rate if rate == "precision" else rate.upper()


def _percent(rate: float) -> str:
    return f"{100 * rate:.3g} %"

"""Verdict: one plain sentence on what a calibration promises, on how little, and what it says nothing of."""

from __future__ import annotations

from collections.abc import Iterator

from vicinal.service.calibrator.evidence import RateEvidence
from vicinal.service.calibrator.record import CalibrationRecord
from vicinal.service.reports.charts import percent

__all__ = ["describe_verdict"]

_EVENTS = {
    "far": "of the pairs of different labels are accepted",
    "frr": "of the pairs of one label are rejected",
    "fpir": "of the queries without a mate get a match",
    "fnir": "of the queries with a mate get none of their mates",
    "precision": "of the returned matches are mates",
}


def describe_verdict(record: CalibrationRecord) -> str:
    """The verdict on a calibration.

    Args:
        record: The calibration.
    """
    threshold = f"From a score of {record.threshold:.4f} on an item counts as a match"
    if record.source == "by_hand" or record.target is None:
        return f"{threshold}; this was set by hand, so that no error rate is known for it."
    *limits, last = _limits(record)
    beyond = f"{', '.join(limits)} or {last}"
    return f"{threshold}, asked for as {record.target}: {_achieved(record)}; this says nothing of {beyond}."


def _achieved(record: CalibrationRecord) -> str:
    rates = {} if record.evidence is None else record.evidence.rates
    target = record.target
    names = () if target is None else (target.rate,) if target.rate != "utility" else ("far", "frr")
    found = [f"{_measured(rates[name])} {_EVENTS[name]}" for name in names if name in rates]
    if not found:
        return "its record holds no intervals, and what it achieves is not known"
    first = rates[next(name for name in names if name in rates)]
    return f"{' and '.join(found)}, measured on {_labels(first)}"


def _measured(found: RateEvidence) -> str:
    return f"{percent(found.rate)} (95 % interval {percent(found.low)} to {percent(found.high)})"


def _labels(found: RateEvidence) -> str:
    labels = f"{found.n_labels:,} label" + ("s" if found.n_labels != 1 else "")
    if found.effective_labels < 0.9 * found.n_labels:
        labels += f" (worth {found.effective_labels:.3g} of equal size)"
    return labels


def _limits(record: CalibrationRecord) -> Iterator[str]:
    if record.source == "leave_one_out":
        yield "photos unlike the gallery's own"
    else:
        yield "queries unlike those it was made with"
    yield f"galleries of more than {record.n_items:,} items"
    if _has_one_kind(record):
        yield "other kinds of labels"
    yield "other pipelines"


def _has_one_kind(record: CalibrationRecord) -> bool:
    evidence = record.evidence
    return evidence is None or evidence.near_fpir is None or evidence.far_fpir is None

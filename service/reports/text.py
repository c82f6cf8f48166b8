"""A calibration in figures, line by line; what they mean in plain words says `reports.promise`."""

from __future__ import annotations

from collections.abc import Iterator

from vicinal.models.bundle import Noun
from vicinal.service.measuring.evidence import Evidence
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.words import (
    SOURCES,
    SPACES,
    labels_behind,
    measured_rates,
    number_of,
    percent,
    rate_name,
    rate_with_interval,
    span,
    visit_words,
)


def calibration_lines(record: CalibrationRecord, noun: Noun = "photo") -> Iterator[str]:
    """All figures of a calibration, and what they say nothing of."""
    asked = f"for {record.target}" if record.target else SOURCES["by_hand"]
    yield (
        f"Threshold {record.threshold:.4f} {asked} on {number_of(record.n_items, 'item')} "
        f"({record.pipeline.key}), calibration {record.id}"
    )
    if record.evidence:
        yield from _rates(record.evidence)
        if record.rates and record.rates.hit_rate_1 is not None:
            yield f"  hit rate R@1 {percent(record.rates.hit_rate_1)}, whatever the threshold"
        yield from _classes(record.evidence)
        if record.evidence.visits:
            yield f"  {visit_words(record.evidence.visits, noun)}"
        yield from _expectations(record, record.evidence, noun)
        yield f"  this says nothing of {', '.join(_limits(record, noun))}"
    for warning in record.warnings:
        yield f"  note: {warning}"


def _limits(record: CalibrationRecord, noun: Noun) -> Iterator[str]:
    if record.source == "leave_one_out":
        yield f"{noun}s unlike the gallery's own"
    else:
        yield "queries unlike those it was made with"
    yield f"galleries of more than {number_of(record.n_items, 'item')}"
    evidence = record.evidence
    if evidence is None or evidence.near_fpir is None or evidence.far_fpir is None:
        yield "other kinds of labels"
    yield "other pipelines"


def _rates(evidence: Evidence) -> Iterator[str]:
    for name, words, found in measured_rates(evidence):
        if found is None:
            yield f"  {name} not measured: there were no {words.trials}"
        else:
            yield (
                f"  {name} {rate_with_interval(found)}: of {found.n_trials:,} {words.trials}, "
                f"{labels_behind(found)}; {span(*found.leave_one_label_out)} with one label left out"
            )


def _classes(evidence: Evidence) -> Iterator[str]:
    for space, found in evidence.opis.items():
        floor = ""
        if found.floor is not None:
            floor = f"; equal classes would show {found.floor:.2g} and {found.epsilon_floor:.2g}"
        yield (
            f"  OPIS of {SPACES[space]} {found.opis:.2g} and 10 %-OPIS {found.epsilon_opis:.2g}, over "
            f"{number_of(found.n_classes, 'label')}{floor}"
        )
    if evidence.worst_classes:
        named = ", ".join(f"{one.label} {one.mean_utility:.2f}" for one in evidence.worst_classes)
        yield f"  labels with the lowest utility over the calibration range: {named}"


def _forms(evidence: Evidence) -> Iterator[str]:
    for one in evidence.group_forms:
        error = "cannot hold the target" if one.error is None else percent(one.error)
        ends = (
            "" if one.low is None or one.high is None else f" [{100 * one.low:+.1f}, {100 * one.high:+.1f}]"
        )
        yield f"{one.group.form} {error}{ends}"


def _expectations(record: CalibrationRecord, evidence: Evidence, noun: Noun) -> Iterator[str]:
    for name, wider in evidence.another_day.items():
        apart = "" if wider.apart is None else f"; {percent(wider.apart)} without what could be of one visit"
        yield f"  {rate_name(name)} for {noun}s of another day {span(wider.low, wider.high)}{apart}"
    if record.target and evidence.predictions:
        sets = ", ".join(
            f"{number_of(one.n_labels, 'label')} {span(one.low, one.high)}" for one in evidence.predictions
        )
        yield f"  further labels will show, 95 times in 100, {rate_name(record.target.rate)} of: {sets}"
    if evidence.group_forms:
        yield f"  forms of the group score: {', '.join(_forms(evidence))}"
    if evidence.larger_galleries:
        sizes = ", ".join(
            f"{one.ratio} times the labels {span(one.fitted, one.independent)}"
            for one in evidence.larger_galleries
        )
        yield f"  FPIR in a larger gallery, from its growth so far to equally tempting labels: {sizes}"
    if evidence.margins:
        positive, negative = evidence.margins.positive, evidence.margins.negative
        yield f"  margins for training with TCM: m+ {positive:.3f}, m- {negative:.3f}"

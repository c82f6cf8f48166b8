"""Promise: what a calibration lets expect in plain words, what would improve it, and all its figures."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from vicinal.models.bundle import Noun
from vicinal.service.measuring.evidence import (
    AnswerEvidence,
    Evidence,
    RateEvidence,
    SearchEvidence,
)
from vicinal.service.measuring.records.promise import PromiseCheck
from vicinal.service.measuring.records.record import CalibrationRecord, promised_range
from vicinal.service.words import (
    SOURCES,
    SPACES,
    counted,
    labels_behind,
    measured_rates,
    metric_words,
    number_of,
    percent,
    rate_name,
    rate_with_interval,
    shortened,
    span,
    visit_words,
)

# Gains below this are not worth a line.
_LEAST_GAIN = 0.02
# Labels that the first lines name.
_MOST_NAMED = 3
_CHOSEN = {
    "bundle": "between them the model's own was taken",
    "mean": "the one was taken at which the target holds in the mean of both",
    "strict": "the one was taken at which the target holds for both",
}
# Four times the labels halve an interval.
_MORE = 4


class Step(NamedTuple):
    """Step that would improve a calibration, by the share of the images that it is about."""

    gain: float
    text: str
    command: str


def tried_promise(
    record: CalibrationRecord, check: PromiseCheck | None, noun: Noun = "photo", broken: str | None = None
) -> tuple[str, ...]:
    """Sentences on what to expect of a threshold that was tried; first what shows it `broken`."""
    if broken is not None:
        return (broken, "What was promised:", *promise(record, noun))
    if check is None:
        return promise(record, noun)
    return (*promise(record, noun), f"Tried {check.checked_at:%Y-%m-%d}: {check.sentence}")


def promise(record: CalibrationRecord, noun: Noun = "photo") -> tuple[str, ...]:
    """Sentences on what a calibration promises, the first on matches that are right, things that are found
    and strangers that get a match.
    """
    evidence = record.evidence
    if record.source == "by_hand" or evidence is None:
        by = "was set by hand" if record.source == "by_hand" else "comes from a record without intervals"
        return (f"The threshold {record.threshold:.4f} {by}: nobody knows how often it is wrong.",)
    if evidence.answers is not None:
        return tuple(_answered(evidence.answers, noun))
    return tuple(_sentences(record, evidence, noun))


def _sentences(record: CalibrationRecord, evidence: Evidence, noun: Noun) -> Iterator[str]:
    found, wrong = evidence.rates.get("fnir"), evidence.rates.get("fpir")
    is_range = any(one.apart is not None for one in evidence.another_day.values())
    whole = "; ".join(_clauses(record, evidence, noun, is_range=is_range))
    yield f"{whole[0].upper()}{whole[1:]}."
    if evidence.unsure is not None:
        known, strangers = counted(evidence.unsure.known), counted(evidence.unsure.strangers)
        yield (
            f"Answers from a score of {evidence.unsure.lowest:.4f} up to the threshold are unsure: some "
            f"{known} of 100 {noun}s of things you have, and {strangers} of 100 of things you lack."
        )
    yield from _differences(evidence)
    yield _basis(record, found, wrong, noun)
    if is_range:
        yield (
            f"Nothing tells which {noun}s were taken together. {noun.capitalize()}s of one visit find each "
            f"other more easily than {noun}s of another day will: the truth for those lies between the two "
            "numbers."
        )
    chosen = evidence.chosen
    if chosen is not None and chosen.strict != chosen.mean:
        yield (
            f"{noun.capitalize()}s of one visit and of different visits ask for different thresholds: "
            f"{_CHOSEN[chosen.by]}."
        )
    if evidence.metric is not None and evidence.metric.lda is not None:
        yield metric_words(evidence.metric, record.target, noun) or ""


def _clauses(record: CalibrationRecord, evidence: Evidence, noun: Noun, *, is_range: bool) -> Iterator[str]:
    """Clauses on the matches that are right, the things that are found and the strangers that get a match."""
    right, missed, answered = (promised_range(record, name) for name in ("precision", "fnir", "fpir"))
    if right is None:
        yield "how many matches will be right is not known, as none was shown"
    else:
        expected = _expected("be right", right.rate, (right.low, right.high), is_range)
        yield f"of 100 matches that are shown, {expected}, {_mix(evidence.absent)}"
    if missed is None:
        yield f"how many {noun}s of things you have will be found is not known, as none was tried"
    else:
        ends = 1 - missed.high, 1 - missed.low
        yield f"of 100 {noun}s of things you have, {_expected('be found', 1 - missed.rate, ends, is_range)}"
    if answered is None:
        yield f"how many {noun}s of things you lack will get a wrong match is not known, as none was tried"
    else:
        expected = _expected("get a wrong match", answered.rate, (answered.low, answered.high), is_range)
        yield f"of 100 {noun}s of things you lack, {expected}"


def _mix(absent: float | None) -> str:
    if absent is None:
        return "at the mix of searches that was tried"
    if absent == 0.0:
        return "if all searches are for things you have"
    return f"if {counted(absent)} of 100 searches are for things you lack"


def _differences(evidence: Evidence) -> Iterator[str]:
    """Sentence on the labels that the one threshold serves worse, as far as that can be told from chance."""
    found = evidence.opis.get("final")
    if found is None or found.is_real is None:
        return
    worst = [shortened(one.label) for one in evidence.worst_classes] if found.is_real else []
    if not worst:
        yield "No label is served noticeably worse than others by this one threshold."
        return
    named = ", ".join(f"'{label}'" for label in worst[:_MOST_NAMED])
    more = f" and {len(worst) - _MOST_NAMED} more" if len(worst) > _MOST_NAMED else ""
    yield f"This one threshold serves some labels noticeably worse than others: {named}{more}."


def _answered(found: AnswerEvidence, noun: Noun) -> Iterator[str]:
    right, slips = found.precision, found.errors
    ends = f"{counted(right.low)} to {counted(right.high)}"
    yield (
        f"Of 100 matches that are shown, about {counted(right.rate)} will be right ({ends}); how many "
        f"{noun}s of things you have will be found, and how many of things you lack will get a wrong match, "
        "is not known: that takes labels."
    )
    again = f", {found.n_again} of them asked about twice" if found.n_again else ""
    yield (
        f"This rests on answers about {found.n_asked} pairs of {noun}s{again}; some {counted(slips.rate)} of "
        f"100 answers seem to be slips ({counted(slips.low)} to {counted(slips.high)}). It holds for {noun}s "
        "like the gallery's own."
    )


def _expected(event: str, rate: float, ends: tuple[float, float], is_range: bool) -> str:
    low, high = map(counted, ends)
    return (
        f"between {low} and {high} will {event}"
        if is_range
        else f"about {counted(rate)} will {event} ({low} to {high})"
    )


def _basis(
    record: CalibrationRecord, found: RateEvidence | None, wrong: RateEvidence | None, noun: Noun
) -> str:
    if record.source == "leave_one_out":
        n = max((one.n_trials for one in (found, wrong) if one), default=0)
        tried = f"{number_of(n, noun)} of {number_of(record.n_labels, 'label')}"
        return f"This rests on {tried}, each searched for as if it were not in the gallery."
    searches = None if record.evidence is None else record.evidence.searches
    if searches is not None:
        return f"{_answers_behind(searches, found, wrong)}{_moved(record, searches)}"
    parts = [
        f"{one.n_trials:,} of {number_of(one.n_labels, 'label')} that {whose}"
        for one, whose in ((found, "the gallery has"), (wrong, "it lacks"))
        if one is not None
    ]
    return f"This rests on {noun}s from outside: {' and '.join(parts)}."


def _answers_behind(searches: SearchEvidence, found: RateEvidence | None, wrong: RateEvidence | None) -> str:
    parts = [
        f"{number_of(one.n_trials, thing)} {whose}"
        for one, thing, whose in (
            (found, "thing", f"that the gallery has ({number_of(found.n_labels, 'label')})" if found else ""),
            (wrong, "thing", "that it lacks"),
        )
        if one is not None
    ]
    again = ""
    if searches.n_again:
        again = (
            f" Of {number_of(searches.n_again, 'search', 'searches')} that were asked about twice, "
            f"{searches.n_disagreed:,} got different answers."
        )
    unsure = f", and {searches.n_unsure:,} could not be told" if searches.n_unsure else ""
    return (
        f"This rests on answers to {searches.n_answered:,} of {searches.n_sampled:,} kept searches: "
        f"{' and '.join(parts)}{unsure}. Each stands for the searches that it was drawn from.{again}"
    )


def _moved(record: CalibrationRecord, searches: SearchEvidence) -> str:
    """Sentence on why the threshold is another than the one before, or is not."""
    before, one, target = searches.before, searches.at_before, record.target
    if before is None or one is None or target is None:
        return ""
    moved = f"moved from {before:.4f} to {record.threshold:.4f}, where the answers put it"
    happens = "that it lacks get a match" if target.rate == "fpir" else "that it has are missed"
    can = "cannot" if one.low <= target.value <= one.high else "can"
    return (
        f" The threshold {'stays' if before == record.threshold else moved}: at {before:.4f} "
        f"{counted(one.rate)} of 100 things {happens} ({counted(one.low)} to {counted(one.high)}), which "
        f"{can} be told from the {counted(target.value)} asked for."
    )


def advice(record: CalibrationRecord, gallery: str, *, noun: Noun = "photo") -> tuple[Step, ...]:
    """Steps that would improve a calibration, the largest gain that was measured first."""
    if record.evidence is None or record.source == "by_hand":
        return ()
    if record.evidence.answers is not None:
        text = f"Give the {noun}s labels, in one folder a label or a manifest: they tell how many are found."
        return (Step(1.0, text, f"vicinal index FOLDER -g {gallery} && vicinal calibrate -g {gallery}"),)
    found = _steps(record, record.evidence, gallery, noun)
    steps = [one for one in found if one.gain >= _LEAST_GAIN]
    return tuple(sorted(steps, key=lambda one: -one.gain))


def _steps(record: CalibrationRecord, evidence: Evidence, gallery: str, noun: Noun) -> Iterator[Step]:
    missed, another = evidence.rates.get("fnir"), evidence.another_day.get("fnir")
    where, source = ("in one folder a label", "FOLDER") if noun == "photo" else ("with their labels", "FILE")
    if missed is not None and another is not None and another.apart is not None:
        yield Step(
            another.high - missed.high,
            f"Search for {noun}s of another day, {where}: they tell where between the two numbers the truth "
            "lies.",
            f"vicinal calibrate -g {gallery}{_grouped(record)} --queries {source}",
        )
    if missed is not None:
        length = missed.high - missed.low
        searches = evidence.searches is not None
        what, unit = ("Answer", "answers") if searches else ("Label", "labels")
        n = missed.n_trials if searches else missed.n_labels
        yield Step(
            length / 2,
            f"{what} more: with {_MORE * n:,} {unit} in place of {n:,}, what is "
            f"unknown for want of {unit} falls from {counted(length)} of 100 to about {counted(length / 2)}.",
            f"vicinal review -g {gallery}" if searches else "",
        )
    hits = None if record.rates is None else record.rates.hit_rate_1
    if missed is not None and hits is not None:
        found, right = 1 - missed.rate, counted(hits)
        yield Step(
            hits - found,
            f"For {right} of 100 the nearest {noun} is the right one, and {counted(found)} pass the "
            "threshold: other ways to compare (refined, re-ranked) may tell strangers apart better.",
            f"vicinal compare -g {gallery}{_grouped(record)}",
        )


def _grouped(record: CalibrationRecord) -> str:
    group = record.pipeline.group
    return "" if group is None else f" --group-by {shlex.quote(group.by)}"


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
        yield from _expectations(record.evidence, noun)
        yield f"  this says nothing of {', '.join(_limits(record, noun))}"
    for warning in record.warnings:
        yield f"  note: {warning}"


def _limits(record: CalibrationRecord, noun: Noun) -> Iterator[str]:
    if record.source == "leave_one_out":
        yield f"{noun}s unlike the gallery's own"
    elif record.source == "searches":
        yield "searches unlike those that were kept"
    else:
        yield "queries unlike those it was made with"
    yield f"galleries of more than {number_of(record.n_items, 'item')}"
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
        yield f"  labels that are served noticeably worse, by utility over the calibration range: {named}"


def _expectations(evidence: Evidence, noun: Noun) -> Iterator[str]:
    chosen = evidence.chosen
    if chosen is not None:
        own = "" if chosen.starting is None else f", the model's own is {chosen.starting:.4f}"
        yield (
            f"  both readings hold the target at {chosen.strict:.4f}, "
            f"their mean does at {chosen.mean:.4f}{own}"
        )
    for name, wider in evidence.another_day.items():
        apart = "" if wider.apart is None else f"; {percent(wider.apart)} without what could be of one visit"
        yield f"  {rate_name(name)} for {noun}s of another day {span(wider.low, wider.high)}{apart}"

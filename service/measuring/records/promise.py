"""Promise check: new labelled queries at a calibration's threshold, beside what the calibration promised.
FNIR and FPIR are tried where the queries allow it, and share the error rate (`calibration.check_promise`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from vicinal.calibration import (
    CalibrationError,
    LabelCounts,
    RateInterval,
    check_promise,
    label_counts,
)
from vicinal.calibration.advice import advise
from vicinal.calibration.frozen import Frozen
from vicinal.calibration.rates.promise import PromiseVerdict, check_promise_by_interval
from vicinal.models.bundle import Noun
from vicinal.models.progress import OnProgress, no_progress
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.records.record import CalibrationRecord, promised_range
from vicinal.service.measuring.searches import DrawnSearches

TriedRate = Literal["fnir", "fpir"]
_RATES: tuple[TriedRate, ...] = ("fnir", "fpir")
# A kept promise is called broken at most so often, both rates together.
ERROR_RATE = 0.05

_BEGINNINGS = {
    "held": "What was promised holds so far",
    "unclear": "Whether what was promised holds cannot be told yet",
    "broken": "What was promised does NOT hold",
}
_THINGS = {"fnir": "things you have", "fpir": "things you do not have"}


class CheckedRate(Frozen):
    """Promised rate, and what the queries showed."""

    n_trials: int
    n_events: int = Field(description="Queries that missed all their mates, or that got any match.")
    n_labels: int = Field(description="Labels behind the queries: what the rate rests on.")
    rate: float
    low: float = Field(description="Lower end of what these labels leave possible, at `confidence`.")
    high: float
    confidence: float
    promised_rate: float
    promised_low: float = Field(description="Lower end of the promised range.")
    promised_high: float
    p_not_worse: float = Field(description="Probability that the rate is not above the promised one.")
    verdict: PromiseVerdict = Field(
        description="`broken`; `held`; `better`: held, and less than promised; `unclear`: too few labels."
    )
    more_labels: int | None = Field(
        description="About how many labels more would tell, of searches how many answers; null where it can "
        "be told, or hardly ever."
    )


class PromiseCheck(Frozen):
    """Check whether what a calibration promised holds for new queries."""

    source: Literal["queries", "searches"] = Field(
        "queries", description="Labelled `queries`, or answers to `searches` that were kept."
    )

    calibration: str
    target: str | None
    pipeline: str
    threshold: float
    version: int = Field(description="The built version that was searched.")
    checked_at: datetime
    verdict: Literal["held", "unclear", "broken"] = Field(
        description="`broken` where one rate is; `held` where all that were tried are."
    )
    sentence: str = Field(description="The verdict in words, with the counts that it rests on.")
    error_rate: float = Field(description="How often a kept promise is called broken at most.")
    rates: dict[TriedRate, CheckedRate]
    n_queries: int
    n_labels: int
    warnings: tuple[str, ...] = ()


def check_calibration(
    calibrator: Calibrator,
    record: CalibrationRecord,
    queries: LabelledQueries | DrawnSearches,
    *,
    warnings: tuple[str, ...] = (),
    noun: Noun = "photo",
    error_rate: float = ERROR_RATE,
    on_progress: OnProgress = no_progress,
) -> PromiseCheck:
    """Search for new queries with a record's threshold, and compare with what it promised; a kept promise is
    called broken as often as the error rate says, at most.
    """
    require_promise(record)
    if isinstance(queries, DrawnSearches):
        measured = calibrator.score_searches(queries, record.threshold, on_progress)
        labels, warnings = queries.labelled.labels, (*queries.warnings, *warnings)
    else:
        asked = calibrator.apart(queries)
        measured, labels = calibrator.score(asked, on_progress), asked.labels
        warnings = (*asked.warnings, *warnings)
    searches = measured.searches
    tried: dict[TriedRate, tuple[LabelCounts, RateInterval, RateInterval | None]] = {}
    for rate in _RATES:
        counts, promised = label_counts(measured.trials, rate, record.threshold), promised_range(record, rate)
        # Where every query has a mate, the trials without one are searches with the label taken out: a
        # calibration has to make do with these, but nobody has sent such a photo.
        is_made_up = rate == "fpir" and measured.mates.has_mate.all()
        if counts is not None and promised is not None and not is_made_up:
            own = None if searches is None else searches.interval(rate, record.threshold)
            tried[rate] = counts, promised, own
    if not tried:
        raise CalibrationError(
            f"calibration {record.id} promised nothing that these {len(labels):,} queries could "
            f"show: add {noun}s of things that are in the gallery"
        )
    rates = {rate: _checked(*one, error_rate / len(tried)) for rate, one in tried.items()}
    verdicts = [one.verdict for one in rates.values()]
    verdict: Literal["held", "unclear", "broken"] = "unclear" if "unclear" in verdicts else "held"
    if "broken" in verdicts:
        verdict = "broken"
    source: Literal["queries", "searches"] = "queries" if searches is None else "searches"
    return PromiseCheck(
        source=source,
        calibration=record.id,
        target=str(record.target) if record.target else None,
        pipeline=record.pipeline.key,
        threshold=record.threshold,
        version=calibrator.snapshot.manifest.version,
        checked_at=datetime.now(UTC),
        verdict=verdict,
        sentence=_sentence(verdict, rates, noun, source),
        error_rate=error_rate,
        rates=rates,
        n_queries=len(labels),
        n_labels=len(set(labels)),
        warnings=warnings,
    )


def require_promise(record: CalibrationRecord) -> None:
    """Refuse a record that promised nothing."""
    if record.evidence is None:
        how = "was set by hand" if record.source == "by_hand" else "was kept by an early release"
        raise CalibrationError(
            f"the threshold of calibration {record.id} {how}, and nothing was promised with it: ",
            advise("make one that promises rates by {calibrate()}"),
        )
    if record.evidence.answers is not None:
        raise CalibrationError(
            f"calibration {record.id} rests on answers about pairs, and promised nothing of photos of things "
            "that you have or lack: ",
            advise("give the gallery labels, and make one that promises that by {calibrate()}"),
        )


def _checked(
    counts: LabelCounts, promised: RateInterval, own: RateInterval | None, error_rate: float
) -> CheckedRate:
    if own is None:
        found = check_promise(counts, promised, error_rate=error_rate)
    else:
        found = check_promise_by_interval(own, promised, n=counts.n_trials, error_rate=error_rate)
    return CheckedRate(
        n_trials=counts.n_trials,
        n_events=counts.n_events,
        n_labels=counts.n_labels,
        rate=found.measured.rate,
        low=found.measured.low,
        high=found.measured.high,
        confidence=found.measured.confidence,
        promised_rate=promised.rate,
        promised_low=promised.low,
        promised_high=promised.high,
        p_not_worse=found.p_not_worse,
        verdict=found.verdict,
        more_labels=found.more_labels,
    )


def _sentence(verdict: str, rates: dict[TriedRate, CheckedRate], noun: Noun, source: str = "queries") -> str:
    clause, unit = (_clause, "labels") if source == "queries" else (_answered_clause, "answers")
    clauses = "; ".join(
        f"{clause(rate, one, noun)}{_remark(one, rates, unit)}" for rate, one in rates.items()
    )
    missing = [f"No {noun} of {_THINGS[rate]} was tried." for rate in _RATES if rate not in rates]
    return " ".join([f"{_BEGINNINGS[verdict]}: {clauses}.", *missing])


def _clause(rate: TriedRate, found: CheckedRate, noun: Noun) -> str:
    low, high, n = found.promised_low, found.promised_high, found.n_events
    if rate == "fnir":
        low, high, n = 1.0 - high, 1.0 - low, found.n_trials - found.n_events
        happened = f"{n:,} {'was' if n == 1 else 'were'} found"
    else:
        happened = f"{n:,} got an answer"
    photos = f"{found.n_trials:,} {noun}" + ("s" if found.n_trials != 1 else "")
    labels = f"{found.n_labels:,} label" + ("s" if found.n_labels != 1 else "")
    promised = f"{_of_hundred(low)} to {_of_hundred(high)} of 100"
    return f"of {photos} of {_THINGS[rate]} ({labels}), {happened}; promised were {promised}"


def _answered_clause(rate: TriedRate, found: CheckedRate, noun: Noun) -> str:
    low, high, share = found.promised_low, found.promised_high, found.rate
    if rate == "fnir":
        low, high, share = 1.0 - high, 1.0 - low, 1.0 - share
    happened = "were found" if rate == "fnir" else "got an answer"
    answers = f"{found.n_trials:,} answer" + ("s" if found.n_trials != 1 else "")
    return (
        f"of 100 searches with {noun}s of {_THINGS[rate]}, about {_of_hundred(share)} {happened} "
        f"({answers}); promised were {_of_hundred(low)} to {_of_hundred(high)} of 100"
    )


def _remark(found: CheckedRate, rates: dict[TriedRate, CheckedRate], unit: str) -> str:
    if found.verdict == "better":
        return ", so that this is better than promised"
    if found.verdict == "unclear":
        more = "many more" if found.more_labels is None else f"about {_roughly(found.more_labels)} more"
        seems = "which is worse but may be chance: " if found.rate > found.promised_high else ""
        return f" ({seems}it takes {more} {unit} to tell)"
    if found.verdict == "broken" and any(one.verdict != "broken" for one in rates.values()):
        return ", and this is worse"
    return ""


def _of_hundred(share: float) -> str:
    return f"{100.0 * share:.0f}" if share >= 0.095 or share == 0.0 else f"{100.0 * share:.1g}"


def _roughly(n: int) -> str:
    """A count of which the first two digits matter at most."""
    size = 1 if n <= 20 else 5 if n <= 100 else 50 if n <= 1000 else 500
    return f"{-(-n // size) * size:,}"

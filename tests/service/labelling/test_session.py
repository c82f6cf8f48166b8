"""Labelling session: answers on the disk, and the calibration that they end as."""

from __future__ import annotations

import pytest

from vicinal.calibration import Target
from vicinal.service.labelling.session import LabelSession
from vicinal.service.measuring.matcher import Matcher

TARGET = Target.parse("precision=90%")


def start(matcher: Matcher) -> LabelSession:
    return LabelSession.start(matcher, TARGET)


def answer(session: LabelSession, matcher: Matcher, n: int, *, lies: bool = False) -> None:
    """Answer n questions by the labels that the catalog's folders have."""
    labels = matcher.snapshot.labels
    for _ in range(n):
        first, second = session.questions()[0].items
        session.answer(len(session.answers()), bool(labels[first] == labels[second]) != lies)


@pytest.mark.slow
def test_a_session_ends_as_a_calibration_in_force(matcher: Matcher) -> None:
    session = start(matcher)
    answer(session, matcher, 60)
    estimate = session.estimate()
    assert estimate is not None
    record = session.finish(matcher)
    assert (record.id, record.source, record.threshold) == (session.head.id, "answers", estimate.threshold)
    assert matcher.calibrations.active(matcher.pipeline) == record
    assert LabelSession.current(matcher) is None
    evidence = record.evidence
    assert evidence is not None
    assert evidence.answers is not None
    assert (evidence.answers.n_asked + evidence.answers.n_again, evidence.answers.n_skipped) == (60, 0)
    (found,) = matcher.search(item_ids=[matcher.snapshot.item_table["id"][0].as_py()])
    assert (found.threshold.state, found.threshold.value) == ("current", estimate.threshold)


@pytest.mark.slow
def test_the_stated_precision_is_that_of_the_labels(matcher: Matcher) -> None:
    session = start(matcher)
    answer(session, matcher, 120)
    estimate, labels, pairs = session.estimate(), matcher.snapshot.labels, session.pairs
    assert estimate is not None
    accepted = pairs.scores >= estimate.threshold
    true = float((labels[pairs.queries] == labels[pairs.items])[accepted].mean())
    assert estimate.precision.low <= true <= estimate.precision.high
    assert estimate.precision.rate >= 0.9

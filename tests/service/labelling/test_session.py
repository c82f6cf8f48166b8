"""Labelling session: answers on the disk, and the calibration that they end as."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from vicinal.calibration import CalibrationError, Target, UnreachableTargetError
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source, source_name
from vicinal.models.embedder import Embedder
from vicinal.service.errors import RequestError
from vicinal.service.labelling.questions import BLOCK, FEWEST
from vicinal.service.labelling.session import LabelSession
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.promise import require_promise
from vicinal.service.reports.promise import advice, promise

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


@pytest.mark.slow
def test_a_session_goes_on_where_it_was(matcher: Matcher) -> None:
    session = start(matcher)
    answer(session, matcher, 10)
    before = session.state(matcher)
    again = LabelSession.resume(matcher, TARGET)
    assert again.state(matcher) == before
    assert (before.n_answers, len(before.questions)) == (10, 2)


def test_a_new_version_ends_a_session(
    matcher: Matcher, catalog: Path, tmp_path: Path, embedder: Embedder
) -> None:
    start(matcher)
    smaller = tmp_path / "smaller"
    shutil.copytree(catalog, smaller)
    shutil.rmtree(smaller / "plain")
    name = source_name(catalog)
    index_items(matcher.gallery, read_source(smaller), embedder, source=name, delete=True, workers=1)
    assert LabelSession.current(Matcher(matcher.gallery, embedder)) is None
    assert LabelSession.current(matcher) is not None


def test_the_last_answer_is_taken_back(matcher: Matcher) -> None:
    session = start(matcher)
    answer(session, matcher, BLOCK)
    before = session.questions()
    answer(session, matcher, 1)
    session.undo()
    assert session.questions() == before
    for _ in range(BLOCK):
        session.undo()
    with pytest.raises(RequestError, match="no answer to take back"):
        session.undo()


@pytest.mark.slow
def test_too_few_answers_are_refused(matcher: Matcher) -> None:
    session = start(matcher)
    answer(session, matcher, FEWEST - 1)
    session.answer(FEWEST - 1, None)
    assert session.estimate() is None
    assert session.state(matcher).sentence == "1 more answer, and there is a first estimate."
    with pytest.raises(CalibrationError, match=f"{FEWEST - 1} answers say too little"):
        session.finish(matcher)


@pytest.mark.slow
def test_answers_that_no_threshold_holds_are_refused(matcher: Matcher) -> None:
    session = start(matcher)
    for number in range(FEWEST):
        session.answer(number, False)
    assert session.estimate() is None
    assert "no threshold holds" in session.state(matcher).sentence
    with pytest.raises(UnreachableTargetError, match="even of the most alike photos too many are different"):
        session.finish(matcher)
    assert matcher.calibrations.active(matcher.pipeline) is None


@pytest.mark.slow
def test_what_is_promised_speaks_of_matches_and_of_slips(matcher: Matcher) -> None:
    session = start(matcher)
    answer(session, matcher, 60)
    record = session.finish(matcher)
    first, second = promise(record)
    assert first.startswith("Of 100 matches that are shown, about ")
    assert "is not known: that takes labels" in first
    assert "pairs of photos" in second
    assert "slips" in second
    (step,) = advice(record, "shoes")
    assert step.command.startswith("vicinal index")
    with pytest.raises(
        CalibrationError, match="promised nothing of photos of things that you have or lack: give"
    ):
        require_promise(record)

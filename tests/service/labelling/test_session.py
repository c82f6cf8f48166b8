"""Labelling session: answers on the disk, and the calibration that they end as."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from vicinal.calibration import Target
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.jobs.set_aside import bring_back, set_aside
from vicinal.indexer.reader import GalleryReader
from vicinal.models.embedder import Embedder
from vicinal.service.labelling.session import LabelSession
from vicinal.service.measuring.matcher import Matcher

TARGET = Target.parse("precision=90%")


def start(matcher: Matcher) -> LabelSession:
    return LabelSession.start(matcher, TARGET)


def answer(session: LabelSession, matcher: Matcher, n: int, *, lies: bool = False) -> None:
    """Answer n questions by the labels that the catalog's folders have."""
    for _ in range(n):
        labels = {one["label"] for one in matcher.view.items(session.questions()[0].items)}
        session.answer(len(session.answers()), (len(labels) == 1) != lies)


def shown(session: LabelSession) -> set[str]:
    """Items of the questions that are asked next."""
    return {one for question in session.state().questions for one in question.items}


ASIDE = partial(set_aside, reason="blurred", by="eve")


@pytest.mark.parametrize("leave", [remove_items, ASIDE])
@pytest.mark.parametrize("is_before", [True, False])
def test_what_is_gone_is_asked_about_no_more_and_counts_in_nothing(
    gallery: Gallery, embedder: Embedder, leave: Callable[..., Any], is_before: bool
) -> None:
    reader, matcher = GalleryReader(gallery), Matcher(gallery, embedder)
    ids = matcher.snapshot.item_table["id"].to_pylist()
    session = start(matcher)
    if is_before:
        answer(session, matcher, 44)
    gone = ids[::2]
    leave(reader, gone)
    matcher = Matcher(gallery, embedder)
    found = LabelSession.current(matcher)
    assert found is not None
    state = found.state()
    assert (state.n_answers, state.n_gone > 20, state.estimate) == (44 * is_before, is_before, None)
    for _ in range(8):
        assert shown(found).isdisjoint(gone)
        answer(found, matcher, 1)
    found.undo()
    assert len(found.answers()) == 44 * is_before + 7


def test_what_comes_back_counts_again_and_what_is_new_is_asked_about(
    gallery: Gallery, embedder: Embedder
) -> None:
    reader, matcher = GalleryReader(gallery), Matcher(gallery, embedder)
    ids = matcher.snapshot.item_table["id"].to_pylist()
    ASIDE(reader, ids[2:])
    for one in ids[2:4]:
        # In a place of its own, behind the version.
        bring_back(reader, one)
    matcher = Matcher(gallery, embedder)
    assert shown(start(matcher)) == set(ids[:4])


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

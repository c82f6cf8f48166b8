"""Promise watch: a promise that answers contradict is broken at once, everywhere, and mended by them too."""

from __future__ import annotations

import pytest

from tests.service.answering.conftest import Kept
from tests.service.types import Calibrate
from vicinal.indexer.gallery import Gallery
from vicinal.service.answering.promise_watch import try_promise
from vicinal.service.measuring.matcher import Matcher


@pytest.fixture
def record_id(gallery: Gallery, calibrate: Calibrate) -> str:
    return calibrate(gallery)


def contradict(kept: Kept) -> list[int]:
    """Answers that name another label than the one that is found."""
    kept.store.draw([one.id for one in kept.searches])
    other = [*kept.labels[2:20], *kept.labels[:2]]
    return [
        kept.store.answer(one.id, "label", by="anna", label=label).number
        for one, label in zip(kept.searches, other, strict=False)
    ]


def state_of_threshold(matcher: Matcher) -> tuple[str, str | None]:
    found = matcher.thresholds.in_force(matcher.pipeline)
    return found.state, found.reason


def test_answers_that_contradict_a_promise_break_it_at_once(
    kept: Kept, matcher: Matcher, record_id: str
) -> None:
    contradict(kept)
    found = try_promise(matcher)
    assert found is not None
    assert (found.verdict, found.source, found.calibration) == ("broken", "searches", record_id)
    assert "of 100 searches with photos of things you have, about 0 were found (20 answers)" in found.sentence
    state, reason = state_of_threshold(matcher)
    assert state == "broken"
    assert found.sentence in reason
    assert reason.endswith("with the answers to searches by `vicinal calibrate -g shoes --answers`")


def test_answers_that_agree_hold_it_and_those_taken_back_count_no_more(
    kept: Kept, matcher: Matcher, record_id: str
) -> None:
    for number in contradict(kept):
        kept.store.take_back(number)
    kept.answer(range(4))
    contradict(kept)
    assert try_promise(matcher).verdict == "broken"
    kept.answer()
    found = try_promise(matcher)
    assert found.verdict != "broken"
    assert state_of_threshold(matcher)[0] == "current"

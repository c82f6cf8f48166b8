"""Review of kept searches: what is asked about, what may be said, and what is known by it."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from tests.service.conftest import LABELS
from tests.service.kept_searches import View, keep_searches
from tests.service.types import Calibrate
from vicinal.indexer.errors import ItemNotFoundError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.reader import GalleryReader
from vicinal.models.embedder import Embedder
from vicinal.service.answering.additions import add_confirmed
from vicinal.service.answering.kept import KeptSearch
from vicinal.service.answering.review import SearchReview
from vicinal.service.errors import (
    AnswerNotFoundError,
    SearchNotFoundError,
    UnknownLabelError,
)
from vicinal.service.measuring.matcher import Matcher

ITEM = "plain/view 0.png"


@pytest.fixture
def searches(matcher: Matcher, view: View) -> list[KeptSearch]:
    """Twenty searches, the first ten of labels that the gallery has."""
    return keep_searches(matcher, view)


@pytest.fixture
def review(matcher: Matcher, searches: list[KeptSearch]) -> SearchReview:
    return SearchReview(matcher)


def answer_right(review: SearchReview, n: int, *, by: str) -> list[str]:
    """Answer what is asked, n times, by the number that an id is; the ids in order."""
    asked = []
    for _ in range(n):
        (question,) = review.next(1, by=by).questions
        asked.append(question.search_id)
        number = int(question.search_id, 16) % 20
        said = {"kind": "label", "label": LABELS[number]} if number < 10 else {"kind": "absent"}
        review.answer(question.search_id, by=by, **said)
    return asked


def test_what_is_said_is_kept_and_told(review: SearchReview, searches: list[KeptSearch]) -> None:
    given = review.answer(searches[6].id, "item", by="eve", item_id=ITEM)
    assert (given.label, given.item_id, given.disagrees) == ("plain", ITEM, None)
    assert given.note is not None
    assert "not drawn yet" in given.note
    review.store.draw([searches[6].id])
    given = review.answer(searches[6].id, "label", by="eve", label="plain")
    assert given.note is None
    assert (
        given.sentence == "Of 1 answered search 1 shows what the gallery has (1 label) and 0 what it lacks."
    )
    assert [one.number for one in review.search(searches[6].id).answers] == [given.number]


def test_what_cannot_be_is_refused(review: SearchReview, searches: list[KeptSearch]) -> None:
    known = searches[0].id
    with pytest.raises(SearchNotFoundError, match="was not kept, or has gone with its age"):
        review.answer("f" * 32, "absent", by="eve")
    with pytest.raises(ItemNotFoundError, match="no item 'hat'"):
        review.answer(known, "item", by="eve", item_id="hat")
    with pytest.raises(UnknownLabelError, match="has the label 'plane', the nearest are 'plain'") as caught:
        review.answer(known, "label", by="eve", label="plane")
    assert caught.value.members == {"nearest": ["plain"]}
    with pytest.raises(UnknownLabelError, match="or say that it is absent"):
        review.answer(known, "label", by="eve", label="")
    assert review.store.answers() == []


def test_only_who_said_it_takes_it_back_and_who_may_all(
    review: SearchReview, searches: list[KeptSearch]
) -> None:
    number = review.answer(searches[0].id, "absent", by="eve").number
    with pytest.raises(AnswerNotFoundError, match="or is another person's"):
        review.take_back(number, by="bob")
    review.take_back(number, by=None)
    with pytest.raises(AnswerNotFoundError):
        review.take_back(number, by="eve")
    with pytest.raises(AnswerNotFoundError):
        type(review.store)(review.store.gallery / "nothing kept").take_back("eve")


def test_all_are_asked_about_once_and_what_was_asked_comes_again_until_it_is_answered(
    review: SearchReview,
) -> None:
    first = review.next(3, by="eve").questions
    assert len({one.search_id for one in first}) == 3
    assert [one.search_id for one in review.next(3, by="eve").questions] == [one.search_id for one in first]
    asked = answer_right(review, 20, by="eve")
    assert len(set(asked)) == 20
    assert asked[:3] == [one.search_id for one in first]
    known = review.known()
    assert (known.n_drawn, known.n_known, known.n_absent, known.n_labels) == (20, 10, 10, 10)


def test_one_in_ten_is_asked_a_second_person(review: SearchReview) -> None:
    asked = answer_right(review, 20, by="eve")
    wanted = {one for one in asked if zlib.crc32(one.encode()) % 10 == 0}
    assert wanted
    again = review.next(20, by="bob").questions
    assert {one.search_id for one in again} == wanted
    assert all(one.is_again for one in again)
    # Until it is answered.
    assert {one.search_id for one in review.next(20, by="bob").questions} == wanted
    for one in again:
        review.answer(one.search_id, "unsure" if one is again[0] else "absent", by="bob")
    assert review.next(20, by="bob").questions == []


def test_a_visit_is_asked_about_once(matcher: Matcher, view: View) -> None:
    keep_searches(matcher, view, visit="all of one visit")
    assert len(SearchReview(matcher).next(20, by="eve").questions) == 1


def test_answers_tell_the_rates_of_the_threshold_in_force(
    gallery: Gallery, embedder: Embedder, view: View, calibrate: Calibrate
) -> None:
    calibrate(gallery)
    matcher = Matcher(gallery, embedder)
    kept = keep_searches(matcher, view)
    review = SearchReview(matcher)
    assert (review.known().fnir, review.known().fpir) == (None, None)
    answer_right(review, 20, by="eve")
    known = review.known()
    # All are answered: each counts once.
    answers = matcher.search(embeddings=np.stack([one.embedding for one in kept]), without=(), limit=100)
    is_found = [label in {one.label for one in answers[i].matches} for i, label in enumerate(LABELS)]
    assert known.fnir is not None
    assert known.fpir is not None
    assert known.fnir.rate == pytest.approx(1.0 - np.mean(is_found))
    assert known.fpir.rate == pytest.approx(np.mean([bool(one.matches) for one in answers[10:]]))
    assert known.fnir.low <= known.fnir.rate <= known.fnir.high < 1.0
    assert "Of 100 things that it has, between " in known.sentence


def test_a_search_that_became_an_item_goes_on_counting_and_is_not_asked_about(
    gallery: Gallery, embedder: Embedder, view: View, calibrate: Calibrate
) -> None:
    calibrate(gallery)
    matcher = Matcher(gallery, embedder)
    keep_searches(matcher, view)
    answer_right(SearchReview(matcher), 20, by="eve")
    before, reader = SearchReview(matcher).known(), GalleryReader(gallery)
    added = {one.search_id for one in add_confirmed(reader, embedder).added}
    compact(reader)
    review = SearchReview(Matcher(gallery, embedder))
    known = review.known()
    assert (len(added), known.n_answered, known.fpir) == (10, before.n_answered, before.fpir)
    assert (known.fnir.rate, known.fnir.high) == (before.fnir.rate, before.fnir.high)
    assert not added & {one.search_id for one in review.next(20, by="bob").questions}
    assert "as if that were not there" in review.search(added.pop()).note

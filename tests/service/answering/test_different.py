"""Pictures and items that a person called different: never a match again, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import add_items, digests_of, remove_items
from vicinal.indexer.jobs.preparation import with_columns
from vicinal.indexer.jobs.set_aside import bring_back, set_aside
from vicinal.indexer.reader import GalleryReader
from vicinal.models.embedder import Embedder
from vicinal.service.answering.different import CalledDifferent, called_different
from vicinal.service.answering.kept import KeptCandidate, KeptSearch
from vicinal.service.answering.store import SearchStore
from vicinal.service.errors import RequestError, ServiceError
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.answers import Answer

ALWAYS = {"most": 100, "days": 30.0}
View = Callable[[int, int], Image.Image]


@pytest.fixture
def store(gallery: Gallery) -> SearchStore:
    return SearchStore(gallery.path)


@pytest.fixture
def matcher(gallery: Gallery, embedder: Embedder) -> Matcher:
    found = Matcher(gallery, embedder)
    found.different = CalledDifferent(gallery)
    return found


def keep(store: SearchStore, matcher: Matcher, image: Image.Image, **changes: object) -> KeptSearch:
    answer = matcher.search(images=[image], threshold=0.5)[0]
    search = KeptSearch(
        embedding=matcher.embedder.embed([image])[0],
        bundle=answer.bundle,
        version=answer.version,
        revision=answer.revision,
        pipeline=answer.pipeline,
        candidates=tuple(KeptCandidate(one.id, one.label, one.score) for one in answer.matches),
        verdict=answer.verdict,
        threshold=0.5,
        calibration=None,
    )
    search = replace(search, **changes)
    store.keep([(search, b"jpeg")], **ALWAYS)
    return search


def wrong(store: SearchStore, matcher: Matcher, search: KeptSearch, item: str, by: str = "eve") -> int:
    different = digests_of(matcher.gallery, matcher.view, [item])
    return store.answer(search.id, "wrong", item_id=item, by=by, different=different).number


def scores(answer: Answer) -> dict[str, float]:
    return {one.id: one.score for one in (*answer.matches, *answer.candidates)}


def test_what_was_said_of_a_copy_holds_for_the_item_that_stays_for_it(
    store: SearchStore, matcher: Matcher, gallery: Gallery, view: View
) -> None:
    image = view(0, 8)
    search = keep(store, matcher, image)
    gone, stays = (one.id for one in matcher.search(images=[image], threshold=0.3)[0].matches[:2])
    wrong(store, matcher, search, gone)
    reader = GalleryReader(gallery)
    set_aside(reader, [gone], reason="a copy", by="eve", instead={gone: stays})
    now = CalledDifferent(gallery).of(search.embedding[None], reader.view())
    assert now is not None
    assert now[0].tolist() == reader.view().positions([stays]).tolist()
    bring_back(reader, gone)
    back = CalledDifferent(gallery).of(search.embedding[None], reader.view())
    assert back is not None
    assert back[0].tolist() == reader.view().positions([gone]).tolist()


@pytest.mark.parametrize("options", [{}, {"rerank": "contextual"}, {"group_by": "label"}])
def test_a_wrong_match_is_left_out_for_its_picture_alone(
    store: SearchStore, matcher: Matcher, view: View, options: dict[str, str]
) -> None:
    image, other = view(0, 8), view(0, 9)
    search = keep(store, matcher, image)
    asked = {"threshold": 0.3, "limit": 100, "include_candidates": True, **options}
    before = matcher.search(images=[image, other], **asked)
    best = before[0].matches[0].id
    assert before[0].left_out == []
    number = wrong(store, matcher, search, best)
    after = matcher.search(images=[image, other], **asked)
    assert best not in scores(after[0])
    assert after[0].left_out == [best]
    kept = {one: score for one, score in scores(before[0]).items() if one in scores(after[0])}
    assert kept == {one: score for one, score in scores(after[0]).items() if one in kept}
    assert scores(after[1]) == scores(before[1])
    # Who measures looks at everything.
    assert best in scores(matcher.search(images=[image], without=[], **asked)[0])
    store.take_back(number)
    assert scores(matcher.search(images=[image], **asked)[0]) == scores(before[0])


def test_it_outlives_the_search_and_can_still_be_taken_back(
    store: SearchStore, matcher: Matcher, view: View
) -> None:
    image = view(0, 8)
    search = keep(store, matcher, image, at=datetime.now(UTC) - timedelta(days=9))
    item = matcher.search(images=[image], threshold=0.0)[0].matches[0].id
    number = wrong(store, matcher, search, item)
    store.let_go(most=100, days=1.0)
    assert store.searches() == []
    assert [(one.item_id, one.by) for one in store.different()] == [(item, "eve")]
    assert matcher.search(images=[image], threshold=0.0)[0].left_out == [item]
    store.take_back(number)
    assert matcher.search(images=[image], threshold=0.0)[0].left_out == []
    with pytest.raises((RequestError, ServiceError), match="no answer"):
        store.take_back(number)


def test_who_deletes_a_search_deletes_what_it_was_called_different_from(
    store: SearchStore, matcher: Matcher, view: View
) -> None:
    searches = [keep(store, matcher, view(0, one)) for one in (7, 8, 9)]
    for one in searches:
        wrong(store, matcher, one, one.candidates[0].id)
    store.delete([searches[0].id])
    assert {one.search for one in store.different()} == {one.id for one in searches[1:]}
    store.delete()
    assert store.different() == []


@pytest.mark.parametrize(("column", "value"), [("content_sha256", bytes(32)), ("id", "new")])
def test_another_picture_under_the_id_is_a_match_again_and_the_same_under_another_is_not(
    store: SearchStore, matcher: Matcher, view: View, gallery: Gallery, column: str, value: Any
) -> None:
    image = view(0, 8)
    search = keep(store, matcher, image)
    item = search.candidates[0].id
    wrong(store, matcher, search, item)
    reader = GalleryReader(gallery)
    sequences = reader.view().sequences(reader.view().positions([item]))
    row = gallery.table.rows(reader.view().revision, sequences)
    row = with_columns(row, **{column: pa.array([value], row.schema.field(column).type)})
    remove_items(reader, [item])
    later = matcher.at(reader.view())
    assert later.search(images=[image], threshold=0.0)[0].left_out == []
    columns = [one for one in row.schema.names if not one.startswith(("sequence", "patch", "neighbor"))]
    add_items(reader, row.select(columns), bundle=matcher.snapshot.manifest.bundle)
    later = matcher.at(reader.view()).search(images=[image], threshold=0.0, limit=100)[0]
    assert (item in scores(later), later.left_out) == ((True, []) if column != "id" else (False, ["new"]))


def test_an_answer_calls_different_what_it_rules_out() -> None:
    search = KeptSearch(
        embedding=np.zeros(4, np.float32),
        bundle="b",
        version=1,
        revision=1,
        pipeline="p",
        candidates=(
            KeptCandidate("a", "mug", 0.9),
            KeptCandidate("b", "jug", 0.8),
            KeptCandidate("c", None, 0.75),
            KeptCandidate("d", "jug", 0.6),
        ),
        verdict="match",
        threshold=0.7,
        calibration=None,
    )
    assert called_different(search, "wrong", item_id="d") == ["d"]
    assert called_different(search, "absent") == ["a", "b", "c"]
    assert called_different(search, "label", label="mug") == ["b"]
    assert called_different(search, "item", item_id="b", label="jug") == ["a"]
    assert called_different(search, "item", item_id="c") == []
    assert called_different(search, "unsure") == []
    assert called_different(replace(search, threshold=None), "absent") == []

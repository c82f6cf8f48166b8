from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text, update

from vicinal.indexer.errors import GalleryNotFoundError
from vicinal.indexer.state import schema
from vicinal.service.answering.kept import KeptCandidate, KeptSearch, fields_of, standing
from vicinal.service.answering.store import SearchStore
from vicinal.service.errors import RequestError, SearchNotFoundError

ALWAYS = {"most": 100, "days": 30.0}


def a_search(number: int = 0, **changes: object) -> KeptSearch:
    embedding = np.zeros(4, np.float32)
    embedding[number % 4] = 1.0
    search = KeptSearch(
        embedding=embedding,
        bundle="b1",
        version=1,
        revision=7,
        pipeline="plain",
        candidates=(KeptCandidate("mug", "Mug", 0.75), KeptCandidate("jug", None, 0.5)),
        verdict="match",
        threshold=0.7,
        calibration="c1",
    )
    return replace(search, **changes)


@pytest.fixture
def store(galleries: Path) -> SearchStore:
    (galleries / "shop").mkdir()
    return SearchStore(galleries / "shop")


def test_a_search_comes_back_as_it_was(store: SearchStore) -> None:
    assert not store.exists
    assert store.searches() == []
    assert store.answers() == []
    search = a_search(1, signature=bytes(768), sender="s", visit="v")
    store.keep([(search, b"jpeg")], **ALWAYS)
    (found,) = store.searches()
    assert found.embedding.tolist() == search.embedding.tolist()
    assert replace(found, embedding=search.embedding) == search
    assert store.get(search.id).top_score == 0.75
    assert store.picture(search.id) == b"jpeg"
    assert store.n_kept == 1
    assert store.readable == (1, len(fields_of(search)) + 16 + 768 + 4)
    with pytest.raises(SearchNotFoundError, match="was not kept, or has gone"):
        store.get("other")


def test_the_sample_is_of_the_lowest_keys_whoever_kept_them(store: SearchStore) -> None:
    old = datetime.now(UTC) - timedelta(hours=1)
    keys = np.random.default_rng(0).permutation(40) / 40
    ids = [f"s{number}" for number in range(40)]
    for start in range(0, 40, 8):
        part = [
            (a_search(id=ids[one], key=float(keys[one]), at=old), None) for one in range(start, start + 8)
        ]
        store.keep(part, most=10, days=30.0)
    assert {one.id for one in store.searches()} == {ids[one] for one in np.argsort(keys)[:10]}
    newest = a_search(id="newest", key=0.99)
    store.keep([(newest, None)], most=10, days=30.0)
    # It can be answered for a while, and is not of the sample.
    assert not store.get("newest").in_sample
    assert sum(one.in_sample for one in store.searches()) == 10


def test_what_was_answered_stays_beyond_the_sample_and_goes_with_its_age(store: SearchStore) -> None:
    old = datetime.now(UTC) - timedelta(days=2)
    store.keep([(a_search(id="a", key=0.9, at=old), None)], **ALWAYS)
    store.answer("a", "absent", by="eve")
    store.keep([(a_search(id="b", key=0.1), None)], most=1, days=30.0)
    assert {one.id: one.in_sample for one in store.searches()} == {"a": False, "b": True}
    store.let_go(most=1, days=1.0)
    assert [one.id for one in store.searches()] == ["b"]
    assert store.answers() == []


def test_who_answers_again_changes_what_was_said_and_others_stand_beside(store: SearchStore) -> None:
    store.keep([(a_search(id="a"), None)], **ALWAYS)
    store.answer("a", "absent", by="eve")
    store.answer("a", "label", label="Mug", by="eve")
    store.answer("a", "wrong", item_id="jug", by="eve")
    store.answer("a", "unsure", by="bob")
    assert [(one.kind, one.by) for one in standing(store.answers())["a"]] == [
        ("label", "eve"),
        ("unsure", "bob"),
    ]
    last = store.answers("a")[-1]
    store.take_back(last.number)
    assert [one.kind for one in store.answers("a")] == ["label", "wrong"]
    with pytest.raises(RequestError, match="no answer"):
        store.take_back(last.number)
    with pytest.raises(SearchNotFoundError):
        store.answer("gone", "absent", by="eve")


def test_deleted_searches_are_gone_with_what_was_said(store: SearchStore) -> None:
    store.keep([(a_search(id=one), b"jpeg") for one in "abc"], **ALWAYS)
    store.answer("a", "absent", by="eve", different={"mug": None})
    store.answer("b", "absent", by="eve", different={"mug": None})
    store.draw(["a"], asked=["a", "b"], by="eve")
    assert store.delete(["a", "unknown"]) == 1
    assert [one.id for one in store.searches()] == ["b", "c"]
    assert [one.search for one in (*store.answers(), *store.asked(), *store.different())] == ["b"] * 3
    assert store.delete(before=datetime.now(UTC) + timedelta(seconds=1)) == 2
    assert store.different() == []
    # What came before and is kept only now is meant too.
    store.keep([(a_search(id="late", at=datetime.now(UTC) - timedelta(seconds=9)), None)], **ALWAYS)
    assert (store.searches(), store.delete()) == ([], 0)


@pytest.mark.parametrize("others", [0, 9])
def test_deleted_searches_are_nowhere_in_the_file(tmp_path: Path, others: int) -> None:
    store = SearchStore(tmp_path)
    kept = [(a_search(id=f"other {number}"), b"jpeg" * 5000) for number in range(others)]
    store.keep([*kept, (a_search(id="a", sender="who-asked"), b"of somebody" * 500)], **ALWAYS)
    store.answer("a", "label", label="what it shows", by="eve")
    store.delete(["a"])
    left = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    assert [gone in left for gone in (b"of somebody", b"who-asked", b"what it shows")] == [False] * 3
    assert store.n_kept == others


def test_a_changed_row_is_left_out_and_told(store: SearchStore, caplog: pytest.LogCaptureFixture) -> None:
    store.keep([(a_search(id=one), None) for one in "ab"], **ALWAYS)
    store.answer("a", "absent", by="eve")
    with store.state.changing() as rows:
        for column in (schema.searches.c.drawn_at, schema.answers.c.taken_back_at, schema.documents.c.at):
            rows.connection.execute(update(column.table).values({column.name: 1.5}).where(text("1 = 1")))
    assert store.searches() == store.answers() == []
    store.keep([(a_search(id="c"), None)], **ALWAYS)
    assert [one.id for one in store.searches()] == ["c"]
    assert store.delete() == 3
    assert "is not what was written: it is left out" in caplog.text


def test_the_searches_of_a_gallery_that_has_gone_do_not_bring_it_back(store: SearchStore) -> None:
    store.gallery.rmdir()
    with pytest.raises(GalleryNotFoundError):
        store.keep([(a_search(), None)], **ALWAYS)
    assert not store.gallery.exists()


def picture(seed: int, noise: int = 0) -> bytes:
    """A signature; a little noise leaves it almost the same."""
    coarse = np.random.default_rng(seed).integers(60, 196, (4, 4, 3))
    pixels = np.kron(coarse, np.ones((4, 4, 1), np.int64))
    return (pixels + np.random.default_rng(noise).integers(-2, 3, pixels.shape)).astype(np.uint8).tobytes()


def visits_of(store: SearchStore, *searches: KeptSearch) -> list[str]:
    """Visits of searches that are kept one after the other."""
    for one in searches:
        store.keep([(one, None)], **ALWAYS)
    return [store.get(one.id).visit for one in searches]


def test_almost_the_same_picture_is_of_one_visit_whenever_it_came(store: SearchStore) -> None:
    before = datetime.now(UTC) - timedelta(days=20)
    first = a_search(id="first", at=before, signature=picture(0))
    again = a_search(id="again", signature=picture(0, noise=1), candidates=())
    other = a_search(id="other", signature=picture(1), candidates=())
    # What the network sees as another thing is not compared.
    apart = a_search(1, id="apart", signature=picture(0, noise=2), candidates=())
    assert visits_of(store, first, again, other, apart) == ["first", "first", "other", "apart"]


def test_a_sender_who_goes_on_searching_for_a_thing_is_on_one_visit(store: SearchStore) -> None:
    now = datetime.now(UTC)
    mug, jug = KeptCandidate("mug", "Mug", 0.7), KeptCandidate("jug", None, 0.7)

    def at(minutes: float, name: str, best: KeptCandidate, sender: str = "s", number: int = 0) -> KeptSearch:
        when = now + timedelta(minutes=minutes)
        return a_search(
            number,
            id=name,
            at=when,
            candidates=(best,),
            sender=sender,
            signature=picture(sum(map(ord, name))),
        )

    found = visits_of(
        store,
        at(0, "a", mug),
        at(6, "bb", KeptCandidate("mug 2", "Mug", 0.3)),
        at(12, "ccc", mug),
        at(13, "dddd", jug),
        at(14, "eeeee", jug),
        at(14, "f", mug, sender="t"),
        at(14, "gg", mug, sender=""),
        at(14, "unlike", mug, number=1),
        at(30, "hhh", mug),
    )
    assert found == ["a", "a", "a", "dddd", "dddd", "f", "gg", "unlike", "hhh"]


def test_no_visit_lasts_for_ever_where_many_persons_have_one_address(store: SearchStore) -> None:
    now = datetime.now(UTC)
    shop = [
        a_search(
            id=f"{number}",
            at=now + timedelta(minutes=9 * number),
            sender="shop",
            signature=picture(number),
        )
        for number in range(15)
    ]
    assert visits_of(store, *shop) == ["0"] * 7 + ["7"] * 7 + ["14"]


def test_who_asked_is_forgotten_when_the_visit_is_over(store: SearchStore) -> None:
    now = datetime.now(UTC)
    store.keep([(a_search(id="old", sender="s", at=now - timedelta(minutes=11)), None)], **ALWAYS)
    store.keep([(a_search(id="new", sender="s"), None)], **ALWAYS)
    assert (store.get("old").sender, store.get("new").sender) == ("", "s")


def test_what_asks_for_the_same_day_and_night_does_not_fill_the_sample(store: SearchStore) -> None:
    old = datetime.now(UTC) - timedelta(hours=1)
    ids = [f"s{number}" for number in range(14)]
    kept = [a_search(id=one, visit="probe", at=old, key=1 - n / 20) for n, one in enumerate(ids)]
    store.keep([(one, None) for one in [*kept, a_search(id="new", visit="probe", key=1.0)]], **ALWAYS)
    store.answer("s0", "absent", by="anna")
    store.draw(["s1"])
    store.let_go(**ALWAYS)
    # A random part of it, and what somebody was asked about or has just seen.
    assert {one.id for one in store.searches()} == {"s0", "s1", "new", *ids[4:]}

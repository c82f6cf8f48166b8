"""Sync plan: what is held stays unless it was asked for, and only what has to be read is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.indexer.jobs.changes import Outcome
from vicinal.indexer.jobs.preparation import listing_of
from vicinal.indexer.jobs.sync.plan import (
    Description,
    HeldItem,
    ListedItem,
    SyncOutcome,
    SyncPlan,
    plan_sync,
)
from vicinal.indexer.storage.removals import Removal, RemovedItems

SOURCE, OTHER = "/photos", "/elsewhere"


def described(
    label: str | None = None,
    metadata: dict[str, Any] | None = None,
    *,
    source: str | None = SOURCE,
    uri: str = "/photos/a.jpg",
    size: int | None = 7,
    at: int | None = 100,
) -> Description:
    text = json.dumps(metadata or {})
    listing = None if source is None else listing_of(label, text)
    return Description(label, text, source, listing, uri, size, at)


def digest(content: int) -> bytes:
    return content.to_bytes(32, "big")


def held(content: int = 1, **fields: Any) -> HeldItem:
    return HeldItem(described(**fields), digest(content))


def listed(content: int = 1, **fields: Any) -> ListedItem:
    return ListedItem(described(**fields), lambda: digest(content))


def unread(**fields: Any) -> ListedItem:
    def refuse() -> bytes:
        raise AssertionError("the file was read")

    return ListedItem(described(**fields), refuse)


def plan(before: HeldItem | None, now: ListedItem, **options: Any) -> SyncPlan:
    options = {"source": now.description.source, **options}
    return plan_sync({} if before is None else {"a": before}, {"a": now}, **options)


@pytest.mark.parametrize(
    ("before", "now", "outcome"),
    [
        (None, unread(), "added"),
        (held(), unread(), "unchanged"),
        (held(), listed(1, at=200), "unchanged"),
        (held(), listed(2, at=200), "changed"),
        (held(), listed(2, size=8), "changed"),
        (held(), listed(2, uri="/photos/b.jpg"), "changed"),
        (held(), listed(2, size=None, at=None), "changed"),
        (held(source=OTHER), listed(1), "unchanged"),
        (held(source=OTHER), listed(2), "refused"),
        (held(source=None), listed(2), "refused"),
        (held(source=None), listed(2, source=None), "refused"),
        (held(), listed(2, source=None), "refused"),
        (held(), unread(label="boots"), "updated"),
        (held(source=OTHER, label="boots"), listed(1, label="hats"), "updated"),
    ],
)
def test_outcomes(before: HeldItem | None, now: ListedItem, outcome: str) -> None:
    assert plan(before, now).outcomes == {"a": outcome}


@pytest.mark.parametrize(("conflict", "outcome"), [("replace", "replaced"), ("skip", "skipped")])
def test_conflicts_are_decided_by_whoever_asks(conflict: str, outcome: str) -> None:
    assert plan(held(source=OTHER), listed(2), conflict=conflict).outcomes == {"a": outcome}
    own = plan(held(), listed(2, at=200), conflict=conflict)
    assert own.outcomes == {"a": "changed"}, "a source is in no conflict with itself"


def test_files_of_one_size_and_time_in_two_sources_are_told_apart() -> None:
    """Negative control of the look at size and time alone."""
    assert plan(held(source=OTHER), listed(2)).outcomes == {"a": "refused"}


@pytest.mark.parametrize(("delete", "outcome"), [(False, "missing"), (True, "removed")])
def test_items_of_the_source_that_it_does_not_list_are_named(delete: bool, outcome: str) -> None:
    there = {"a": held(), "b": held(), "c": held(source=OTHER), "d": held(source=None)}
    made = plan_sync(there, {"a": unread()}, source=SOURCE, delete=delete)
    assert made.outcomes == {"a": "unchanged", "b": outcome}
    assert made.is_needed == delete


def removed(content: int = 1, item_id: str = "a", **fields: Any) -> RemovedItems:
    one = described(**fields)
    said = (one.source, one.uri, one.file_size, one.modified_at)
    removal = Removal(item_id, digest(content), *said)
    return RemovedItems({item_id: {removal.content: removal}})


@pytest.mark.parametrize(
    ("before", "now", "known", "outcome"),
    [
        (None, unread(), removed(), "left_out"),
        (None, listed(1, at=200), removed(), "left_out"),
        (None, listed(1, size=None, at=None), removed(size=None, at=None), "left_out"),
        (None, listed(1, source=OTHER, uri="/elsewhere/a.jpg"), removed(), "left_out"),
        (None, listed(1, source=None), removed(source=None), "left_out"),
        (None, listed(2, at=200), removed(), "added"),
        (None, listed(2, size=8), removed(), "added"),
        (None, listed(2, source=OTHER), removed(), "added"),
        (None, unread(), removed(item_id="b"), "added"),
        (held(), unread(), removed(), "unchanged"),
        (held(), listed(1, at=200), removed(), "unchanged"),
        (held(2), listed(1, at=200), removed(), "left_out"),
        (held(2, source=OTHER), listed(1), removed(), "left_out"),
        (held(2), listed(3, at=200), removed(), "changed"),
    ],
)
def test_a_removed_image_is_left_out_and_another_in_its_place_is_not(
    before: HeldItem | None, now: ListedItem, known: RemovedItems, outcome: str
) -> None:
    made = plan(before, now, removed=known)
    assert (made.outcomes, made.is_needed) == ({"a": outcome}, outcome in ("added", "changed"))


@pytest.mark.parametrize(
    ("now", "outcome"),
    [(listed(1), "left_out"), (listed(2), "added"), (unread(size=8), "added"), (unread(size=None), "added")],
)
def test_a_removed_image_that_moved_is_known_by_its_content(now: ListedItem, outcome: str) -> None:
    assert plan(None, now, moved={7: {digest(1)}}).outcomes == {"a": outcome}


def test_items_that_must_not_be_looked_at_are_not_missing() -> None:
    assert plan_sync({"a": held()}, {}, source=SOURCE, also_listed=["a"], delete=True).outcomes == {}


def test_images_without_a_source_make_nothing_missing() -> None:
    assert plan_sync({"a": held(source=None)}, {}, source=None, delete=True).outcomes == {}


def test_nothing_is_needed_where_everything_is_held() -> None:
    assert not plan(held(), unread()).is_needed
    assert not plan(held(), listed(1, at=200)).is_needed
    assert plan(held(), listed(1, at=200)).described == {"a": described(at=200)}


def test_the_same_file_of_another_source_belongs_to_that_one_now() -> None:
    made = plan(held(source=OTHER, uri="/elsewhere/a.jpg"), listed(1))
    assert (made.outcomes, made.n_taken_over, made.is_needed) == ({"a": "unchanged"}, 1, True)
    assert made.described["a"] == described()


def test_what_has_no_source_takes_nothing_over() -> None:
    made = plan(held(label="boots"), listed(1, source=None, label="boots"))
    assert (made.outcomes, made.n_taken_over) == ({"a": "unchanged"}, 0)


def by_hand(label: str | None, metadata: dict[str, Any], said: Description) -> HeldItem:
    """An item that was patched after its source said something else of it."""
    return HeldItem(replace(said, label=label, metadata=json.dumps(metadata)), digest(1))


def test_what_was_set_by_hand_stays_until_the_source_says_something_new() -> None:
    said = described("boots", {"price": 1, "color": "red"})
    before = by_hand("hats", {"price": 5, "color": "red", "note": "mine"}, said)
    assert plan(before, unread(label="boots", metadata={"price": 1, "color": "red"})).described == {}
    made = plan(before, unread(label="boots", metadata={"price": 1, "size": 40}))
    new = made.described["a"]
    assert (new.label, json.loads(new.metadata)) == ("hats", {"price": 5, "size": 40, "note": "mine"})
    again = plan(HeldItem(new, digest(1)), unread(label="caps", metadata={"price": 2, "size": 40}))
    new = again.described["a"]
    assert (new.label, json.loads(new.metadata)) == ("caps", {"price": 2, "size": 40, "note": "mine"})


def test_a_source_without_labels_takes_none_away_that_another_gave() -> None:
    before = held(source=None, label="boots", metadata={"price": 1})
    new = plan(before, listed(1)).described["a"]
    assert (new.label, json.loads(new.metadata), new.source) == ("boots", {"price": 1}, SOURCE)


def test_a_changed_image_keeps_what_was_set_by_hand() -> None:
    made = plan(by_hand("hats", {}, described("boots")), listed(2, label="boots", at=200))
    assert (made.outcomes["a"], made.described["a"].label) == ("changed", "hats")


def test_an_image_that_cannot_be_used_changes_nothing() -> None:
    made = plan(held(), listed(2, at=200))
    made.fail(["a", "unheard of"])
    assert (made.outcomes, made.described, made.is_needed, made.counts()) == ({}, {}, False, {})


def test_the_words_are_those_of_live_additions() -> None:
    assert set(get_args(Outcome)) < set(get_args(SyncOutcome))


def hats(content: int = 1, **metadata: Any) -> HeldItem:
    return replace(by_hand("hats", metadata, described("boots")), content_sha256=digest(content))


boots = partial(listed, label="boots", uri="/photos/new.jpg")


MINE, caps = {"note": "mine"}, by_hand("caps", {}, described("boots"))


@pytest.mark.parametrize(
    ("there", "now", "expected"),
    [
        ({"a": hats(**MINE)}, {"b": boots()}, {"b": ("hats", MINE)}),
        ({"a": hats()}, {"b": listed(label="caps", metadata={"price": 1})}, {"b": ("hats", {"price": 1})}),
        ({"a": held(label="boots")}, {"b": listed(label="caps")}, {"b": ("caps", {})}),
        ({"a": by_hand(None, {}, described("boots", MINE))}, {"b": boots(metadata=MINE)}, {"b": (None, {})}),
        ({"a": hats()}, {"b": unread(label="boots", size=8)}, {"b": ("boots", {})}),
        ({"a": hats(**MINE), "b": held(label="boots")}, {"b": boots()}, {"b": ("hats", MINE)}),
        ({"a": hats(**MINE), "b": caps}, {"b": boots()}, {"b": ("caps", MINE)}),
        ({"a": hats(), "b": held(label="boots")}, {"b": boots(), "c": boots()}, {"b": ("boots", {})}),
        ({"a": held(label="boots"), "b": hats()}, {"c": boots()}, {"c": ("hats", {})}),
        ({"a": caps, "b": hats()}, {"c": boots(), "d": boots()}, {"c": ("caps", {}), "d": ("hats", {})}),
        ({"a": caps, "b": hats(2)}, {"b": boots(), "c": boots(2)}, {"b": ("caps", {}), "c": ("hats", {})}),
        ({"a": hats()}, {"a": boots(2, at=200), "b": boots()}, {"a": ("boots", {}), "b": ("hats", {})}),
    ],
)
def test_what_was_set_by_hand_goes_with_its_image_where_its_id_goes(
    there: dict[str, HeldItem], now: dict[str, ListedItem], expected: dict[str, tuple[str | None, Any]]
) -> None:
    made = plan_sync(there, now, source=SOURCE, delete=True)
    after = {one: made.described.get(one, now[one].description) for one in expected}
    assert {one: (item.label, json.loads(item.metadata)) for one, item in after.items()} == expected


def test_nothing_follows_an_image_without_delete() -> None:
    assert plan_sync({"a": hats()}, {"b": boots()}, source=SOURCE).described == {}


labels = st.sampled_from([None, "boots", "hats"])
sources = st.sampled_from([SOURCE, OTHER, None])
contents = st.integers(1, 3)
ids = st.sampled_from("abcdef")
# A file's state tells its content, as it does of real files.
held_items = st.builds(
    lambda content, label, source: held(content, label=label, source=source, at=content, size=content),
    contents,
    labels,
    sources,
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[dict[str, HeldItem], dict[str, ListedItem], str | None]:
    source = draw(st.sampled_from([SOURCE, OTHER, None]))
    listing = draw(st.dictionaries(ids, st.tuples(contents, labels)))
    now = {
        item_id: listed(content, label=label, source=source, at=content, size=content)
        for item_id, (content, label) in listing.items()
    }
    return draw(st.dictionaries(ids, held_items)), now, source


def result(there: dict[str, HeldItem], now: dict[str, ListedItem], made: SyncPlan) -> dict[str, HeldItem]:
    """The gallery afterwards, as the run makes it of a plan."""
    gone = made.ids("changed", "replaced", "removed")
    after = {item_id: one for item_id, one in there.items() if item_id not in gone}
    for item_id in made.ids("added", "changed", "replaced"):
        after[item_id] = HeldItem(now[item_id].description, now[item_id].digest())
    for item_id, description in made.described.items():
        after[item_id] = HeldItem(description, after[item_id].content_sha256)
    return after


Situation = tuple[dict[str, HeldItem], dict[str, ListedItem], str | None]


def loses(
    situation: Situation, planned: Callable[..., SyncPlan], conflict: str = "skip"
) -> dict[str, HeldItem]:
    """Items that are gone or are another image, though nobody asked for it."""
    there, now, source = situation
    after = result(there, now, planned(there, now, source=source, conflict=conflict))
    return {
        item_id: one
        for item_id, one in there.items()
        if item_id not in after
        or (
            after[item_id].content_sha256 != one.content_sha256
            and (one.description.source != source or source is None or item_id not in now)
        )
    }


@given(situations())
def test_nothing_is_lost(situation: Situation) -> None:
    assert not loses(situation, plan_sync)
    there, now, source = situation
    made = plan_sync(there, now, source=source)
    assert made.outcomes.keys() >= now.keys()
    assert sum(made.counts().values()) == len(made.outcomes)
    for item_id in made.ids("refused"):
        assert there[item_id].content_sha256 != now[item_id].digest()


@given(situations())
def test_a_second_look_finds_nothing_to_do(situation: Situation) -> None:
    there, now, source = situation
    made = plan_sync(there, now, source=source, conflict="replace", delete=True)
    after = result(there, now, made)
    assert {item_id: after[item_id].content_sha256 for item_id in now} == {
        item_id: one.digest() for item_id, one in now.items()
    }
    again = plan_sync(after, now, source=source, conflict="error", delete=True)
    assert (again.is_needed, set(again.counts()) <= {"unchanged"}) == (False, True)


def test_a_plan_that_loses_is_found_out() -> None:
    """Negative control: of everything that is not listed, as an index of the source alone would make it."""

    def of_the_source_alone(there: dict[str, HeldItem], now: dict[str, ListedItem], **_: Any) -> SyncPlan:
        return SyncPlan({**dict.fromkeys(there, "removed"), **dict.fromkeys(now, "added")})

    assert loses(({"a": held(source=None)}, {"b": listed()}, SOURCE), of_the_source_alone)

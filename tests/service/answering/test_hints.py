"""Hints: what a key that may only search says is kept, and counts for that key alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.service.answering.conftest import LABELS, Kept
from vicinal.calibration import CalibrationError
from vicinal.service.answering import store as module
from vicinal.service.answering.additions import confirmed_searches
from vicinal.service.answering.drawn import drawn_searches
from vicinal.service.answering.store import SearchStore
from vicinal.service.measuring.matcher import Matcher


def hint(store: SearchStore, search: str, kind: str = "wrong", **said: object) -> int:
    return store.answer(search, kind, by="eve", is_hint=True, **said).number  # type: ignore[arg-type]


def _count(store: SearchStore, matcher: Matcher) -> int:
    try:
        return len(drawn_searches(store, matcher.pictures, matcher.pipeline.key).labelled.labels)
    except CalibrationError:
        return 0


def _confirm(store: SearchStore, _: Matcher) -> int:
    return len(confirmed_searches(store))


@pytest.mark.parametrize("counted", [_count, _confirm])
def test_a_hint_is_no_query_of_a_calibration_and_makes_no_item(
    kept: Kept, matcher: Matcher, counted: Callable[[SearchStore, Matcher], int]
) -> None:
    kept.store.draw([one.id for one in kept.searches])
    for search in kept.searches[:20]:
        hint(kept.store, search.id, "label", label=LABELS[0])
    assert counted(kept.store, matcher) == 0
    # Not against who is trusted either.
    kept.answer(range(4))
    assert counted(kept.store, matcher) == 4


def test_a_hint_is_numbered_below_zero_and_takes_no_others_word_back(kept: Kept) -> None:
    store, search = kept.store, kept.searches[0].id
    trusted = store.answer(search, "wrong", by="anna", item_id="a", different={"a": None}).number
    number = hint(store, search, item_id="a", different={"a": None})
    assert (number, trusted) == (-1, 1)
    hint(store, search, "item", item_id="a")
    assert [one.answer for one in store.different()] == [trusted]
    assert [one.by for one in store.answers()] == ["anna"]
    store.answer(search, "item", by="anna", item_id="a")
    assert store.different() == []


def test_hints_neither_hold_searches_nor_pile_up(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_HINTED", 3)
    monkeypatch.setattr(module, "_RECENT", timedelta(0))
    store = kept.store
    for one in kept.searches[:8]:
        hint(store, one.id, item_id="a", different={"a": None, "b": None})
    assert [one.search for one in store.different()] == [kept.searches[place].id for place in (7, 7, 6)]
    store.answer(kept.searches[9].id, "absent", by="anna")
    store.let_go(most=1, days=30.0)
    assert {one.id for one in store.searches()} - {min(kept.searches, key=lambda one: one.key).id} <= {
        kept.searches[9].id
    }

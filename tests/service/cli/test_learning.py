"""What a gallery learns, by commands and in Python."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import Result

from tests.service.kept_searches import View, keep_searches
from vicinal.indexer.reader import GalleryReader
from vicinal.service.answering.kept import KeptSearch
from vicinal.service.answering.store import SearchStore
from vicinal.service.measuring.matcher import Matcher

Run, Fail = Callable[..., Result], Callable[..., str]


@pytest.fixture
def searches(matcher: Matcher, view: View) -> list[KeptSearch]:
    return keep_searches(matcher, view, 6)


def confirm(matcher: Matcher, *searches: KeptSearch) -> None:
    for one in searches:
        SearchStore(matcher.gallery.path).answer(one.id, "label", label=one.candidates[0].label, by="eve")


def test_a_command_adds_what_is_agreed_on_and_removes_it_again(
    run: Run, fail: Fail, matcher: Matcher, searches: list[KeptSearch]
) -> None:
    confirm(matcher, *searches[:3])
    one = run("review", "-g", "shoes", "--add-search", searches[0].id, "--json")
    assert [added["search_id"] for added in json.loads(one.stdout)["added"]] == [searches[0].id]
    assert "2 searches became items." in run("review", "-g", "shoes", "--add").stdout
    view = GalleryReader(matcher.gallery).view()
    assert (len(view), view.n_changes) == (len(matcher.view) + 3, 0)
    assert "0 searches became items." in run("review", "-g", "shoes", "--add").stdout
    said = run("review", "-g", "shoes", "--remove-added", searches[0].id).stdout
    assert f"Item search-{searches[0].id} is gone" in said
    assert "has become no item" in fail("review", "-g", "shoes", "--remove-added", searches[0].id)
    assert "nobody says" in fail("review", "-g", "shoes", "--add-search", searches[5].id)


def test_a_command_says_why_a_match_was_wrong_and_sets_its_item_aside(
    run: Run, fail: Fail, matcher: Matcher, searches: list[KeptSearch]
) -> None:
    item = searches[0].candidates[0].id
    said = run("review", "-g", "shoes", "--answer", searches[0].id, f"wrong={item}").stdout
    assert item in said
    assert "--reason" in fail("gallery", "set-aside", "shoes", item)
    n = len(matcher.view)
    assert f"holds {n - 1}" in run("gallery", "set-aside", "shoes", item, "--reason", "two shoes").stdout
    assert "two shoes" in run("gallery", "set-aside", "shoes").stdout
    (one,) = json.loads(run("gallery", "set-aside", "shoes", "--json").stdout)
    assert (one["id"], one["reason"]) == (item, "two shoes")
    run("gallery", "set-aside", "shoes", item, "--back")
    assert "no item" in fail("gallery", "set-aside", "shoes", item, "--back")
    assert len(GalleryReader(matcher.gallery).view()) == n

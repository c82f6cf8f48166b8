"""Reviewing kept searches: with a key an answer, and what an answer becomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.service.kept_searches import View, keep_searches
from tests.service.page.conftest import OpenPlace
from vicinal.indexer.jobs.set_aside import listed_aside
from vicinal.indexer.reader import GalleryReader
from vicinal.service.answering.store import SearchStore
from vicinal.service.http.serving.server import serving
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.settings import Settings

pytestmark = pytest.mark.slow

N = 12


@pytest.fixture
def store(matcher: Matcher, view: View) -> SearchStore:
    keep_searches(matcher, view, N)
    return SearchStore(matcher.gallery.path)


@pytest.fixture
def url(store: SearchStore, data_dir: Path, make_settings: Callable[..., Settings]) -> Iterator[str]:
    with serving(make_settings(data_dir)) as served:
        yield served


@pytest.fixture
def review(open_place: OpenPlace, url: str) -> Page:
    page = open_place(url, "g/shoes/review")
    expect(page.locator(".review-question")).to_be_visible()
    return page


def answered(page: Page, n: int) -> None:
    """Wait for an answer to be kept: the page then takes a key again."""
    said = page.locator(".head [role=status]")
    expect(said).to_have_text(f"{n} answer{'' if n == 1 else 's'}")


def asked(page: Page) -> str:
    """Search that is asked about."""
    shown = page.locator(".review-query img")
    expect(shown).to_be_visible()
    found = re.search("kept/([0-9a-f]+)/picture", shown.get_attribute("src") or "")
    assert found is not None
    return found[1]


def best(page: Page) -> str:
    """Id of the first candidate."""
    shown = page.locator(".review-candidate img").first
    expect(shown).to_be_visible()
    return parse_qs(urlsplit(shown.get_attribute("src") or "").query)["id"][0]


def test_keys_answer_take_back_and_find_a_label(review: Page, store: SearchStore) -> None:
    first, item = asked(review), best(review)
    review.keyboard.press("1")
    answered(review, 1)
    second = asked(review)
    review.keyboard.press("n")
    answered(review, 2)
    third = asked(review)
    review.keyboard.press("?")
    answered(review, 3)
    review.keyboard.press("u")
    answered(review, 2)
    # What was taken back is asked about again.
    assert asked(review) == third
    assert [(one.search, one.kind, one.item_id) for one in store.answers()] == [
        (first, "item", item),
        (second, "absent", None),
    ]
    review.keyboard.press("/")
    expect(review.get_by_role("searchbox")).to_be_focused()
    review.keyboard.type("shoe")
    expect(review.locator(".labels .chip")).to_have_text(["red shoe 6"])
    review.keyboard.press("Enter")
    answered(review, 3)
    assert store.answers()[-1].label == "red shoe"
    expect(review.get_by_role("dialog")).to_have_count(0)
    expect(review.locator(".review-known")).to_contain_text("Of 3 answered searches")


def test_an_answer_becomes_an_item_and_a_wrong_match_is_set_aside(
    review: Page, store: SearchStore, matcher: Matcher
) -> None:
    review.keyboard.press("1")
    answered(review, 1)
    review.get_by_role("button", name="Add this photo to the gallery").click()
    expect(review.locator(".notice")).to_contain_text("The photo is in the gallery now.")
    assert [one.search for one in store.answers()] == [one.id for one in store.searches() if one.item_id]
    item = best(review)
    score = float((review.locator(".review-candidate .small").first.text_content() or "").split()[-1])
    matcher.thresholds.set_by_hand(matcher.pipeline, score - 0.001)
    review.reload()
    expect(review.locator(".review-query")).to_contain_text("It gets a match.")
    review.keyboard.press("n")
    last = review.locator(".review-last")
    expect(last).to_contain_text("It got a match with")
    last.get_by_role("button", name="Why did it match?").click()
    expect(last).to_contain_text("carried it")
    last.get_by_role("button", name=re.compile("^Set .* aside$")).click()
    review.get_by_label("Why? Others will read it.").fill("two shoes")
    review.keyboard.press("Enter")
    expect(review.locator(".notice")).to_contain_text("Nothing finds it")
    (one,) = listed_aside(GalleryReader(matcher.gallery))
    assert (one.id, one.reason) == (item, "two shoes")

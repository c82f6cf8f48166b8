"""The page of `vicinal review` in a real browser: on a desk and on a telephone, by keys and by touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, expect

from tests.service.kept_searches import View, keep_searches
from vicinal.indexer.jobs.set_aside import listed_aside
from vicinal.indexer.reader import GalleryReader
from vicinal.service.answering.store import SearchStore
from vicinal.service.http.serving.server import serving
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.settings import Settings

pytestmark = [pytest.mark.slow, pytest.mark.skip(reason="its place on the page is empty")]


@pytest.fixture
def store(matcher: Matcher, view: View) -> SearchStore:
    keep_searches(matcher, view, 12)
    return SearchStore(matcher.gallery.path)


@pytest.fixture
def address(store: SearchStore, data_dir: Path, make_settings: Callable[..., Settings]) -> Iterator[str]:
    with serving(make_settings(data_dir)) as url:
        yield f"{url}/review?gallery=shoes"


def open_page(
    browser: Browser, address: str, width: int = 1280, height: int = 900, *, scheme: str = "light"
) -> Page:
    screen = {"width": width, "height": height}
    context = browser.new_context(viewport=screen, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    expect(page.locator("#asking")).to_be_visible()
    idle(page)
    return page


def answered(page: Page, n: int) -> None:
    expect(page.locator("#place")).to_have_text(f"shoes · {n} answer{'' if n == 1 else 's'}", timeout=20_000)


def idle(page: Page) -> None:
    """Wait until the page takes a key again."""
    page.evaluate(
        "new Promise((done) => { const look = () => busy ? setTimeout(look, 10) : done(); look(); })"
    )


def test_keys_answer_take_back_and_find_a_label(browser: Browser, address: str, store: SearchStore) -> None:
    page = open_page(browser, address)
    first = page.evaluate("questions[0].search_id")
    best = page.evaluate("questions[0].candidates[0].id")
    page.keyboard.press("1")
    answered(page, 1)
    page.keyboard.press("n")
    answered(page, 2)
    page.keyboard.press("?")
    answered(page, 3)
    page.keyboard.press("u")
    answered(page, 2)
    assert [(one.kind, one.item_id) for one in store.answers()] == [("item", best), ("absent", None)]
    assert store.answers()[0].search == first
    page.keyboard.press("/")
    page.keyboard.type("shoe")
    expect(page.locator("#labels button")).to_have_text(["red shoe"])
    page.keyboard.press("Enter")
    answered(page, 3)
    assert store.answers()[-1].label == "red shoe"
    expect(page.locator("#find")).to_be_hidden()
    expect(page.locator("#sentence")).to_contain_text("Of 3 answered searches")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_and_can_be_read_by_all(browser: Browser, address: str, width: int, scheme: str) -> None:
    page = open_page(browser, address, width, scheme=scheme)
    for image in page.locator(".look img").all():
        expect(image).to_have_js_property("complete", True)
        assert image.evaluate("(one) => one.naturalWidth") > 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # A finger needs some 40 pixels.
    assert page.evaluate(
        "[...document.querySelectorAll('.look button')].every((one) => one.offsetHeight >= 40)"
    )
    page.evaluate(AXE_SCRIPT)
    found = page.evaluate("axe.run().then(({ violations }) => violations.map((one) => one.id))")
    assert found == []


def test_who_disagrees_is_told(browser: Browser, address: str, store: SearchStore) -> None:
    page = open_page(browser, address)
    store.answer(page.evaluate("questions[0].search_id"), "label", by="eve", label="plain")
    page.locator("#absent").click()
    expect(page.locator("#against")).to_have_text("Of the last one another person said that it is 'plain'.")


def test_at_the_end_nothing_is_left(browser: Browser, address: str) -> None:
    page = open_page(browser, address)
    for number in range(12):
        page.locator("#absent").click()
        answered(page, number + 1)
    expect(page.locator("#done")).to_be_visible()
    expect(page.locator("#asking")).to_be_hidden()


def test_a_wrong_address_says_what_to_do(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(address.partition("?")[0])
    expect(page.locator("#error")).to_have_text("name the gallery in the address: review?gallery=NAME")
    page.goto(address.replace("gallery=shoes", "gallery=hats"))
    expect(page.locator("#error")).to_contain_text("there is no gallery 'hats'")


def test_an_answer_becomes_an_item_and_a_wrong_match_is_set_aside(
    browser: Browser, address: str, store: SearchStore, matcher: Matcher
) -> None:
    page = open_page(browser, address)
    idle(page)
    page.keyboard.press("1")
    answered(page, 1)
    idle(page)
    page.locator("#add").click()
    expect(page.locator("#last-told")).to_have_text("It is an item now.")
    assert [one.search for one in store.answers()] == [one.id for one in store.searches() if one.item_id]
    best = page.evaluate("questions[0].candidates[0]")
    matcher.thresholds.set_by_hand(matcher.pipeline, best["score"] - 1e-6)
    page.goto(address)
    expect(page.locator("#note")).to_contain_text("It gets a match.")
    idle(page)
    page.keyboard.press("n")
    expect(page.locator("#last-told")).to_contain_text("It got a match with")
    idle(page)
    page.locator("#why").click()
    expect(page.locator("#last-told")).to_contain_text("carried it")
    idle(page)
    page.once("dialog", lambda asked: asked.accept("two shoes"))
    page.locator("#aside").click()
    expect(page.locator("#last-told")).to_contain_text("is set aside")
    (one,) = listed_aside(GalleryReader(matcher.gallery))
    assert (one.id, one.reason) == (best["id"], "two shoes")

"""The search page in a real browser: an item is searched for, and every picture is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.service.measuring.test_one_state import SENTENCE, keep_check
from tests.service.types import Calibrate, MakeSettings
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.storage.gallery_names import set_alias
from vicinal.indexer.transfer.moving import copy_gallery
from vicinal.service.http.serving.server import serving

pytestmark = pytest.mark.slow


@pytest.fixture
def address(data_dir: Path, make_settings: MakeSettings) -> Iterator[str]:
    with serving(make_settings(data_dir)) as url:
        yield url


@pytest.fixture
def page(browser: Browser, address: str) -> Page:
    """What is found for an item, as a link to it asks for."""
    opened = browser.new_page()
    opened.goto(f"{address}/?{urlencode({'gallery': 'shoes', 'item': 'plain/view 0.png'})}")
    opened.wait_for_selector("#results li")
    opened.evaluate("document.querySelectorAll('img').forEach((one) => one.loading = 'eager')")
    opened.wait_for_load_state("networkidle")
    return opened


def pictures(page: Page) -> tuple[int, int]:
    """Items that are shown, and those of them with a picture; one that cannot be read is taken away."""
    shown = page.locator("#results li").count()
    there = "[...document.querySelectorAll('#results li img')].filter((one) => one.naturalWidth > 0).length"
    return shown, page.evaluate(there)


def test_every_item_that_is_found_has_its_picture(page: Page) -> None:
    shown, there = pictures(page)
    assert (shown, there) == (12, 12)
    assert page.evaluate("document.getElementById('query').naturalWidth") > 0


def test_an_item_without_a_picture_is_noticed(page: Page) -> None:
    """Negative control."""
    page.evaluate("document.querySelector('#results li img').src = 'v1/galleries/shoes/thumbnails/gone'")
    expect(page.locator("#results li img")).to_have_count(11)
    assert pictures(page) == (12, 11)


@pytest.mark.parametrize(("name", "shown"), [("shop", "shoes"), ("shoes", "shoes"), ("none", "boots")])
def test_a_link_may_name_a_gallery_by_its_alias(
    browser: Browser, address: str, data_dir: Path, name: str, shown: str
) -> None:
    root = data_dir / "galleries"
    copy_gallery(Gallery(root / "shoes"), "boots")
    set_alias(root, "shop", "shoes")
    opened = browser.new_page()
    opened.goto(f"{address}/?{urlencode({'gallery': name, 'item': 'plain/view 0.png'})}")
    opened.wait_for_selector("#results li")
    expect(opened.locator("#gallery")).to_have_value(shown)


def test_a_click_searches_for_what_was_found(page: Page) -> None:
    first = page.locator("#results button").first
    found = first.get_attribute("title") or ""
    with page.expect_request(lambda one: one.url.endswith("/search")) as asked:
        first.click()
    assert found in (asked.value.post_data or "")
    assert page.evaluate("document.getElementById('query').src").endswith(quote(found, safe=""))


def test_the_page_says_what_to_expect_and_before_a_search_what_does_not_hold(
    browser: Browser, address: str, gallery: Gallery, calibrate: Calibrate
) -> None:
    record_id = calibrate(gallery)
    opened = browser.new_page()
    opened.goto(address)
    expect(opened.locator("#promise")).to_contain_text("Of 100 matches that are shown, ")
    expect(opened.locator("#promise")).to_contain_text("; of 100 photos of things you lack, ")
    keep_check(gallery, record_id, "broken")
    opened.goto(address)
    expect(opened.locator("#promise.broken")).to_contain_text(SENTENCE)
    opened.goto(f"{address}/?{urlencode({'gallery': 'shoes', 'item': 'plain/view 0.png'})}")
    expect(opened.locator("#why.broken")).to_contain_text(SENTENCE)
    expect(opened.locator("#promise")).to_be_empty()


def test_labels_are_shown_as_they_are(page: Page) -> None:
    """What cannot be seen, or turns the text around it, stands as its code; emoji and scripts stay whole."""
    texts = ["[new] <b>shoes</b>", "\u202egnp.exe", "a\u200bb\u2028c\x1b", "שלום 👩\u200d🚀"]
    shown = [page.evaluate("(text) => visible(text)", text) for text in texts]
    assert shown == [texts[0], "\\u{202e}gnp.exe", "a\\u{200b}b\\u{2028}c\\u{1b}", texts[3]]

"""Search on the page: with a photo and with an item, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.service.page.conftest import OpenPlace, Served

pytestmark = pytest.mark.slow


def test_a_photo_is_searched_for_and_a_click_searches_on(
    demo: Served, open_place: OpenPlace, shot: Callable[[Page, str], None]
) -> None:
    page = open_place(demo.url, "g/demo/search")
    page.get_by_label("Photo to search with").set_input_files(demo.made.queries[0])
    expect(page.locator(".search-verdict")).to_contain_text("Match")
    label = demo.made.queries[0].parent.name
    expect(page.locator(".search-result").first).to_contain_text(label)
    shot(page, "search-match")
    with page.expect_request("**/search") as asked:
        page.locator(".search-result button").first.click()
    assert label in (asked.value.post_data or "")
    expect(page.locator(".search-result").first).to_be_visible()
    assert "?item=" in page.url
    page.go_back()
    expect(page.locator(".search-verdict")).to_be_visible()


def test_what_a_gallery_lacks_is_no_match(demo: Served, open_place: OpenPlace) -> None:
    page = open_place(demo.url, "g/demo/search", width=360, scheme="dark")
    page.get_by_label("Photo to search with").set_input_files(demo.made.absent[0])
    expect(page.locator(".search-verdict")).to_contain_text("No match")


def test_a_file_that_is_no_photo_says_so(demo: Served, open_place: OpenPlace, tmp_path: Path) -> None:
    page = open_place(demo.url, "g/demo/search", expects=("400",))
    broken = tmp_path / "photo.jpg"
    broken.write_bytes(b"no image")
    page.get_by_label("Photo to search with").set_input_files(broken)
    expect(page.get_by_role("alert")).to_contain_text("This file is no photo that can be read")
    expect(page.locator(".search-result")).to_have_count(0)

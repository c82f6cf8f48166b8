"""Galleries on the page: the photos in one, found, changed, removed, and its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Route, expect

from tests.service.page.conftest import OpenPlace, Served

pytestmark = pytest.mark.slow

HUGE = 100_000


def test_a_photo_is_found_and_its_label_changed_and_taken_back(
    demo: Served, open_place: OpenPlace, shot: Callable[[Page, str], None]
) -> None:
    page = open_place(demo.url, "g/demo")
    page.get_by_label("Find by label or name").fill("backpack-01")
    expect(page.get_by_text("5 found")).to_be_visible()
    page.locator(".gallery-item").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", level=3)).to_have_text("backpack-01")
    dialog.get_by_role("button", name="Change").click()
    dialog.get_by_label("What does it show?").fill("a new label")
    dialog.get_by_role("button", name="New: a new label").click()
    expect(dialog.get_by_role("heading", level=3)).to_have_text("a new label")
    assert demo.call("GET", "v1/galleries/demo/item?id=backpack-01/0.jpg")["label"] == "a new label"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".gallery-item").first).to_contain_text("backpack-01")
    assert demo.call("GET", "v1/galleries/demo/item?id=backpack-01/0.jpg")["label"] == "backpack-01"


def test_several_photos_are_removed_after_a_question(demo: Served, open_place: OpenPlace) -> None:
    page = open_place(demo.url, "g/demo?find=backpack-01")
    page.get_by_role("button", name="Choose several").click()
    for place in range(3):
        page.locator(".gallery-item").nth(place).click()
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("3 chosen")).to_be_visible()
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("3 photos were removed.")).to_be_visible()
    expect(page.get_by_text("2 found")).to_be_visible()
    assert demo.call("GET", "v1/galleries/demo")["n_items"] == 297


def test_a_hundred_thousand_photos_scroll_to_the_last(demo: Served, open_place: OpenPlace) -> None:
    asked: list[int] = []

    def answer(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        first, size = int(query["at"][0]), int(query["size"][0])
        asked.append(first)
        items = [
            {"id": f"{one}.jpg", "label": f"photo {one}", "uri": "", "metadata": {}}
            for one in range(first, min(first + size, HUGE))
        ]
        route.fulfill(
            content_type="application/json", body=json.dumps({"items": items, "next": None, "n_items": HUGE})
        )

    picture = demo.made.queries[0].read_bytes()
    page = open_place(demo.url, "key", width=360)
    page.route("**/v1/galleries/demo/items?*", answer)
    page.route("**/thumbnail?*", lambda route: route.fulfill(content_type="image/jpeg", body=picture))
    page.goto(f"{demo.url}/#/g/demo")
    expect(page.get_by_role("button", name="photo 0", exact=True)).to_be_visible()
    page.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
    expect(page.locator(".gallery-item").filter(has_text="photo 50")).not_to_have_count(0)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(page.get_by_role("button", name=f"photo {HUGE - 1}", exact=True)).to_be_visible()
    # Of all these a few are drawn, and a few pages were asked for.
    assert page.locator(".grid > li").count() < 60
    assert len(asked) < 10
    page.get_by_role("button", name=f"photo {HUGE - 1}", exact=True).focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("button", name=f"photo {HUGE - 2}", exact=True)).to_be_focused()
    for step in range(1, 13):
        page.keyboard.press("ArrowUp")
        expect(page.get_by_role("button", name=f"photo {HUGE - 2 - 2 * step}", exact=True)).to_be_focused()


def test_a_gallery_is_deleted_by_who_types_its_name(demo: Served, open_place: OpenPlace) -> None:
    page = open_place(demo.url, "g/demo?view=storage")
    expect(page.locator(".gallery-uses")).to_contain_text("MB")
    page.get_by_role("button", name="Delete this gallery").click()
    sure = page.get_by_role("dialog").get_by_role("button", name="Delete it")
    expect(sure).to_be_disabled()
    page.get_by_label("Type demo to delete it").fill("demo")
    sure.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Make your first gallery")
    assert demo.call("GET", "v1/galleries")["galleries"] == []

"""What goes wrong while the page is open: a sentence each time, and on it goes when it is over."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browsers import findings
from tests.service.page.conftest import OpenPlace, Served

pytestmark = pytest.mark.slow

AWAY = "The server does not answer. Trying again…"
ASKED = "g/demo/search?item=backpack-01/1.jpg"


def test_a_server_that_is_gone_is_waited_for_and_nothing_must_be_pressed(
    demo: Served, open_place: OpenPlace, shot: Callable[[Page, str], None]
) -> None:
    page = open_place(demo.url, "jobs", expects=("net::ERR",))
    expect(page.get_by_role("heading", name="No job yet")).to_be_visible()
    page.context.set_offline(True)
    page.get_by_label("State").select_option(label="Failed")
    expect(page.get_by_text(AWAY)).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    assert findings(page) == []
    shot(page, "away")
    page.context.set_offline(False)
    expect(page.get_by_text(AWAY)).to_have_count(0)
    expect(page.get_by_role("heading", name="No such job")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_gallery_that_is_deleted_meanwhile_is_said_to_be_gone(demo: Served, open_place: OpenPlace) -> None:
    page = open_place(demo.url, ASKED, expects=("404",))
    expect(page.locator(".search-result").first).to_be_visible()

    # It goes once the button is pressed: whatever else the page still asks for would tell it before.
    def delete_first(route: Route) -> None:
        demo.call("DELETE", "v1/galleries/demo", params={"confirm": "demo"})
        route.continue_()

    page.route("**/search", delete_first, times=1)
    page.locator(".search-result").get_by_role("button", name="Search with").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no gallery “demo”")
    page.get_by_role("link", name="All galleries").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Make your first gallery")


def test_too_many_requests_are_a_sentence_and_no_endless_wait(demo: Served, open_place: OpenPlace) -> None:
    page = open_place(demo.url, ASKED, expects=("429",))
    expect(page.locator(".search-result").first).to_be_visible()
    refused = {"type": "urn:vicinal:problem:too-many-requests", "detail": "too many requests"}
    page.route(
        "**/search",
        lambda route: route.fulfill(
            status=429,
            headers={"Retry-After": "600", "Content-Type": "application/problem+json"},
            body=json.dumps(refused),
        ),
    )
    page.locator(".search-result").get_by_role("button", name="Search with").first.click()
    expect(page.get_by_role("alert")).to_contain_text("Too much is asked at once. Try again in 600 seconds.")
    expect(page.locator("main .turning")).to_have_count(0)
    page.unroute("**/search")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".search-result").first).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)

"""Calibrating: the slider and what changes sides, figures and checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Response, expect

from tests.service.page.conftest import OpenPlace, Served

pytestmark = pytest.mark.slow
CALIBRATE = "v1/admin/galleries/{}/calibrations"


def slide(page: Page, score: float) -> None:
    """Move the slider to a score."""
    page.get_by_role("slider").evaluate(
        "(one, to) => { one.value = to; one.dispatchEvent(new Event('input', {bubbles: true})); }", score
    )


def tries(score: float) -> Callable[[Response], bool]:
    """Tell whether an answer is that of a dry run near a score: the page tries its first place too."""

    def is_that(answer: Response) -> bool:
        if not answer.url.endswith("/dry_run"):
            return False
        return abs((answer.request.post_data_json or {}).get("threshold", -1.0) - score) < 0.01

    return is_that


def threshold(served: Served) -> float:
    """What decides searches now."""
    (found,) = [
        one for one in served.call("GET", "v1/galleries")["galleries"] if one["name"] == served.gallery
    ]
    value = found["threshold"]["value"]
    assert isinstance(value, float)
    return value


def test_the_slider_tells_what_changes_before_anything_does(demo: Served, open_place: OpenPlace) -> None:
    before = threshold(demo)
    page = open_place(demo.url, "g/demo/calibrate")
    expect(page.get_by_role("heading", name=f"At a score of {before:.4f}")).to_be_visible()
    # What is measured here is not what photos of another day will show.
    expect(page.locator(".calibrate-at")).to_contain_text(
        f"On another day, at a score of {before:.4f}, of 100"
    )
    with page.expect_response(tries(0.5)) as tried:
        slide(page, 0.5)
    flips = tried.value.json()["flips"]
    score = tried.value.json()["tried"]["threshold"]
    expect(page.get_by_role("heading", name=f"At a score of {score:.4f}")).to_be_visible()
    expect(
        page.get_by_role("heading", name=f"Found as well: {flips['with_mate']['to_match']}")
    ).to_be_visible()
    expect(
        page.get_by_role("heading", name=f"Matched wrongly as well: {flips['without_mate']['to_match']}")
    ).to_be_visible()
    expect(page.get_by_text(f"{flips['searches']['to_match']} would get a match")).to_be_visible()
    moved = page.locator(".calibrate-moved")
    moved.first.scroll_into_view_if_needed()
    expect(moved.first.locator("img").first).to_have_js_property("complete", True)
    page.get_by_role("button", name=f"Back to {before:.4f}").click()
    expect(moved).to_have_count(0)
    assert threshold(demo) == before


def test_a_score_is_used_taken_back_and_put_in_force_again(demo: Served, open_place: OpenPlace) -> None:
    before = threshold(demo)
    page = open_place(demo.url, "g/demo/calibrate", width=360, scheme="dark")
    slide(page, 0.7)
    page.get_by_role("button", name="Use this score").click()
    page.get_by_role("button", name="Use it", exact=True).click()
    expect(page.get_by_text("Set by hand").first).to_be_visible()
    assert threshold(demo) == pytest.approx(0.7, abs=0.001)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text(f"A match needs a score of {before:.4f}")).to_be_visible()
    assert threshold(demo) == before
    page.get_by_role("tab", name="History").click()
    rows = page.locator(".calibrate-rows > li")
    expect(rows).to_have_count(2)
    rows.first.get_by_role("button", name="Put in force").click()
    page.get_by_role("dialog").get_by_role("button", name="Put in force").click()
    expect(rows.first).to_contain_text("in force")
    page.get_by_role("button", name="Back to the one before").click()
    page.get_by_role("button", name="Go back").click()
    expect(rows.nth(1)).to_contain_text("in force")
    assert threshold(demo) == before
    expect(page.locator(".calibrate-events li")).to_have_count(5)


def test_what_went_wrong_is_mended_where_it_is_seen(demo: Served, open_place: OpenPlace) -> None:
    page = open_place(demo.url, "g/demo/calibrate?view=figures")
    expect(page.locator(".calibrate-worst").first.locator("li").first).to_be_visible()
    page.locator(".calibrate-classes .chip").nth(1).click()
    expect(page.get_by_text("How well it is told from others, by score", exact=True).first).to_be_visible()
    page.get_by_role("button", name="All", exact=True).click()
    card = page.locator(".calibrate-worst").first.locator("li").first
    first, second = card.locator(".calibrate-photo").all()
    first.get_by_role("button", name="Label is wrong").click()
    asked = page.get_by_role("dialog")
    asked.get_by_label("The right label").fill("something else")
    asked.get_by_role("button", name="New: something else").click()
    expect(first.get_by_role("status")).to_contain_text("is “something else” now")
    labels = demo.call("GET", "v1/galleries/demo/labels", params={"like": "something else"})["labels"]
    assert [one["n_items"] for one in labels] == [1]
    page.get_by_role("button", name="Undo").click()
    expect(first.get_by_role("status")).to_have_count(0)
    second.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(second.get_by_role("status")).to_contain_text("removed")
    card.locator("input[type=file]").set_input_files(demo.made.queries[0])
    expect(page.get_by_text("1 photo is added")).to_be_visible()


def test_a_promise_is_checked_with_new_photos(demo: Served, open_place: OpenPlace) -> None:
    page = open_place(demo.url, "g/demo/calibrate?view=check")
    by_label: dict[str, list[Path]] = {}
    for one in (*demo.made.queries, *demo.made.absent):
        by_label.setdefault(one.parent.name, []).append(one)
    for label, photos in [*list(by_label.items())[:3], *list(by_label.items())[-2:]]:
        page.get_by_label("Or photos of one thing").fill(label)
        page.get_by_label("Photos of this thing").set_input_files(photos)
    expect(page.get_by_text("of 5 things:")).to_be_visible()
    page.get_by_role("button", name="Check with these photos").click()
    said = page.locator(".calibrate-checked")
    expect(said).to_contain_text("of 5 things")
    (active,) = [
        one for one in demo.call("GET", CALIBRATE.format("demo"))["calibrations"] if one["is_active"]
    ]
    check = demo.call("GET", f"{CALIBRATE.format('demo')}/{active['id']}")["last_check"]
    expect(said).to_contain_text(check["sentence"])

"""The frame of the page: old addresses lead on, ways lead to places, and what cannot be shown says why."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browsers import findings, fits, small_targets
from tests.service.page.conftest import OpenPlace, Served, Watch
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WAYS = ["Search", "Photos", "Add", "Review", "Calibrate", "Doubles"]


def test_ways_lead_to_places_and_back(demo: Served, open_place: OpenPlace) -> None:
    page = open_place(demo.url, "g/demo/search")
    ways = page.get_by_role("navigation", name="This gallery").get_by_role("link")
    expect(ways).to_have_text(WAYS)
    for name in WAYS[1:]:
        ways.filter(has_text=name).click()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(ways.filter(has_text=name)).to_have_attribute("aria-current", "page")
        expect(page).to_have_title(f"{name} · demo · Vicinal")
    page.go_back()
    expect(page).to_have_title("Calibrate · demo · Vicinal")
    page.get_by_role("link", name="Vicinal").click()
    expect(page).to_have_title("Galleries · Vicinal")


@pytest.mark.parametrize("place", ["nowhere", "g/demo/nowhere", "g/demo/jobs", "search", "g/%ff/search"])
def test_an_address_without_a_place_says_so(demo: Served, open_place: OpenPlace, place: str) -> None:
    page = open_place(demo.url, place)
    expect(page.get_by_role("heading", level=1)).to_have_text("There is nothing at this address")
    page.get_by_role("link", name="All galleries").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Galleries")


def test_a_server_that_is_away_is_told_and_found_again(demo: Served, open_place: OpenPlace) -> None:
    page = open_place(demo.url, "galleries", expects=("ERR_",))
    page.route("**/v1/**", lambda route: route.abort())
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    page.unroute("**/v1/**")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("link", name="demo")).to_be_visible()


def test_a_part_that_does_not_load_says_so(demo: Served, open_place: OpenPlace) -> None:
    page = open_place(demo.url, "galleries", expects=("404",))
    page.route("**/places/jobs/*", lambda route: route.fulfill(status=404, body="{}"))
    page.get_by_role("link", name="Jobs").click()
    expect(page.get_by_role("alert")).to_contain_text("has a newer version of it")
    page.unroute("**/places/jobs/*")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ("document.querySelector('main').append(document.createElement('input'))", "label"),
        ("document.querySelector('main').style.color = '#ddd'", "color-contrast"),
    ],
)
def test_axe_finds_what_is_wrong(demo: Served, open_place: OpenPlace, wrong: str, found: str) -> None:
    """Negative control."""
    page = open_place(demo.url, "key")
    page.evaluate(wrong)
    assert any(one.startswith(found) for one in findings(page))


def test_what_is_too_small_or_too_wide_is_found(demo: Served, open_place: OpenPlace) -> None:
    """Negative control."""
    page = open_place(demo.url, "key")
    assert (small_targets(page), fits(page)) == ([], True)
    page.evaluate(
        """() => {
          const [wrong, wide] = [document.createElement('button'), document.createElement('p')];
          wide.textContent = 'wide';
          wide.style.width = '200vw';
          document.querySelector('main').append(wrong, wide);
        }"""
    )
    assert (len(small_targets(page)), fits(page)) == (1, False)


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ("console.error('broken')", "broken"),
        ("setTimeout(() => { throw new Error('thrown') })", "thrown"),
        (
            "document.head.append(Object.assign(document.createElement('script'), {text: 'x'}))",
            "TrustedScript",
        ),
        ("new Image().src = 'https://evil.example/a.png'", "evil.example"),
        ("document.body.innerHTML = '<p>'", "TrustedHTML"),
        ("new Image().src = 'v1/galleries/demo/thumbnail?id=none'", "404"),
    ],
)
def test_what_is_wrong_with_a_page_is_noticed(
    demo: Served, open_place: OpenPlace, watch: Watch, wrong: str, fault: str
) -> None:
    """Negative control."""
    page = open_place(demo.url, "key")
    page.evaluate(f"() => {{ try {{ {wrong} }} catch (error) {{ console.error(error.message) }} }}")
    # What a page says is heard while something is asked of it.
    wait_until(lambda: watch.faults or page.wait_for_timeout(20))
    assert any(fault in one for one in watch.faults), watch.faults
    watch.faults.clear()

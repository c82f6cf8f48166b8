"""Same or not: a threshold without labels, on a desk by keys and on a telephone by touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browsers import fits
from tests.service.page.conftest import OpenPlace
from vicinal.service.http.serving.server import serving
from vicinal.service.settings import Settings

pytestmark = pytest.mark.slow

PAIRS = "g/shoes/pairs?target=precision%3D90%25"


@pytest.fixture
def url(data_dir: Path, make_settings: Callable[..., Settings]) -> Iterator[str]:
    with serving(make_settings(data_dir)) as served:
        yield served


def opened(open_place: OpenPlace, url: str, **screen: int) -> Page:
    page = open_place(url, PAIRS, **screen)  # type: ignore[arg-type]
    expect(page.locator(".pairs-photos img")).to_have_count(2)
    return page


def labels(page: Page) -> list[str]:
    """Class folders of the two photos that are shown."""
    shown = page.locator(".pairs-photos img").evaluate_all(
        "(all) => all.map((one) => one.getAttribute('src'))"
    )
    return [parse_qs(urlsplit(one).query)["id"][0].split("/")[0] for one in shown]


def answer(url: str, n: int) -> None:
    """Answer pairs beside the page, which goes on with that."""
    path = f"{url}/v1/admin/galleries/shoes/labelling"
    state = httpx.post(path, json={"target": "precision=90%"}, timeout=30.0).raise_for_status().json()
    for _ in range(n):
        question = state["questions"][0]
        first, second = (one.split("/")[0] for one in question["items"])
        body = {"number": question["number"], "same": first == second}
        state = httpx.post(f"{path}/answers", json=body, timeout=30.0).raise_for_status().json()


def answered(page: Page, n: int) -> None:
    expect(page.locator(".head [role=status]")).to_have_text(f"{n} answer{'' if n == 1 else 's'}")
    expect(page.locator(".pairs-photos img")).to_have_count(2)


def test_a_session_on_a_desk_by_keys(url: str, open_place: OpenPlace) -> None:
    answer(url, 36)
    page = opened(open_place, url)
    finish = page.get_by_role("button", name="Finish and use this threshold")
    expect(finish).to_be_hidden()
    for n in range(36, 40):
        first, second = labels(page)
        page.keyboard.press("s" if first == second else "d")
        answered(page, n + 1)
    expect(page.locator(".pairs-known h2")).to_contain_text("Of 100 matches, about")
    finish.click()
    expect(page.locator(".pairs-done")).to_contain_text("This rests on answers about")
    expect(page.locator(".pairs-asked")).to_be_hidden()
    page.get_by_role("link", name="Search the gallery").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Search")


def test_a_telephone_shows_it_all_and_takes_answers_back(url: str, open_place: OpenPlace) -> None:
    page = opened(open_place, url, width=390)
    first = labels(page)
    page.get_by_role("button", name="I can't tell").tap()
    answered(page, 1)
    page.get_by_role("button", name="Different").tap()
    answered(page, 2)
    assert fits(page)
    ways = page.get_by_role("navigation", name="This gallery").bounding_box()
    assert ways is not None
    for button in page.locator(".pairs-answers button").all():
        box = button.bounding_box()
        assert box is not None
        # A finger needs some 40 pixels.
        assert box["height"] >= 40
        assert box["y"] + box["height"] <= ways["y"]
    undo = page.get_by_role("button", name="Take back")
    undo.tap()
    answered(page, 1)
    undo.tap()
    answered(page, 0)
    expect(undo).to_be_disabled()
    assert labels(page) == first


def test_a_second_window_says_that_somebody_else_answers_and_goes_on(url: str, open_place: OpenPlace) -> None:
    first = opened(open_place, url)
    second = open_place(url, PAIRS, expects=("422",))
    expect(second.locator(".pairs-photos img")).to_have_count(2)
    first.keyboard.press("s")
    answered(first, 1)
    second.keyboard.press("s")
    expect(second.locator(".fault")).to_contain_text("somebody else answers too")
    second.get_by_role("button", name="Try again").click()
    answered(second, 1)
    expect(second.locator(".fault")).to_be_hidden()

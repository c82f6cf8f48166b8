"""The page of `vicinal label` in a real browser: on a desk and on a telephone, by keys and by touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from vicinal.service.http.app import create_app
from vicinal.service.http.serving.server import serving
from vicinal.service.http.state import state_of
from vicinal.service.keys import Grant
from vicinal.service.settings import Settings

pytestmark = [pytest.mark.slow, pytest.mark.skip(reason="its place on the page is empty")]


@pytest.fixture
def address(data_dir: Path, make_settings: Callable[..., Settings]) -> Iterator[str]:
    with serving(make_settings(data_dir)) as url:
        yield f"{url}/label?gallery=shoes&target=precision%3D90%25"


def open_page(browser: Browser, address: str, width: int, height: int, *, touch: bool) -> Page:
    page = browser.new_context(viewport={"width": width, "height": height}, has_touch=touch).new_page()
    page.goto(address)
    expect(page.locator("#asking")).to_be_visible()
    return page


def labels(page: Page) -> list[str]:
    """Class folders of the two photos that are shown."""
    items: list[str] = page.evaluate("state.questions[0].items")
    return [one.split("/")[0] for one in items]


def answered(page: Page, n: int) -> None:
    text = "1 answer" if n == 1 else f"{n} answers"
    expect(page.locator("#place")).to_have_text(f"shoes · {text}", timeout=20_000)


def fits(page: Page) -> bool:
    """Whether nothing is wider than the window, once both photos are there."""
    for image in page.locator(".photos img").all():
        expect(image).to_have_js_property("complete", True)
        assert image.evaluate("(one) => one.naturalWidth") > 0
    shown: bool = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return shown


def test_a_session_on_a_desk_by_keys(browser: Browser, address: str) -> None:
    page = open_page(browser, address, 1280, 900, touch=False)
    expect(page.locator("#finish")).to_be_hidden()
    for n in range(40):
        first, second = labels(page)
        page.keyboard.press("s" if first == second else "d")
        answered(page, n + 1)
    assert fits(page)
    expect(page.locator("#headline")).to_contain_text("Of 100 matches, about")
    page.locator("#finish").click()
    expect(page.locator("#sentence")).to_contain_text("This rests on answers about", timeout=20_000)
    expect(page.locator("#asking")).to_be_hidden()
    page.get_by_role("link", name="Search the gallery").click()
    expect(page.locator("#gallery")).to_have_value("shoes")


def test_a_telephone_shows_it_all_and_takes_answers_back(browser: Browser, address: str) -> None:
    page = open_page(browser, address, 390, 844, touch=True)
    first = labels(page)
    page.locator("#skip").tap()
    answered(page, 1)
    page.locator("#different").tap()
    answered(page, 2)
    assert fits(page)
    for button in ("#same", "#different", "#skip", "#undo"):
        box = page.locator(button).bounding_box()
        assert box is not None
        # A finger needs some 40 pixels.
        assert box["height"] >= 40
        assert box["y"] + box["height"] <= 844
    page.locator("#undo").tap()
    answered(page, 1)
    page.locator("#undo").tap()
    expect(page.locator("#place")).to_have_text("shoes · 0 answers")
    assert labels(page) == first


def test_a_second_window_says_that_somebody_else_answers(browser: Browser, address: str) -> None:
    first, second = (open_page(browser, address, 800, 600, touch=False) for _ in range(2))
    first.keyboard.press("s")
    answered(first, 1)
    second.keyboard.press("s")
    expect(second.locator("#error")).to_contain_text("somebody else answers too")


def test_a_wrong_address_says_what_to_do(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(address.partition("?")[0])
    expect(page.locator("#error")).to_have_text("name the gallery in the address: label?gallery=NAME")
    page.goto(address.replace("gallery=shoes", "gallery=hats"))
    expect(page.locator("#error")).to_contain_text("there is no gallery 'hats'")


def test_a_page_opens_once_with_what_it_was_given(
    browser: Browser, data_dir: Path, make_settings: Callable[..., Settings]
) -> None:
    app = create_app(make_settings(data_dir, run_jobs=False))
    token = state_of(app).keyring.offer(Grant(name="label", scopes=("search", "admin"), galleries=("shoes",)))
    with serving(app) as url:
        address = f"{url}/label?gallery=shoes#{token}"
        page = open_page(browser, address, 1280, 900, touch=False)
        expect(page.locator("#first")).to_have_js_property("complete", True)
        assert token not in page.url
        page.keyboard.press("s")
        answered(page, 1)
        page.reload()
        answered(page, 1)
        other = browser.new_context().new_page()
        other.goto(address)
        expect(other.locator("#error")).to_contain_text("was opened before")

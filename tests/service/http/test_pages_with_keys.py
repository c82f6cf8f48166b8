"""The pages in a real browser: with keys on, by an address that is shared, and for everybody."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, expect

from tests.service.types import Calibrate, MakeSettings
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.transfer.moving import copy_gallery
from vicinal.service.http.serving.server import serving

pytestmark = pytest.mark.slow

ADMIN, READER = "an-admin-key", "a-reader-key"
ITEM = "plain/view 0.png"
SHOWN = "[...document.querySelectorAll('img')].filter((one) => one.naturalWidth > 0)"
KEYS = {ADMIN: ("search", "write", "admin"), READER: ("search",)}


@pytest.fixture
def guarded(
    data_dir: Path, make_settings: MakeSettings, gallery: Gallery, calibrate: Calibrate
) -> Iterator[str]:
    """A server that asks for keys, with a calibrated gallery and another one."""
    calibrate(gallery)
    copy_gallery(Gallery(data_dir / "galleries" / "shoes"), "boots")
    with serving(make_settings(data_dir, api_keys=KEYS)) as url:
        headers = {"X-API-Key": ADMIN}
        patch = {"metadata": {"price": 30, "note": "<b>new</b>"}}
        httpx.patch(f"{url}/v1/galleries/shoes/items/plain/view 1.png", json=patch, headers=headers)
        yield url


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()


def use_key(page: Page, key: str) -> None:
    page.get_by_label("API key", exact=True).fill(key)
    page.get_by_role("button", name="Use this key").click()


def searched(page: Page, address: str, **options: str) -> Page:
    """The page of a search for an item, with the key of a reader."""
    page.goto(f"{address}/?{urlencode({'gallery': 'shoes', 'item': ITEM, **options})}")
    use_key(page, READER)
    page.wait_for_selector("#results li")
    return page


def test_a_key_is_asked_for_and_kept_for_the_tab(page: Page, guarded: str) -> None:
    page.goto(guarded)
    expect(page.locator("#key-note")).to_have_text("This server asks for an API key.")
    use_key(page, "wrong")
    expect(page.locator("#key-note")).to_have_text("The server does not know this key.")
    use_key(page, "größer")
    expect(page.locator("#key-note")).to_contain_text("without spaces")
    use_key(page, READER)
    expect(page.locator("#gallery option")).to_have_count(2)
    expect(page.locator("#keys")).to_be_hidden()
    page.reload()
    expect(page.locator("#gallery option")).to_have_count(2)
    # Another tab knows nothing of it.
    other = page.context.new_page()
    other.goto(guarded)
    expect(other.locator("#keys")).to_be_visible()
    page.get_by_role("button", name="Forget the API key").click()
    expect(page.locator("#keys")).to_be_visible()
    assert page.evaluate("sessionStorage.length + localStorage.length") == 0


def test_with_a_key_items_are_found_and_have_their_pictures(
    page: Page, guarded: str, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    searched(page, guarded)
    page.evaluate("document.querySelectorAll('img').forEach((one) => one.loading = 'eager')")
    n = page.locator("#results li").count()
    assert n >= 12
    wait_until(lambda: page.evaluate(f"{SHOWN}.length") == n + 1)


def test_no_address_has_the_key(page: Page, guarded: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    searched(page, guarded)
    page.wait_for_load_state("networkidle")
    assert len(asked) > 10
    assert not any(READER in one for one in [*asked, page.url])
    assert READER not in page.content()


def test_the_address_says_what_is_searched_for(page: Page, guarded: str) -> None:
    searched(page, guarded, limit="5", filter="label = 'plain'", products="1")
    expect(page.locator("#filter")).to_have_value("label = 'plain'")
    expect(page.locator("#products")).to_be_checked()
    page.locator("#products").uncheck()
    page.locator("#filter").fill("")
    page.locator("#limit").fill("3")
    with page.expect_response("**/search"):
        page.get_by_role("button", name="Search again").click()
    query = parse_qs(urlsplit(page.url).query)
    assert query == {"gallery": ["shoes"], "item": [ITEM], "limit": ["3"]}
    # Whoever gets the address sees the same.
    page.reload()
    page.wait_for_selector("#results li")
    assert page.locator("#results li").count() <= 6


def test_a_filter_that_is_wrong_says_so(page: Page, guarded: str) -> None:
    searched(page, guarded)
    page.locator("#filter").fill("price <")
    page.get_by_role("button", name="Search again").click()
    expect(page.locator("#verdict")).to_have_text("This could not be searched")
    expect(page.locator("#results li")).to_have_count(0)
    assert page.locator("#why").inner_text() != ""


def test_another_gallery_clears_what_was_said_of_the_old_one(page: Page, guarded: str) -> None:
    searched(page, guarded)
    page.locator("#gallery").select_option("boots")
    expect(page.locator("#verdict")).to_have_text("Drop, paste or choose an image")
    expect(page.locator("#results li")).to_have_count(0)
    assert parse_qs(urlsplit(page.url).query) == {"gallery": ["boots"]}


def test_an_answer_for_the_old_gallery_comes_too_late(page: Page, guarded: str) -> None:
    searched(page, guarded)
    page.route("**/search", lambda route: (page.wait_for_timeout(300), route.continue_()))
    page.locator("#results button").first.click()
    page.locator("#gallery").select_option("boots")
    page.wait_for_timeout(800)
    expect(page.locator("#verdict")).to_have_text("Drop, paste or choose an image")


def test_a_broken_file_says_so(page: Page, guarded: str, tmp_path: Path) -> None:
    searched(page, guarded)
    broken = tmp_path / "photo.jpg"
    broken.write_bytes(b"no image")
    page.locator("#file").set_input_files(broken)
    expect(page.locator("#verdict")).to_have_text("This could not be searched")
    expect(page.locator("#why")).to_contain_text("the bytes are no image")
    expect(page.locator("#results li")).to_have_count(0)
    expect(page.locator("#query")).to_be_hidden()
    assert "item=" not in page.url


def test_metadata_is_shown_as_text(page: Page, guarded: str) -> None:
    searched(page, guarded, limit="100")
    card = page.locator("li", has=page.locator("button[title='plain/view 1.png']"))
    expect(card.locator("dt")).to_have_text(["note", "price"])
    expect(card.locator("dd")).to_have_text(["<b>new</b>", "30"])
    assert card.locator("b", has_text="new").count() == 0


@pytest.mark.parametrize(
    ("uri", "n"), [("https://shop.example/1.jpg", 1), ("javascript:alert(1)", 0), ("/home/a.jpg", 0)]
)
def test_only_an_original_on_the_web_has_a_link(page: Page, guarded: str, uri: str, n: int) -> None:
    def with_uri(route: Any) -> None:
        answer = route.fetch()
        body = answer.json()
        body["matches"][0]["uri"] = uri
        route.fulfill(response=answer, body=json.dumps(body))

    page.route("**/search", with_uri)
    searched(page, guarded)
    links = page.get_by_role("link", name="original")
    expect(links).to_have_count(n)
    if n:
        assert links.get_attribute("rel") == "noopener noreferrer"


def test_the_report_of_the_calibration_comes_with_the_key_that_may(page: Page, guarded: str) -> None:
    searched(page, guarded)
    page.get_by_role("link", name="How the threshold was calibrated").click()
    expect(page.locator("#key-note")).to_contain_text("This key may not do that")
    use_key(page, ADMIN)
    page.wait_for_selector("#results li")
    with page.expect_download() as download:
        page.get_by_role("link", name="How the threshold was calibrated").click()
    assert "<!doctype html>" in download.value.path().read_text(encoding="utf-8")


def test_without_keys_the_report_is_a_link(
    page: Page, calibrated_dir: Path, make_settings: MakeSettings
) -> None:
    with serving(make_settings(calibrated_dir)) as url:
        page.goto(f"{url}/?{urlencode({'gallery': 'shoes', 'item': ITEM})}")
        with page.expect_popup() as opened:
            page.get_by_role("link", name="How the threshold was calibrated").click()
        expect(opened.value.locator("h1")).to_be_visible()
        assert page.locator("#keys").is_hidden()


def test_the_label_page_asks_for_a_key_too(
    page: Page, guarded: str, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    page.goto(f"{guarded}/label?gallery=shoes")
    use_key(page, READER)
    expect(page.locator("#key-note")).to_contain_text("This key may not do that")
    use_key(page, ADMIN)
    expect(page.locator("#asking")).to_be_visible()
    wait_until(lambda: page.evaluate(f"{SHOWN}.length") == 2)
    page.keyboard.press("s")
    expect(page.locator("#place")).to_have_text("shoes · 1 answer")


def findings(page: Page) -> list[str]:
    """What axe-core finds serious or critical."""
    page.evaluate(AXE_SCRIPT)
    found = page.evaluate("axe.run()")["violations"]
    return [
        f"{one['id']}: {node['html'][:100]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "path", [f"/?{urlencode({'gallery': 'shoes', 'item': ITEM})}", "/label?gallery=shoes"]
)
def test_pages_are_for_everybody(browser: Browser, guarded: str, width: int, scheme: Any, path: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    page.goto(guarded + path)
    expect(page.locator("#keys")).to_be_visible()
    assert findings(page) == []
    use_key(page, ADMIN)
    page.wait_for_selector("#results li" if path.startswith("/?") else "#asking:not([hidden])")
    assert findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()


def test_axe_finds_what_is_wrong(page: Page, guarded: str) -> None:
    """Negative control."""
    page.goto(guarded)
    page.evaluate("document.body.append(document.createElement('input'))")
    assert any(one.startswith("label") for one in findings(page))

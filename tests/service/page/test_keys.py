"""Keys on the page: asked for, kept for the tab alone, and what one may not do is not offered."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.service.page.conftest import ADMIN, READER, WRITER, OpenPlace, Served
from vicinal.service.keys import KeyStore

pytestmark = pytest.mark.slow

REFUSED = ("401",)
WAYS = {
    READER: ["Search", "Photos"],
    WRITER: ["Search", "Photos", "Add"],
    ADMIN: ["Search", "Photos", "Add", "Review", "Calibrate", "Doubles"],
}


def use_key(page: Page, key: str) -> None:
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Use this key").click()


def test_a_key_is_asked_for_and_kept_for_the_tab(demo_with_keys: Served, open_place: OpenPlace) -> None:
    page = open_place(demo_with_keys.url, "g/demo/search", expects=REFUSED)
    expect(page.get_by_role("alert")).to_have_text("This server asks for a key.")
    use_key(page, "wrong")
    expect(page.get_by_text("The server does not know this key.")).to_be_visible()
    use_key(page, "größer")
    expect(page.get_by_text("without spaces")).to_be_visible()
    use_key(page, READER)
    expect(page.get_by_role("heading", level=1)).to_have_text("Search")
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Search")
    # Another tab knows nothing of it.
    other = page.context.new_page()
    other.goto(demo_with_keys.url)
    expect(other.get_by_role("heading", level=1)).to_have_text("Sign in with a key")
    page.get_by_role("link", name="Key").click()
    page.get_by_role("button", name="Forget this key").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in with a key")
    assert page.evaluate("sessionStorage.length + localStorage.length") == 0


def test_no_address_has_the_key_and_pictures_are_there(
    demo_with_keys: Served, open_place: OpenPlace, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    page = open_place(demo_with_keys.url, "g/demo/search", key=READER)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{demo_with_keys.url}/#/g/demo/search?item=backpack-01/1.jpg")
    expect(page.locator(".search-result").first).to_be_visible()
    page.evaluate("document.querySelectorAll('img').forEach((one) => one.loading = 'eager')")
    shown = "[...document.querySelectorAll('img.picture')].filter((one) => one.naturalWidth > 0).length"
    wait_until(lambda: page.evaluate(shown) == page.locator(".search-result").count() + 1)
    assert len(asked) > 10
    assert not any(READER in one for one in [*asked, page.url])
    assert READER not in page.content()


@pytest.mark.parametrize("key", [READER, WRITER, ADMIN])
def test_what_a_key_may_not_do_is_not_offered(
    demo_with_keys: Served, open_place: OpenPlace, key: str
) -> None:
    page = open_place(demo_with_keys.url, "g/demo/search", key=key)
    ways = page.get_by_role("navigation", name="This gallery").get_by_role("link")
    expect(ways).to_have_text(WAYS[key])
    expect(page.get_by_role("link", name="Jobs")).to_have_count(1 if key == ADMIN else 0)
    page.goto(f"{demo_with_keys.url}/#/g/demo/calibrate")
    if key != ADMIN:
        expect(page.locator("main")).to_contain_text("may not do this: it needs the right to run galleries")
    page.goto(f"{demo_with_keys.url}/#/key")
    expect(page.get_by_text("(not with this key)")).to_have_count({READER: 2, WRITER: 1, ADMIN: 0}[key])


def test_a_key_of_one_gallery_sees_that_alone(demo_with_keys: Served, open_place: OpenPlace) -> None:
    demo_with_keys.call("PUT", "v1/galleries/other", params={"space": "clip", "dim": 3})
    store = KeyStore(demo_with_keys.data_dir)
    _, key = store.create("one", ("search", "write", "admin"), galleries=("demo",))
    page = open_place(demo_with_keys.url, "galleries", key=key)
    expect(page.locator("main h2")).to_have_text(["demo"])
    page.goto(f"{demo_with_keys.url}/#/g/other/search")
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no gallery “other”")
    page.goto(f"{demo_with_keys.url}/#/key")
    expect(page.locator("main")).to_contain_text("For these galleries alone:")

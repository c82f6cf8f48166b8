"""Search on the page: with a photo and with an item, what it answers, and what a person says of that."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Page, Request, expect

from tests.service.page.conftest import OpenPlace, Served

pytestmark = pytest.mark.slow


def search_for(page: Page, photo: Path) -> None:
    page.get_by_label("Photo to search with", exact=True).set_input_files(photo)
    expect(page.locator(".search-verdict")).to_be_visible()
    expect(page.locator(".search-found")).to_have_attribute("aria-busy", "false")


def params(page: Page) -> dict[str, str]:
    """What the address says of the search."""
    return {name: values[-1] for name, values in parse_qs(page.url.partition("?")[2]).items()}


def answers(served: Served, page: Page) -> list[tuple[Any, ...]]:
    """What was said of the search that the address names."""
    kept = served.call("GET", f"v1/admin/galleries/{served.gallery}/searches/{params(page)['kept']}")
    return [(one["kind"], one["item_id"], one["label"]) for one in kept["answers"]]


def is_search(request: Request) -> bool:
    return request.method == "POST" and request.url.endswith("/search")


def asked(page: Page, do: Callable[[], object]) -> str:
    """Body of the search that something leads to, once it is answered."""
    with page.expect_response(lambda response: is_search(response.request)) as answered:
        do()
    return answered.value.request.post_data or ""


def test_a_photo_is_searched_for_and_a_result_is_searched_on(shop: Served, open_place: OpenPlace) -> None:
    page = open_place(shop.url, "g/shop/search")
    search_for(page, shop.made.queries[0])
    first = page.locator(".search-result").first
    first.get_by_role("button", name="Look at").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("img")).to_be_visible()
    # In full size, as its file is there.
    assert "/image?id=" in (dialog.locator("img").get_attribute("src") or "")
    expect(dialog).not_to_contain_text("Only this small picture")
    body = asked(page, dialog.get_by_role("button", name="Search with this photo").click)
    assert params(page)["item"] in body
    expect(page.locator(".search-verdict")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("button", name="We have it")).to_be_visible()
    page.get_by_role("button", name="By product").click()
    expect(page.locator(".search-group").first).to_contain_text("photo")


def test_what_a_gallery_lacks_is_no_match_and_that_is_confirmed(demo: Served, open_place: OpenPlace) -> None:
    page = open_place(demo.url, "g/demo/search")
    search_for(page, demo.made.absent[0])
    expect(page.locator(".search-verdict h2")).to_contain_text("No match")
    expect(page.locator(".search-verdict")).to_contain_text("Nothing reaches the threshold")
    page.get_by_role("button", name="We do not have it").click()
    expect(page.locator(".search-asking")).to_contain_text("You said that the gallery does not have it.")
    assert answers(demo, page) == [("absent", None, None)]
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".search-asking")).not_to_contain_text("You said")
    assert answers(demo, page) == []


def test_a_person_says_which_results_are_right(demo: Served, open_place: OpenPlace) -> None:
    page = open_place(demo.url, "g/demo/search")
    search_for(page, demo.made.queries[1])
    label = demo.made.queries[1].parent.name
    first, second = page.locator(".search-result").nth(0), page.locator(".search-result").nth(1)
    first.get_by_role("button", name="Right").click()
    expect(first.get_by_role("button", name="Right")).to_have_attribute("aria-pressed", "true")
    ((kind, item, said),) = answers(demo, page)
    assert (kind, said) == ("item", label)
    second.get_by_role("button", name="Wrong").click()
    expect(second.get_by_role("button", name="Wrong")).to_have_attribute("aria-pressed", "true")
    assert [kind for kind, *_ in answers(demo, page)] == ["item", "wrong"]
    # What was said of the whole is replaced, what was said of one match stays.
    page.get_by_role("button", name="We have it").click()
    other = demo.made.queries[-1].parent.name
    page.get_by_label("Label of the thing in your photo").fill(other)
    page.get_by_role("dialog").get_by_role("button", name=other).click()
    expect(page.locator(".search-asking")).to_contain_text(other)
    assert sorted(answers(demo, page))[0] == ("label", None, other)
    expect(first.get_by_role("button", name="Right")).to_have_attribute("aria-pressed", "false")
    assert item is not None


_GIVE = """([kind, name, text]) => {
  const data = new DataTransfer();
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  data.items.add(new File([bytes], name, { type: "image/jpeg" }));
  const options = { bubbles: true, cancelable: true };
  const event = kind === "paste" ? new ClipboardEvent(kind, { ...options, clipboardData: data })
    : new DragEvent(kind, { ...options, dataTransfer: data });
  document.querySelector("main").dispatchEvent(event);
}"""


@pytest.mark.parametrize("kind", ["paste", "drop"])
def test_a_photo_is_pasted_or_dropped_anywhere(demo: Served, open_place: OpenPlace, kind: str) -> None:
    page = open_place(demo.url, "g/demo/search")
    text = base64.b64encode(demo.made.queries[0].read_bytes()).decode()
    page.evaluate(_GIVE, [kind, "a photo.jpg", text])
    expect(page.locator(".search-verdict")).to_be_visible()
    expect(page.locator(".search-drop")).to_contain_text("a photo.jpg")


def test_a_file_that_is_no_photo_says_so(demo: Served, open_place: OpenPlace, tmp_path: Path) -> None:
    page = open_place(demo.url, "g/demo/search", expects=("400",))
    broken = tmp_path / "photo.jpg"
    broken.write_bytes(b"no image")
    page.get_by_label("Photo to search with", exact=True).set_input_files(broken)
    expect(page.get_by_role("alert")).to_contain_text("This file is no photo that can be read")
    expect(page.locator(".search-result")).to_have_count(0)
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_role("alert")).to_have_count(0)

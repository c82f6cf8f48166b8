"""Why a search was answered so: neighbors, orders, other labels and times, of a query and of a result."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.service.page.conftest import OpenPlace, Served

pytestmark = pytest.mark.slow


def explained(served: Served, item: str) -> dict[str, Any]:
    body = {"item_id": item, "limit": 100, "include_candidates": True, "explain": True}
    found: dict[str, Any] = served.call("POST", f"v1/galleries/{served.gallery}/search", json=body)
    return found


def test_an_answer_is_explained(shop: Served, open_place: OpenPlace) -> None:
    item = shop.call("GET", "v1/galleries/shop/items?size=1")["items"][0]["id"]
    answer = explained(shop, item)
    page = open_place(shop.url, f"g/shop/search?item={item}")
    page.get_by_role("button", name="Why?", exact=True).click()
    why = page.get_by_role("region", name="Why", exact=True)
    expect(why.locator(".search-times")).to_be_visible()
    assert "why=query" in page.url
    neighbors = answer["explanation"]["refinement"]["neighbors"]
    near = why.locator(".search-why-part").nth(0).locator(".search-near")
    expect(near).to_have_count(len(neighbors))
    expect(near.first).to_contain_text(f"alike {neighbors[0]['similarity']:.3f}")
    found = answer["matches"] + answer["candidates"]
    orders = why.locator(".search-order")
    for place, name in enumerate(("initial_similarity", "similarity", "score")):
        best = max(one[name] for one in found)
        expect(orders.nth(place).locator("li").first).to_contain_text(f"{best:.3f}")
    steps = why.locator(".search-times tbody tr")
    expect(steps.filter(has_text="Finding the nearest photos")).to_contain_text("processor")
    why.get_by_role("button", name="Close").click()
    expect(why).to_have_count(0)
    assert "why=" not in page.url


def test_a_result_is_explained_as_if_it_were_searched_for(demo: Served, open_place: OpenPlace) -> None:
    page = open_place(demo.url, "g/demo/search")
    page.get_by_label("Photo to search with", exact=True).set_input_files(demo.made.queries[0])
    page.locator(".search-result").first.get_by_role("button", name="Why").click()
    why = page.get_by_role("region", name="Why", exact=True)
    expect(why).to_contain_text("This photo of the gallery, as if it were searched for.")
    expect(why.locator(".search-times")).to_be_visible()
    # What was searched for stays on the screen, and is asked about.
    expect(page.get_by_role("button", name="We have it")).to_be_visible()

"""One walk through the page: from nothing to a gallery that is searched."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.service.page.conftest import OpenPlace, Served
from tests.service.page.test_adding import choose_folder, write_folders


def test_a_folder_becomes_a_gallery_that_is_searched(
    empty: Served, open_place: OpenPlace, tmp_path: Path
) -> None:
    page = open_place(empty.url)
    expect(page.get_by_role("heading", level=1)).to_have_text("Make your first gallery")
    choose_folder(page, write_folders(tmp_path / "My Things", 24, 3))
    expect(page.get_by_role("heading", name="24 photos")).to_be_visible()
    expect(page.get_by_role("list", name="Labels").get_by_role("listitem")).to_have_count(3)
    expect(page.get_by_label("Name of the gallery")).to_have_value("my-things")
    page.get_by_label("Name of the gallery").fill("Tassen & Töpfe")
    expect(page.get_by_text("It becomes tassen-topfe")).to_be_visible()
    page.get_by_role("button", name="Make it of 24 photos").click()
    expect(page.get_by_role("status").get_by_text("24 photos were added.")).to_be_visible()
    expect(page.get_by_role("link", name="Measure how sure a match is")).to_be_visible()
    body = empty.call("GET", "v1/galleries/tassen-topfe")
    assert (body["n_items"], body["n_labels"]) == (24, 3)
    # What was dropped is a version, which can be calibrated.
    assert empty.call("GET", "v1/galleries/tassen-topfe/compaction")["n_changes"] == 0
    page.get_by_role("link", name="Search in it").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Search")
    page.get_by_label("Photo to search with").set_input_files(tmp_path / "My Things" / "thing 1" / "4.jpg")
    expect(page.locator(".search-result").first.locator("img")).to_be_visible()
    expect(page.locator(".search-result").first).to_contain_text("thing 1")
    page.get_by_role("navigation", name="This gallery").get_by_role("link", name="Photos").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("tassen-topfe")

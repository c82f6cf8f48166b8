"""Doubles: kept by a rule, called no doubles, and deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.photos import write_album
from tests.service.page.conftest import ADMIN, KEYS, Made, OpenPlace, Served, _settings, served_fixture
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import read_source
from vicinal.service.duplicates.finding import DuplicateStore, find_duplicates
from vicinal.service.duplicates.record import DuplicateOptions
from vicinal.service.galleries.bundles import ServedBundles

pytestmark = pytest.mark.slow

# Groups of 8 photos, of which each has a copy: some the same file, the others changed.
N = 8
LOOKER = "a-key-that-looks"


@pytest.fixture(scope="session")
def album_made(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Made:
    """Photos with a copy of each in another folder, which were looked through."""

    def make(folder: Path) -> None:
        photos, copies = folder / "photos" / "2024", folder / "photos" / "phone"
        write_album(photos, N)
        copies.mkdir()
        for path in photos.glob("x copy *"):
            path.rename(copies / path.name)
        settings = _settings(folder / "data")
        own = ServedBundles(settings).own
        gallery = Gallery(settings.gallery_path("album"), refinement=own.refinement)
        index_items(gallery, read_source(folder / "photos"), own.embedder, workers=1)
        view = GalleryReader(gallery).view()
        options = DuplicateOptions(precision=0.5)
        record = find_duplicates(gallery, view, options, "20260101-000000-aaaa")
        DuplicateStore(gallery.path).keep_newest(record)

    return Made("album", made_once("page-album", make) / "data", (), ())


album = served_fixture("album")
album_with_keys = served_fixture("album", {**KEYS, LOOKER: ("search", "admin")})


def groups(page: Page) -> Locator:
    return page.locator(".doubles-group")


def ids(served: Served) -> set[str]:
    return {one["id"] for one in served.call("GET", "v1/galleries/album/items?size=1000")["items"]}


def ticked(page: Page) -> set[str]:
    boxes = page.locator(".doubles-photo input:checked")
    found: list[str] = boxes.evaluate_all("(all) => all.map((one) => one.dataset.id)")
    return set(found)


def confirm(page: Page, n: int) -> None:
    page.get_by_role("button", name="Delete ticked").click()
    page.get_by_role("dialog").get_by_role("button", name=f"Delete {n} photo").click()


@pytest.mark.parametrize("by_keys", [False, True])
def test_what_a_rule_ticks_goes_with_one_confirmation(
    album_with_keys: Served, open_place: OpenPlace, by_keys: bool
) -> None:
    page = open_place(album_with_keys.url, "g/album/doubles", key=ADMIN)
    expect(groups(page).first).to_be_visible()
    n = groups(page).count()
    assert len(ticked(page)) == n
    page.get_by_label("Of each group keep").select_option("folder")
    page.get_by_label("Folder whose photos stay").fill(_folder(album_with_keys, "phone"))
    page.keyboard.press("Tab")
    expect(page.locator(".doubles-photo.stays").filter(has_text="x copy")).to_have_count(n)
    going = ticked(page)
    assert all(one.startswith("2024/") for one in going)
    if by_keys:
        page.keyboard.press("j")
        page.keyboard.press("Delete")
        page.get_by_role("dialog").get_by_role("button", name=f"Delete {n} photos").click()
    else:
        confirm(page, n)
    expect(page.locator(".notice")).to_contain_text(f"{n} photos deleted.")
    expect(page.get_by_role("heading", name="No doubles")).to_be_visible()
    assert not ids(album_with_keys) & going
    page.reload()
    expect(page.get_by_role("heading", name="No doubles")).to_be_visible()


def test_what_was_deleted_can_come_back_and_other_labels_are_told(
    album: Served, open_place: OpenPlace
) -> None:
    page = open_place(album.url, "g/album/doubles")
    expect(groups(page).first).to_be_visible()
    before, n = ids(album), len(ticked(page))
    confirm(page, n)
    notice = page.locator(".notice")
    expect(notice).to_contain_text("keeps its label")
    assert len(ids(album)) == len(before) - n
    notice.get_by_role("button", name="Undo").click()
    expect(groups(page).first).to_be_visible()
    assert ids(album) == before


def _folder(served: Served, name: str) -> str:
    """Folder of photos, as their items have it."""
    items = served.call("GET", "v1/galleries/album/items?size=1000")["items"]
    return next(one["uri"].rpartition("/")[0] for one in items if f"/{name}/" in one["uri"])


def test_not_the_same_is_remembered_and_taken_back(album: Served, open_place: OpenPlace) -> None:
    page = open_place(album.url, "g/album/doubles")
    expect(groups(page).first).to_be_visible()
    n = groups(page).count()
    changed = groups(page).filter(has=page.get_by_role("button", name="Not the same")).first
    changed.get_by_role("button", name="Not the same").click()
    expect(groups(page)).to_have_count(n - 1)
    notice = page.locator(".notice")
    expect(notice).to_contain_text("not called doubles again")
    assert len(album.call("GET", "v1/admin/galleries/album/duplicates/verdicts")) == 1
    notice.get_by_role("button", name="Undo").click()
    expect(groups(page)).to_have_count(n)
    assert album.call("GET", "v1/admin/galleries/album/duplicates/verdicts") == []

"""Somebody who has read nothing, with photos of their own: from an empty page to a gallery that is measured,
answered for, and without doubles, by what can be read and pressed alone.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.service.page.conftest import Made, OpenPlace, _settings
from vicinal.service.http.serving.server import serving

pytestmark = pytest.mark.slow

N_THINGS, LEAST_ANSWERS, MOST_ANSWERS = 14, 10, 20


@pytest.fixture
def shop(demo_made: Made, tmp_path: Path) -> Path:
    """Photos in a folder for each thing, two of them twice, and a list of prices."""
    folder, catalog = tmp_path / "My Shop", demo_made.data_dir.parent / "catalog" / "gallery"
    for thing in sorted(catalog.iterdir())[:N_THINGS]:
        shutil.copytree(thing, folder / thing.name)
    for path in sorted(folder.rglob("*.jpg"))[:10:5]:
        shutil.copy(path, path.with_name(f"copy of {path.name}"))
    (folder / "prices.txt").write_text("tea 3.20")
    return folder


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A server with nothing in it."""
    with serving(_settings(tmp_path / "data", keep_searches=100)) as address:
        yield address


def a_label(photos: Iterable[Path]) -> list[Path]:
    """The first photo of each thing."""
    return [next(some) for _, some in groupby(photos, key=lambda one: one.parent)]


def between(page: Page) -> list[float]:
    """How wide the bars are that stand under what is known now."""
    known = page.get_by_role("complementary", name="What is known now").inner_text()
    return [
        float(high) - float(low)
        for low, high in re.findall(r"between\D+([\d.]+)\s%\sand\D+([\d.]+)\s%", known)
    ]


def test_a_newcomer_comes_from_an_empty_page_to_a_gallery_without_doubles(
    url: str, shop: Path, demo_made: Made, open_place: OpenPlace, shot: Callable[[Page, str], None]
) -> None:
    def go(name: str) -> None:
        page.get_by_role("navigation", name="This gallery").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)

    def search(path: Path, label: str | None) -> None:
        page.get_by_label("Photo to search with").set_input_files(path)
        expect(page.get_by_text(path.name, exact=True)).to_be_visible()
        expect(page).to_have_url(re.compile("kept="))
        kept = page.url.rpartition("kept=")[2]
        assert kept not in labels
        labels[kept] = label

    labels: dict[str, str | None] = {}
    things = {one.name for one in shop.iterdir()}
    had = a_label(one for one in demo_made.queries if one.parent.name in things)
    page = open_place(url)
    expect(page.get_by_role("heading", level=1)).to_have_text("Make your first gallery")
    page.get_by_label("Choose a folder").set_input_files(shop)
    page.get_by_role("button", name=re.compile("Make it of .* photos")).click()
    expect(page.get_by_role("status").get_by_text("photos were added.")).to_be_visible()
    page.get_by_role("link", name="Search in it").click()
    search(had[0], had[0].parent.name)
    expect(page.get_by_role("heading", name=re.compile("(Match|Not sure|No match)$"))).to_be_visible()
    shot(page, "newcomer-search")

    page.get_by_role("link", name="Measure it").click()
    page.get_by_role("button", name="Calibrate", exact=True).click()
    expect(page.get_by_text("Calibrated: searches are decided by it")).to_be_visible()
    shot(page, "newcomer-calibrated")

    go("Search")
    for path in had[1:]:
        search(path, path.parent.name)
    for path in a_label(demo_made.absent):
        search(path, None)

    go("Review")
    widths = []
    asked, none = (
        page.get_by_alt_text("What was searched for"),
        page.get_by_text("There is nothing left to ask"),
    )
    for n in range(1, MOST_ANSWERS + 1):
        expect(asked.or_(none)).to_be_visible()
        # Of photos that may be of one visit, one is asked about.
        if none.is_visible():
            break
        label = labels[re.findall("searches/([0-9a-f]+)/", asked.get_attribute("src") or "")[0]]
        name = re.compile("We don't have it" if label is None else f"^{re.escape(label)}")
        page.get_by_role("button", name=name).first.click()
        expect(page.get_by_text(f"{n} answer{'s' if n > 1 else ''}", exact=True)).to_be_visible()
        widths += [min(between(page), default=100.0)]
    shot(page, "newcomer-reviewed")
    assert len(widths) >= LEAST_ANSWERS
    # Chance says which are asked about; the surer of the two bars is narrower in any case.
    assert widths[-1] < widths[0]

    go("Doubles")
    page.get_by_role("button", name="Look for doubles").click()
    expect(page.get_by_role("button", name="Delete ticked")).to_be_visible()
    page.get_by_role("button", name="Delete ticked").click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("^Delete .* photos$")).click()
    expect(page.get_by_text(re.compile("^[0-9]+ photos deleted.$"))).to_be_visible()
    shot(page, "newcomer-done")

"""Each place at each width, in both colours: for everybody, within the window, pressed by a finger."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browsers import findings, fits, small_targets
from tests.service.page.conftest import OpenPlace, Served

pytestmark = pytest.mark.slow

WIDTHS, SCHEMES = (360, 1280, 1920), ("light", "dark")
PLACES = {
    "galleries": "galleries",
    "gallery": "g/demo",
    "search": "g/demo/search?item=backpack-01/1.jpg",
    "add": "g/demo/add",
    "review": "g/demo/review",
    "pairs": "g/demo/pairs",
    "calibrate": "g/demo/calibrate",
    "doubles": "g/demo/doubles",
    "jobs": "jobs",
    "key": "key",
}


@pytest.mark.parametrize("name", PLACES)
def test_a_place_is_for_everybody_on_every_screen(
    demo: Served, open_place: OpenPlace, shot: Callable[[Page, str], None], name: str
) -> None:
    page = open_place(demo.url, PLACES[name])
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800 if width < 640 else 900})
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            expect(page.locator("main .waiting")).to_have_count(0)
            assert (width, scheme, findings(page)) == (width, scheme, [])
            assert fits(page), (width, scheme)
            assert (width, scheme, small_targets(page)) == (width, scheme, [])
            shot(page, f"place-{name}")

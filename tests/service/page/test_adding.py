"""Photos on their way into a gallery: progress, what is left out and why, and nothing that comes twice."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.photos import draw_photo
from tests.service.page.conftest import Made, OpenPlace, Served

pytestmark = pytest.mark.slow

ITEMS = "**/v1/galleries/*/items"
HOSTILE = "<img src=x onerror=alert(1)>\u202egnp.jpg"


def photo(seed: int) -> bytes:
    stream = io.BytesIO()
    draw_photo(seed, (64, 48)).save(stream, "JPEG")
    return stream.getvalue()


def write_folders(folder: Path, n: int, labels: int) -> Path:
    """A folder with photos in folders by what they show."""
    for number in range(n):
        path = folder / f"thing {number % labels}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photo(number))
    return folder


def choose_folder(page: Page, folder: Path) -> None:
    page.locator("input[webkitdirectory]").set_input_files(folder)


def drop(page: Page, files: dict[str, bytes]) -> None:
    """Drop files onto the page, as a file manager does."""
    page.evaluate(
        """(files) => {
          const given = new DataTransfer();
          for (const [name, bytes] of files) {
            given.items.add(new File([new Uint8Array(bytes)], name, {type: 'image/jpeg'}));
          }
          const options = {dataTransfer: given, bubbles: true, cancelable: true};
          const place = document.querySelector('main');
          place.dispatchEvent(new DragEvent('dragover', options));
          place.dispatchEvent(new DragEvent('drop', options));
        }""",
        [[name, list(content)] for name, content in files.items()],
    )


@pytest.fixture
def things(empty: Served) -> Served:
    """The same with a gallery that nothing is in."""
    empty.call("PUT", "v1/galleries/things")
    return empty


def n_items(served: Served) -> int:
    return int(served.call("GET", f"v1/galleries/{served.gallery}")["n_items"])


def test_500_files_at_once_come_once(
    empty: Served, open_place: OpenPlace, shot: Callable[[Page, str], None], tmp_path: Path
) -> None:
    folder = write_folders(tmp_path / "shop", 500, 20)
    (folder / "thing 0" / HOSTILE).write_bytes(b"no photo at all")
    (folder / "thing 0" / "empty.jpg").touch()
    (folder / "prices.csv").write_text("a,b")
    (folder / ".DS_Store").write_bytes(b"of a system")
    page = open_place(empty.url, "galleries?make=1")
    choose_folder(page, folder)
    expect(page.get_by_role("heading", name="501 photos")).to_be_visible()
    page.get_by_role("button", name="Make it of 501 photos").click()
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.get_by_text("500 photos were added.")).to_be_visible()
    left = page.get_by_role("region", name="Left out")
    expect(left.get_by_role("heading")).to_have_text("Left out: 3")
    for said in (
        "is no photo that can be read",
        "The file is empty.",
        "It is no photo.",
        "prices.csv",
        "onerror=alert(1)>\\u{202e}",
    ):
        expect(left).to_contain_text(said)
    shot(page, "left-out")
    shop = Served(empty.url, Made("shop", empty.data_dir, (), ()), empty.data_dir)
    assert n_items(shop) == 500
    page.goto(f"{empty.url}/#/g/shop/add")
    choose_folder(page, folder)
    page.get_by_role("button", name="Add 501 photos").click()
    expect(page.get_by_text("500 photos were there already.")).to_be_visible()
    assert n_items(shop) == 500


def test_an_answer_that_is_lost_adds_nothing_twice(things: Served, open_place: OpenPlace) -> None:
    lost = []

    def lose_first(route: Route) -> None:
        # The server has taken the photos, and nobody hears of it; two parts may be under way.
        if lost:
            route.continue_()
            return
        lost.append(route.fetch().status)
        route.abort()

    page = open_place(things.url, "g/things/add", expects=("ERR_FAILED",))
    page.route(ITEMS, lose_first)
    drop(page, {f"{number}.jpg": photo(number) for number in range(12)})
    page.get_by_role("button", name="Add 12 photos").click()
    expect(page.get_by_role("status").filter(has_text="there already.")).to_be_visible()
    assert (set(lost), n_items(things)) == ({200}, 12)


def test_a_busy_server_is_waited_for(things: Served, open_place: OpenPlace) -> None:
    waits = threading.Event()

    def busy_once(route: Route) -> None:
        if waits.is_set():
            route.continue_()
            return
        waits.set()
        body = {"type": "urn:vicinal:problem:too-many-requests", "detail": "too much", "status": 429}
        route.fulfill(
            status=429,
            headers={"Retry-After": "1"},
            content_type="application/problem+json",
            body=json.dumps(body),
        )

    page = open_place(things.url, "g/things/add", expects=("429",))
    page.route(ITEMS, busy_once)
    drop(page, {"1.jpg": photo(1)})
    page.get_by_role("button", name="Add 1 photo").click()
    expect(page.get_by_text("Waiting: Too much is asked at once.")).to_be_visible()
    expect(page.get_by_text("1 photo was added.")).to_be_visible()

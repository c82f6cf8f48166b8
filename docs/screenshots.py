"""Screenshots of the page for the README: a match, an answer that is unsure, and calibrating.

Run it from the root of the repository (`make screenshots`): it makes the demo gallery in a folder of its own,
serves it, and takes pictures with Chromium.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vicinal.models.bundle import default_bundle_path
from vicinal.service.demo import GALLERY, prepare_demo
from vicinal.service.http.serving.server import serving
from vicinal.service.settings import Settings

IMAGES = Path(__file__).resolve().parent / "images"
WIDTH, HEIGHT = 1280, 1000
# Where the slider stands: a little looser than what is in force, so that photos change sides.
_LOOSER = 0.04


def with_verdict(url: str, photos: Sequence[Path], verdict: str) -> Path:
    """The first photo that is answered so.

    Raises:
        LookupError: None is.
    """
    for photo in photos:
        answer = httpx.post(
            f"{url}/v1/galleries/{GALLERY}/search", files={"image": photo.read_bytes()}, timeout=60.0
        )
        if answer.raise_for_status().json()["verdict"] == verdict:
            return photo
    raise LookupError(f"none of {len(photos)} photos is answered by '{verdict}'")


def searched(page: Page, url: str, photo: Path) -> None:
    """Search with a photo."""
    page.goto(f"{url}/#/g/{GALLERY}/search")
    page.get_by_label("Photo to search with", exact=True).set_input_files(photo)
    expect(page.locator(".search-result img").first).to_be_visible(timeout=60_000)


def calibrating(page: Page, url: str) -> None:
    """The slider, a little moved."""
    page.goto(f"{url}/#/g/{GALLERY}/calibrate")
    expect(page.locator(".uplot canvas")).to_be_visible(timeout=60_000)
    with page.expect_response("**/dry_run"):
        page.get_by_role("slider").evaluate(
            "(one, by) => { one.value -= by; one.dispatchEvent(new Event('input', {bubbles: true})); }",
            _LOOSER,
        )
    expect(page.locator(".calibrate-moved img").first).to_be_visible()


def shoot(browser: Browser, name: str, show: Callable[[Page], None]) -> None:
    """Keep what a page shows as `docs/images/NAME.png`."""
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    show(page)
    page.wait_for_load_state("networkidle")
    # A function: the page's policy evaluates no text.
    page.wait_for_function(
        """() => [...document.images]
          .every((one) => one.complete || one.getBoundingClientRect().top > innerHeight)"""
    )
    # What moves has come to rest.
    page.evaluate("Promise.all(document.getAnimations().map((one) => one.finished))")
    taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    taken.save(IMAGES / f"{name}.png", optimize=True)
    page.close()


def main() -> None:
    """Take all of them."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as web:
        made = prepare_demo(Path(folder), Settings(bundle=default_bundle_path()), lambda *_: None)
        photos = [*made.catalog.query_images, *made.catalog.absent_images]
        with serving(made.settings) as url:
            browser = web.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            match, unsure = (with_verdict(url, photos, one) for one in ("match", "unsure"))
            shoot(browser, "search-match", lambda page: searched(page, url, match))
            shoot(browser, "search-unsure", lambda page: searched(page, url, unsure))
            shoot(browser, "calibrate", lambda page: calibrating(page, url))
            browser.close()


if __name__ == "__main__":
    main()

"""What the page takes in a real browser: bytes of each place, an answer until it is seen, photos that are
scrolled through, and a calibration whose slider moves.

    python -m benchmarks.load.page --folder build/page [--only first_result]

A server as a process of its own over the demo gallery, and Chromium without a window beside it. Each function
of `MEASURES` is given an open page and what it measures with; its figures stand in the result under its name.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright

from benchmarks.common.record import RESULTS, percentiles, save_result
from benchmarks.common.server_process import running_server
from benchmarks.load.scrolling import scroll
from vicinal.models.bundle import default_bundle_path
from vicinal.service.demo import prepare_demo
from vicinal.service.settings import Settings

_SHOTS = 40
# Notes when the first result and its picture were painted after the answer of a search was there.
_WATCH = """
  const painted = (note) => requestAnimationFrame(() => setTimeout(() => note(performance.now())));
  new MutationObserver(() => {
    const result = document.querySelector(".search-result:not([data-timed])");
    if (!result) return;
    result.dataset.timed = "1";
    painted((at) => { window.result = at; });
    const look = () => {
      const picture = result.querySelector("img.picture");
      if (picture?.complete && picture.naturalWidth) painted((at) => {
        const answer = performance.getEntriesByType("resource").find((one) => one.name.endsWith("/search"));
        window.seen = [window.result - answer.responseEnd, at - answer.responseEnd];
        document.documentElement.dataset.timed = "1";
      });
      else if (result.isConnected) setTimeout(look, 2);
    };
    look();
  }).observe(document, { childList: true, subtree: true });
"""


_QUERIES, _SLIDE_FRAMES = 10_000, 600
# Moves the slider up and down, a step a frame, and answers the milliseconds between frames.
_SLIDE = """
  (frames) => new Promise((done) => {
    const slider = document.querySelector("input[type=range]");
    const [low, high] = [Number(slider.min), Number(slider.max)];
    const gaps = [];
    let last = null;
    const step = (now) => {
      if (last !== null) gaps.push(now - last);
      last = now;
      if (gaps.length >= frames) { done(gaps); return; }
      slider.value = low + (high - low) * (0.5 - 0.5 * Math.cos(gaps.length / 40));
      slider.dispatchEvent(new Event("input", { bubbles: true }));
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  })
"""


_PLACES = ("search", "add", "review", "pairs", "calibrate", "doubles")
# Bytes of the bodies of the page's own files as they came, by their addresses.
_SENT = """
  () => Object.fromEntries(performance.getEntries()
    .filter((one) => ["navigation", "resource"].includes(one.entryType))
    .filter((one) => one.entryType === "navigation" || new URL(one.name).pathname.includes("/page/"))
    .map((one) => [one.name.split("#")[0], one.encodedBodySize]))
"""


@dataclass(frozen=True)
class Place:
    """What is measured with: the address of a server, and photos to search with."""

    url: str
    photos: Sequence[Path]


def weights(page: Page, place: Place) -> dict[str, Any]:
    """Bytes of the page as they are sent, gzipped and without pictures and answers: of the first visit of a
    place each, and of all places together.
    """
    visits, together = {}, {}
    for name in ("galleries", "g/demo", *(f"g/demo/{one}" for one in _PLACES), "jobs", "key"):
        page.goto("about:blank")
        page.goto(f"{place.url}/#/{name}", wait_until="networkidle")
        page.wait_for_selector("main h1")
        sent: dict[str, int] = page.evaluate(_SENT)
        visits[name] = sum(sent.values())
        together |= sent
    return {
        "visit_bytes": visits,
        "most_of_a_visit": max(visits.values()),
        "together": sum(together.values()),
    }


def first_result(page: Page, place: Place) -> dict[str, Any]:
    """Milliseconds from the last byte of an answer to its first result, painted, and to the picture of it."""
    page.add_init_script(_WATCH)
    results, pictures = [], []
    for path in place.photos[:_SHOTS]:
        # Each as the first search of a page that was just opened.
        page.goto("about:blank")
        page.goto(f"{place.url}/#/g/demo/search")
        page.get_by_label("Photo to search with", exact=True).set_input_files(path)
        page.wait_for_selector("html[data-timed]", state="attached")
        result, picture = page.evaluate("window.seen")
        results.append(result)
        pictures.append(picture)
    return {"n": len(results), "result_ms": percentiles(results), "picture_ms": percentiles(pictures)}


def scrolling(page: Page, place: Place) -> dict[str, Any]:
    """Frames while the photos of a gallery of 100,000 are scrolled through."""
    return scroll(page, place.url, place.photos[0].read_bytes())


def slider_frames(page: Page, place: Place) -> dict[str, Any]:
    """Frames while the slider of a calibration moves over 10,000 queries, a step a frame, and milliseconds
    between them; scores are drawn, pictures are those of the gallery.
    """
    page.route("**/points", lambda route: route.fulfill(json=_many_points(route.fetch().json())))
    page.goto(f"{place.url}/#/g/demo/calibrate")
    page.wait_for_selector(".uplot canvas")
    gaps: list[float] = page.evaluate(_SLIDE, _SLIDE_FRAMES)
    taken = sum(gaps) / 1000.0
    return {
        "n_queries": _QUERIES,
        "frames": len(gaps),
        "frames_a_second": round(len(gaps) / taken, 1),
        "frame_ms": percentiles(gaps),
    }


def _many_points(body: dict[str, Any]) -> dict[str, Any]:
    """So many queries, each like one that was measured, with a score a little beside."""
    rng, queries = np.random.default_rng(0), body["queries"]
    rows = rng.integers(len(queries["id"]), size=_QUERIES).tolist()
    many = {name: column and [column[row] for row in rows] for name, column in queries.items()}
    for name in ("mate_score", "stranger_score"):
        beside = rng.normal(0.0, 0.02, _QUERIES).tolist()
        many[name] = [
            one if one is None else min(1.0, max(0.0, one + by))
            for one, by in zip(many[name], beside, strict=True)
        ]
    return {**body, "n_queries": _QUERIES, "queries": many}


MEASURES: dict[str, Callable[[Page, Place], dict[str, Any]]] = {
    "weights": weights,
    "first_result": first_result,
    "scrolling": scrolling,
    "slider_frames": slider_frames,
}


def main() -> None:
    """Make the gallery, measure, and write the result; what is not measured again stays in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", choices=sorted(MEASURES), nargs="*")
    arguments = parser.parse_args()
    data_dir, bundle = arguments.folder / "data", default_bundle_path()
    if not data_dir.exists():
        arguments.folder.mkdir(parents=True, exist_ok=True)
        prepare_demo(arguments.folder, Settings(bundle=bundle), lambda *_: None)
    photos = sorted((arguments.folder / "catalog" / "queries").rglob("*.jpg"))
    before = RESULTS / "page.json"
    kept = json.loads(before.read_text())["measured"] if before.exists() else {}
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with (
        running_server(data_dir, bundle, {"VICINAL_KEEP_SEARCHES": "100"}) as (url, _),
        sync_playwright() as web,
    ):
        browser = web.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        version = browser.version
        for name in arguments.only or MEASURES:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            kept[name] = MEASURES[name](page, Place(url, photos))
            print(name, json.dumps(kept[name]), flush=True)
            page.close()
        browser.close()
    save_result("page", {"browser": version, "measured": kept})


if __name__ == "__main__":
    main()

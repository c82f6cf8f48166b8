"""Frames while the photos of a gallery of 100,000 are scrolled through, as a person does and in one jump."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, Route

from benchmarks.common.record import percentiles

_N = 100_000
_SECONDS = 5
# A wheel that turns all the time: what is between two frames is noted.
_SCROLL = """(seconds) => new Promise((done) => {
  const seen = [], end = performance.now() + 1000 * seconds;
  let last = performance.now();
  const frame = (now) => {
    seen.push(now - last);
    last = now;
    scrollBy(0, 60);
    if (now < end) requestAnimationFrame(frame); else done(seen.slice(1));
  };
  requestAnimationFrame(frame);
})"""
_JUMP = """() => new Promise((done) => {
  const began = performance.now();
  scrollTo(0, document.body.scrollHeight);
  const look = () => {
    const all = [...document.querySelectorAll(".gallery-item")];
    if (all.some((one) => one.textContent.trim() === "photo 99999")) done(performance.now() - began);
    else requestAnimationFrame(look);
  };
  look();
})"""


def _answer(route: Route) -> None:
    query = parse_qs(urlsplit(route.request.url).query)
    first, size = int(query["at"][0]), int(query["size"][0])
    items = [
        {"id": f"{one}.jpg", "label": f"photo {one}", "uri": "", "metadata": {}}
        for one in range(first, min(first + size, _N))
    ]
    body = {"items": items, "next": None, "n_items": _N}
    route.fulfill(content_type="application/json", body=json.dumps(body))


def scroll(page: Page, url: str, picture: bytes) -> dict[str, Any]:
    """Milliseconds between frames of five seconds, and until the last photo is there after a jump.

    Items and pictures are answered in the browser's place: what is measured is the page.
    """
    page.route("**/v1/galleries/demo/items?*", _answer)
    page.route("**/thumbnail?*", lambda route: route.fulfill(content_type="image/jpeg", body=picture))
    page.goto(f"{url}/#/g/demo")
    page.wait_for_selector(".gallery-item img")
    frames = page.evaluate(_SCROLL, _SECONDS)
    jumped = page.evaluate(_JUMP)
    return {
        "n_items": _N,
        "frames_a_second": round(1000 * len(frames) / sum(frames), 1),
        "between_frames_ms": {**percentiles(frames), "longest": round(max(frames), 1)},
        "to_the_last_ms": round(jumped),
    }

"""A real browser for tests of pages, and what is looked at on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.programs import program

_SERIOUS = ("serious", "critical")
# In milliseconds, and long enough for a busy machine: what is expected ends the wait at once.
expect.set_options(timeout=60_000)


def chromium() -> str:
    """Path of the browser; the test is skipped where there is none."""
    return program("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def start_browser() -> Iterator[Callable[..., Browser]]:
    """Starts a browser with further options of the command line."""
    path = chromium()
    with sync_playwright() as playwright, ExitStack() as running:

        def start(*options: str) -> Browser:
            # A sandbox needs rights that a container does not give; the pages are our own.
            arguments = ["--no-sandbox", *options]
            started = playwright.chromium.launch(executable_path=path, args=arguments)
            running.callback(started.close)
            return started

        yield start


@pytest.fixture(scope="module")
def browser(start_browser: Callable[..., Browser]) -> Browser:
    return start_browser()


def settle(page: Page) -> None:
    """Wait for what is loaded and drawn, as far as it is in the window."""
    page.evaluate(
        """async () => {
          const isSeen = (one) => {
            const { top, bottom } = one.getBoundingClientRect();
            return bottom > 0 && top < innerHeight && one.checkVisibility();
          };
          const waits = () => [...document.querySelectorAll('.waiting, span.picture:empty, img')]
            .some((one) => isSeen(one) && !one.complete);
          const until = performance.now() + 30_000;
          do await new Promise(requestAnimationFrame); while (waits() && performance.now() < until);
        }"""
    )


def findings(page: Page, *rules: str) -> list[str]:
    """What axe-core finds serious or critical, by all its rules or some."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found = page.evaluate("(options) => axe.run(options)", options)["violations"]
    return [
        f"{one['id']}: {node['html'][:100]}"
        for one in found
        if one["impact"] in _SERIOUS
        for node in one["nodes"]
    ]


def fits(page: Page) -> bool:
    """Tell whether nothing is wider than the window."""
    is_as_wide: bool = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return is_as_wide


def small_targets(page: Page, least: int = 40) -> list[str]:
    """What is pressed, by its label too, and is lower than a finger needs; links within a text are none."""
    found: list[str] = page.evaluate(
        """(least) => [...document.querySelectorAll('button, select, input, summary, a.button, a.way')]
          .filter((one) => one.checkVisibility() && !one.matches('.skip'))
          .filter((one) => ![one, ...(one.labels ?? [])].some((part) => part.offsetHeight >= least))
          .map((one) => one.outerHTML.slice(0, 100))""",
        least,
    )
    return found

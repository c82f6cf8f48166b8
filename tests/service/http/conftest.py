"""A real browser for the pages of the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.programs import program


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

"""A real browser for the pages of the server."""

from __future__ import annotations

from tests.browsers import browser, start_browser

__all__ = ["browser", "start_browser"]

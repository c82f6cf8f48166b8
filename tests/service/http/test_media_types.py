"""Media types: what a client prefers is what it gets."""

from __future__ import annotations

import pytest

from vicinal.service.http.media_types import preferred_media_type

OFFERED = ("application/json", "text/html")
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, "application/json"),
        ("", "application/json"),
        ("*/*", "application/json"),
        (BROWSER, "text/html"),
        ("application/json", "application/json"),
        ("text/html;q=0.5, application/json;q=0.4", "text/html"),
        ("text/html;q=0.4, application/json;q=0.5", "application/json"),
        ("text/*", "text/html"),
        ("text/html;q=0, */*", "application/json"),
        ("TEXT/HTML", "text/html"),
        ("image/png", "application/json"),
        ("text/html;q=nonsense, application/json;q=0.1", "application/json"),
    ],
)
def test_the_best_liked_form_is_chosen(accept: str | None, expected: str) -> None:
    assert preferred_media_type(accept, OFFERED) == expected

"""The web page: try a search in the browser."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

__all__ = ["router"]

# Style and script stand in the page itself; nothing else is loaded from anywhere but this server.
_POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
)
router = APIRouter(include_in_schema=False)


@router.get("/")
def page() -> HTMLResponse:
    """The search page; it uses the HTTP API and loads nothing from elsewhere."""
    html = (files("vicinal.service") / "static" / "index.html").read_text(encoding="utf-8")
    return HTMLResponse(html, headers={"Content-Security-Policy": _POLICY})

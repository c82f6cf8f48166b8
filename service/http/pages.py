"""Pages: HTML that may run its own scripts only."""

from __future__ import annotations

import base64
import hashlib
import re

from fastapi.responses import HTMLResponse

from vicinal.service.http.gate import NOTHING

_INLINE = re.compile("<(script|style)>(.*?)</(?:script|style)>", re.DOTALL)


def html_page(html: str, *, shipped: str, **sources: str) -> HTMLResponse:
    """Page whose own scripts and styles, by the hashes of `shipped`, may run, and `sources` be loaded."""
    hashes: dict[str, list[str]] = {}
    for kind, text in _INLINE.findall(shipped):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes.setdefault(kind, []).append(f"'sha256-{digest}'")
    allowed = [
        " ".join([f"{kind}-src", *hashes.get(kind, ()), *sources.get(kind, "").split()])
        for kind in sorted({*hashes, *sources})
    ]
    return HTMLResponse(html, headers={"Content-Security-Policy": "; ".join([NOTHING, *allowed])})

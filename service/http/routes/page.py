"""The page: a shell, the same at each of its addresses, and its files at addresses that change with them."""

from __future__ import annotations

from fastapi import HTTPException, Request, Response
from fastapi.responses import HTMLResponse

from vicinal.service.http.gate import NOTHING, OpenRoute, Routes
from vicinal.service.http.page_files import page_files
from vicinal.service.http.state import StateDependency
from vicinal.service.request_fields import RequestFields

router = Routes(tags=["page"], route_class=OpenRoute, include_in_schema=False)

# Scripts and styles are files of this server alone, and no text ever becomes an element.
POLICY = (
    f"{NOTHING}; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_KEPT = "public, max-age=31536000, immutable"


@router.get("/")
@router.get("/label")
@router.get("/review")
def page() -> HTMLResponse:
    """The page; it uses the HTTP API, loads nothing from elsewhere, and keeps addresses of old pages."""
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return HTMLResponse(page_files().shell, headers=headers)


@router.get("/page/{digest}/{path:path}")
def page_file(digest: str, path: str, request: Request) -> Response:
    """A file of the page, of this version alone: those of two do not go together."""
    found = page_files()
    one = found.files.get(path)
    if digest != found.digest or one is None:
        raise HTTPException(404, "this page is of an older version: reload it")
    headers = {"Cache-Control": _KEPT, "Vary": "Accept-Encoding"}
    packs = "gzip" in request.headers.get("accept-encoding", "")
    if packs:
        headers["Content-Encoding"] = "gzip"
    return Response(one.packed if packs else one.content, media_type=one.media_type, headers=headers)


class LentKeyBody(RequestFields):
    """Lent key that a page was opened with, and that may be used once."""

    token: str


@router.post("/label/key")
def redeem_token(body: LentKeyBody, state: StateDependency) -> dict[str, str]:
    """The key of a page that a command opened."""
    key = state.keyring.redeem(body.token)
    if key is None:
        raise HTTPException(404, "this address was opened before: stop the command and start it again")
    return {"key": key}

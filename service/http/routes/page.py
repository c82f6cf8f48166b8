"""The page: a shell, the same at each of its addresses, and its files at addresses that change with them."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import HTMLResponse

from vicinal.service.http.gate import NOTHING, OpenRoute
from vicinal.service.http.state import StateDependency
from vicinal.service.request_fields import Request as Asked

router = APIRouter(tags=["page"], route_class=OpenRoute, include_in_schema=False)

# Scripts and styles are files of this server alone, and no text ever becomes an element.
POLICY = (
    f"{NOTHING}; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_FOLDER = Path(__file__).resolve().parents[2] / "static"
_SHELL, _DIGEST = "index.html", "{digest}"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".json": "application/json", "": "text/plain"}
_KEPT = "public, max-age=31536000, immutable"
_DIGITS = 12


@dataclass(frozen=True)
class PageFile:
    """A file of the page, as it is and packed."""

    media_type: str
    content: bytes
    packed: bytes


@dataclass(frozen=True)
class PageFiles:
    """All files of the page at one moment.

    Attributes:
        digest: Stands in their addresses; of what is in them.
        shell: The HTML that all begins with, which names the digest.
        files: By path, without the shell.
    """

    digest: str
    shell: str
    files: dict[str, PageFile]


def page_files(folder: Path = _FOLDER) -> PageFiles:
    """The files in a folder; they are read again when one of them was changed."""
    paths = sorted(one for one in folder.rglob("*") if one.is_file() and one.suffix != ".html")
    shell = folder / _SHELL
    return _read(folder, tuple((one, one.stat().st_mtime_ns) for one in [shell, *paths]))


@lru_cache(maxsize=2)
def _read(folder: Path, stamps: tuple[tuple[Path, int], ...]) -> PageFiles:
    (shell, _), *others = stamps
    hashed, files = hashlib.sha256(), dict[str, PageFile]()
    for path, _ in others:
        name, content = path.relative_to(folder).as_posix(), path.read_bytes()
        hashed.update(f"{name}\0{len(content)}\0".encode() + content)
        media_type = _TYPES.get(path.suffix, "text/plain")
        files[name] = PageFile(media_type, content, gzip.compress(content, 9, mtime=0))
    digest = hashed.hexdigest()[:_DIGITS]
    return PageFiles(digest, shell.read_text(encoding="utf-8").replace(_DIGEST, digest), files)


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


class LentKeyBody(Asked):
    """Lent key that a page was opened with, and that may be used once."""

    token: str


@router.post("/label/key")
def redeem_token(body: LentKeyBody, state: StateDependency) -> dict[str, str]:
    """The key of a page that a command opened."""
    key = state.keyring.redeem(body.token)
    if key is None:
        raise HTTPException(404, "this address was opened before: stop the command and start it again")
    return {"key": key}

"""A stand-in for the hub of Hugging Face: the few addresses of its API that a repository is read by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.web_server import Answer, WebServer, sends

__all__ = ["put_dataset", "put_model", "refuses"]

_REFUSALS = {"gated": (403, "GatedRepo"), "missing": (404, "RepoNotFound"), "private": (401, "RepoNotFound")}


def put_dataset(
    web: WebServer, name: str, files: Mapping[str, bytes], revision: str = "", sizes: int | None = None
) -> str:
    """Let a server have a data set; what it had under that name and revision is gone.

    Args:
        web: The server.
        name: Owner and name.
        files: Contents by path.
        revision: The revision as it is asked for, the main one when empty.
        sizes: Sizes that it claims of files by path.

    Returns:
        Its commit.
    """
    commit = hashlib.sha1(repr((name, revision, sorted(files.items()))).encode()).hexdigest()
    siblings = [
        {"rfilename": path, "size": len(body) if sizes is None else sizes} for path, body in files.items()
    ]
    _list(web, f"/api/datasets/{name}", revision, {"id": name, "sha": commit, "siblings": siblings})
    for path, body in files.items():
        web.answers[f"/datasets/{name}/resolve/{commit}/{path}"] = sends(
            body, ETag=f'"{hashlib.sha256(body).hexdigest()}"', X_Repo_Commit=commit
        )
    return commit


def put_model(
    web: WebServer,
    name: str,
    files: Mapping[str, bytes],
    *,
    revision: str = "",
    card: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> str:
    """Let a server have a model, whose files but JSON lie on another host, which sends parts of them too.

    Args:
        web: The server.
        name: Owner and name.
        files: Contents by path.
        revision: The revision as it is asked for, the main one when empty.
        card: What the head of its README says.
        sizes: Size that it claims of each file.

    Returns:
        Its commit.
    """
    commit = hashlib.sha1(repr((name, revision, sorted(files.items()))).encode()).hexdigest()
    siblings: list[dict[str, Any]] = []
    for path, body in files.items():
        size = (sizes or {}).get(path, len(body))
        sha256 = hashlib.sha256(body).hexdigest()
        about = {"X_Repo_Commit": commit}
        there = f"/{name}/resolve/{commit}/{path}"
        if path.endswith(".json"):
            siblings.append({"rfilename": path, "size": size})
            web.answers[there] = sends(body, ETag=f'"{sha256[:40]}"', **about)
            continue
        siblings.append(
            {"rfilename": path, "size": size, "lfs": {"size": size, "sha256": sha256, "pointerSize": 134}}
        )
        linked = {"X_Linked_ETag": f'"{sha256}"', "X_Linked_Size": str(len(body))}
        web.answers[there] = sends(
            b"", 302, Location=web.url(f"/cdn/{sha256}", "localhost"), **linked, **about
        )
        web.answers[f"/cdn/{sha256}"] = sends_parts(body)
    found = {"id": name, "sha": commit, "siblings": siblings, "cardData": dict(card or {})}
    _list(web, f"/api/models/{name}", revision, found)
    return commit


def sends_parts(body: bytes, breaks_off_at: int | None = None) -> Answer:
    """Sends a file, from where it is asked for; perhaps the connection breaks after so many bytes."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range", "bytes=0-")
        start = int(asked.removeprefix("bytes=").partition("-")[0])
        part = body[start:]
        about = {"Content_Range": f"bytes {start}-{len(body) - 1}/{len(body)}"} if start else {}
        about |= {"Content_Length": str(len(part))}
        sent = part if breaks_off_at is None else part[:breaks_off_at]
        sends(sent, 206 if start else 200, **about)(request)
        request.close_connection = True

    return answer


def refuses(web: WebServer, name: str, how: str, kind: str = "datasets") -> None:
    """Let a server have a data set or one of the `models` that is `gated`, `missing` or `private`."""
    status, code = _REFUSALS[how]
    web.answers[f"/api/{kind}/{name}"] = sends(b"{}", status, X_Error_Code=code)


def _list(web: WebServer, place: str, revision: str, found: Mapping[str, Any]) -> None:
    asked = place + (f"/revision/{revision.replace('/', '%2F')}" if revision else "")
    web.answers[asked] = sends(json.dumps({"private": False, "tags": [], **found}).encode())

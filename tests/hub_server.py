"""A stand-in for the hub of Hugging Face: the few addresses of its API that a data set is read by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from tests.web_server import WebServer, sends

__all__ = ["put_dataset", "refuses"]

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
        sizes: Size that it claims of each file.

    Returns:
        Its commit.
    """
    commit = hashlib.sha1(repr((name, revision, sorted(files.items()))).encode()).hexdigest()
    siblings = [
        {"rfilename": path, "size": len(body) if sizes is None else sizes} for path, body in files.items()
    ]
    about = json.dumps({"id": name, "sha": commit, "siblings": siblings, "private": False, "tags": []})
    asked = f"/api/datasets/{name}" + (f"/revision/{revision.replace('/', '%2F')}" if revision else "")
    web.answers[asked] = sends(about.encode())
    for path, body in files.items():
        web.answers[f"/datasets/{name}/resolve/{commit}/{path}"] = sends(
            body, ETag=f'"{hashlib.sha256(body).hexdigest()}"', X_Repo_Commit=commit
        )
    return commit


def refuses(web: WebServer, name: str, how: str) -> None:
    """Let a server have a data set that is `gated`, `missing` or `private`."""
    status, code = _REFUSALS[how]
    web.answers[f"/api/datasets/{name}"] = sends(b"{}", status, X_Error_Code=code)

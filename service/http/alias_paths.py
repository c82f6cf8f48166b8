"""Aliases in addresses: a request that names one is answered as if it named the gallery."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from vicinal.indexer.errors import GalleryNameError
from vicinal.indexer.storage.gallery_names import folder_of

# A gallery in an address: what stands before its name, and the name.
GALLERY = re.compile("(/v1/(?:admin/)?galleries/)([^/]+)")


class AliasPaths:
    """ASGI middleware that puts the gallery's name into the path, so that no route has to know of aliases.

    Args:
        app: The application behind.
        root: Folder of the galleries.
    """

    def __init__(self, app: ASGIApp, root: Path) -> None:
        self.app = app
        self.root = root

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on."""
        named = GALLERY.match(own_path(scope)) if scope["type"] == "http" else None
        if named is not None:
            # The route refuses what is no name.
            with suppress(GalleryNameError):
                gallery = folder_of(self.root, named[2]).name
                before = scope["path"].removesuffix(named.string)
                scope = {**scope, "path": f"{before}{named[1]}{gallery}{named.string[named.end() :]}"}
        return self.app(scope, receive, send)


def own_path(scope: Scope) -> str:
    """Path of a request below where the application is mounted, as its routes see it."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path

"""Aliases in addresses: a request that names one is answered as if it named the gallery."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from vicinal.indexer.errors import GalleryNameError
from vicinal.indexer.storage.gallery_names import folder_of

__all__ = ["AliasPaths"]

_GALLERY = re.compile("(/v1/(?:admin/)?galleries/)([^/]+)")


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
        named = _GALLERY.match(scope["path"]) if scope["type"] == "http" else None
        if named is not None:
            # The route refuses what is no name.
            with suppress(GalleryNameError):
                gallery = folder_of(self.root, named[2]).name
                scope = {**scope, "path": f"{named[1]}{gallery}{scope['path'][named.end() :]}"}
        return self.app(scope, receive, send)

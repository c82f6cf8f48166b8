"""Names of galleries, and aliases: further names, kept while the gallery behind is exchanged."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from vicinal.indexer.errors import (
    AliasNotFoundError,
    GalleryExistsError,
    GalleryNameError,
    GalleryNotFoundError,
    StorageError,
)
from vicinal.indexer.state import Rows, server_state, state_of
from vicinal.indexer.state.schema import aliases as table
from vicinal.indexer.state.schema import moves
from vicinal.indexer.state.state import Cached, shared_state
from vicinal.indexer.storage.files import make_folder

GALLERY_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,63}$")


def require_name(name: str) -> None:
    """Refuse a name that no gallery can have."""
    if not GALLERY_NAME.fullmatch(name):
        raise GalleryNameError(name)


def folder_of(root: Path, name: str) -> Path:
    """Folder of a gallery, new or existing."""
    require_name(name)
    folder = root / name
    # Most names are those of galleries, for which nobody has to ask.
    is_gallery = folder.is_dir() and _linked(folder) is None
    return folder if is_gallery else root / aliases(root).get(name, name)


def aliases(root: Path) -> dict[str, str]:
    """All aliases below a folder of galleries, each with the gallery's name, by alias."""
    return dict(sorted({**_brought_in(root), **_known(root).get()}.items()))


def names_in(root: Path) -> list[str]:
    """Names of galleries, and of such as are begun, sorted."""
    shared = shared_state(root.parent)
    if shared is not None:
        return shared.names()
    _brought_in(root)
    return sorted(folder.name for folder in root.glob("*") if GALLERY_NAME.fullmatch(folder.name))


def set_alias(root: Path, alias: str, gallery: str) -> None:
    """Let an alias, new or existing, stand for a gallery from the next request on."""
    require_name(alias)
    if alias not in aliases(root):
        require_free(root, alias)
    name = folder_of(root, gallery).name
    if not _is_searched(root / name):
        raise GalleryNotFoundError(f"there is no gallery '{gallery}'")
    with server_state(root.parent).changing() as rows:
        rows.put(table, {"name": alias, "gallery": name})


def move_aliases(root: Path, gallery: str, name: str) -> None:
    """Let all aliases of a gallery stand for another one."""
    with server_state(root.parent).changing() as rows:
        rows.change(table, table.c.gallery == gallery, gallery=name)


def remove_alias(root: Path, alias: str) -> None:
    """Let a name stand for no gallery any more; the gallery stays."""
    if alias not in aliases(root):
        raise AliasNotFoundError(alias)
    with server_state(root.parent).changing() as rows:
        rows.remove(table, table.c.name == alias)


def require_free(root: Path, name: str) -> None:
    """Refuse a name that is taken."""
    require_name(name)
    make_folder(root)
    path, known = root / name, aliases(root)
    is_there = os.path.lexists(path) if shared_state(root.parent) is None else state_of(path).exists
    if name in known or is_there:
        # A first index that was stopped goes on in its folder, which no list of galleries shows.
        is_begun = name not in known and path.is_dir() and not _is_searched(path)
        raise GalleryExistsError(name, stands_for=known.get(name), begun=path if is_begun else None)


def _is_searched(folder: Path) -> bool:
    with state_of(folder).reading() as rows:
        return rows.has(moves)


@lru_cache(maxsize=1024)
def _known(root: Path) -> Cached[dict[str, str]]:
    return Cached(server_state(root.parent), _read)


def _read(rows: Rows) -> dict[str, str]:
    return {one.name: one.gallery for one in rows.all(table)}


def _brought_in(root: Path) -> dict[str, str]:
    """Aliases of earlier releases, which were links beside the folders; they become rows where these can be
    written.
    """
    try:
        # There may be many galleries, and this tells links without asking the disk for each.
        with os.scandir(root) as entries:
            links = [root / entry.name for entry in entries if entry.is_symlink()]
    except FileNotFoundError:
        return {}
    found = {link.name: target for link in links if (target := _linked(link)) is not None}
    if found:
        with suppress(StorageError, OSError):
            with server_state(root.parent).changing() as rows:
                rows.put(table, *({"name": alias, "gallery": one} for alias, one in found.items()), keep=True)
            for alias in found:
                (root / alias).unlink(missing_ok=True)
    return found


def _linked(path: Path) -> str | None:
    """Name of the gallery that a link stands for; None for what is none, such as a link to another disk."""
    try:
        target = str(path.readlink())
    except OSError:
        return None
    return target if GALLERY_NAME.fullmatch(path.name) and GALLERY_NAME.fullmatch(target) else None

"""Names of galleries, and aliases: further names, which clients keep while the gallery behind is exchanged.

<galleries>/<alias>     a symbolic link to the folder of a gallery beside it, so that it moves in one step
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from vicinal.indexer.errors import (
    AliasNotFoundError,
    GalleryExistsError,
    GalleryNameError,
    GalleryNotFoundError,
)
from vicinal.indexer.storage.files import make_folder, storing, sync_path
from vicinal.indexer.storage.home import Mirror

GALLERY_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,63}$")


def require_name(name: str) -> None:
    """Refuse a name that no gallery can have."""
    if not GALLERY_NAME.fullmatch(name):
        raise GalleryNameError(name)


def folder_of(root: Path, name: str) -> Path:
    """Folder of a gallery, new or existing."""
    require_name(name)
    return root / (_target(root / name) or name)


def aliases(root: Path) -> dict[str, str]:
    """All aliases below a folder of galleries, each with the gallery's name, by alias."""
    try:
        # There may be many galleries, and this tells links without asking the disk for each.
        with os.scandir(root) as entries:
            links = sorted(entry.name for entry in entries if entry.is_symlink())
    except FileNotFoundError:
        return {}
    found = {name: _target(root / name) for name in links if GALLERY_NAME.fullmatch(name)}
    return {alias: gallery for alias, gallery in found.items() if gallery is not None}


def set_alias(root: Path, alias: str, gallery: str) -> None:
    """Let an alias, new or existing, stand for a gallery from the next request on."""
    require_name(alias)
    if _target(root / alias) is None:
        require_free(root, alias)
    folder = folder_of(root, gallery)
    if not (folder / "active.json").is_file():
        raise GalleryNotFoundError(f"there is no gallery '{gallery}'")
    mirror = Mirror.keeping(root / alias)
    if mirror is not None:
        mirror.link(root / alias, folder.name)
        return
    with storing(f"alias '{alias}'"):
        link = root / f".{alias}.{secrets.token_hex(4)}.partial"
        link.symlink_to(folder.name)
        link.replace(root / alias)
        sync_path(root)


def remove_alias(root: Path, alias: str) -> None:
    """Let a name stand for no gallery any more; the gallery stays."""
    if not GALLERY_NAME.fullmatch(alias) or _target(root / alias) is None:
        raise AliasNotFoundError(alias)
    mirror = Mirror.keeping(root / alias)
    if mirror is not None:
        mirror.drop([root / alias])
        return
    with storing(f"alias '{alias}'"):
        (root / alias).unlink()
        sync_path(root)


def require_free(root: Path, name: str) -> None:
    """Refuse a name that is taken."""
    require_name(name)
    make_folder(root)
    path = root / name
    if not os.path.lexists(path):
        return
    # A first index that was stopped goes on in its folder, which no list of galleries shows.
    is_begun = path.is_dir() and not (path / "active.json").exists()
    raise GalleryExistsError(name, stands_for=_target(path), begun=path if is_begun else None)


def _target(path: Path) -> str | None:
    """Name of the gallery that an alias stands for; None for what is none, such as a link to another disk."""
    try:
        target = str(path.readlink())
    except OSError:
        return None
    return target if GALLERY_NAME.fullmatch(target) else None

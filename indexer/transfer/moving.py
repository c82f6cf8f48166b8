"""Moving: a gallery under another name or as a copy, and its files as they are at one moment."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vicinal.indexer.errors import GalleryExistsError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.staging import Staging
from vicinal.indexer.storage.files import scratch, storing, sync_path
from vicinal.indexer.storage.gallery_names import require_free, set_alias

# Of another machine, of a moment, or of a job that is not over.
_LEFT_OUT = shutil.ignore_patterns(
    "*.lock", "*.partial", "*.deleted", "staging", "uploads", "checked.json", "damaged.json"
)
# These are written once and never changed.
_IMMUTABLE = {".lance", ".npy", ".npz", ".index", ".arrow"}
_PATIENCE = 30.0


def rename_gallery(gallery: Gallery, name: str) -> Gallery:
    """Give a gallery another name; its aliases stay with it."""
    root, known_as = gallery.path.parent, gallery.aliases
    require_free(root, name)
    with gallery.still(patience=_PATIENCE):
        for staged in (gallery.path / "staging").glob("*"):
            # Whoever holds them would go on under the old name.
            with Staging(gallery, staged.name).held():
                pass
        _move(gallery.path, root / name)
    for alias in known_as:
        set_alias(root, alias, name)
    return Gallery(root / name)


def copy_gallery(gallery: Gallery, name: str) -> Gallery:
    """Make a gallery with the same versions and calibrations; from then on they change apart."""
    root = gallery.path.parent
    require_free(root, name)
    with scratch(root) as staging, pinned(gallery) as source, storing(f"gallery '{name}'"):
        shutil.copytree(source, staging / name)
        settle(staging / name, root / name)
    return Gallery(root / name)


@contextmanager
def pinned(gallery: Gallery) -> Iterator[Path]:
    """The gallery's files as they are at one moment, in a folder of its name: large ones are links."""
    with scratch(gallery.path.parent) as staging:
        copy = staging / gallery.name
        with gallery.still(patience=_PATIENCE), storing(f"a copy of gallery '{gallery.name}'"):
            shutil.copytree(gallery.path, copy, ignore=_LEFT_OUT, copy_function=_take)
        yield copy


def _take(source: str, target: str) -> str:
    if Path(source).suffix in _IMMUTABLE:
        # Not every file system has links.
        with suppress(OSError):
            os.link(source, target)
            return target
    return str(shutil.copy2(source, target))


def settle(folder: Path, target: Path) -> None:
    """Bring a finished folder to the disk itself, and let it appear."""
    for path in folder.rglob("*"):
        sync_path(path)
    sync_path(folder)
    _move(folder, target)


def _move(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError as error:
        # Somebody took the name meanwhile.
        if error.errno not in (errno.EEXIST, errno.ENOTDIR, errno.ENOTEMPTY):
            raise
        raise GalleryExistsError(target.name) from error
    sync_path(target.parent)

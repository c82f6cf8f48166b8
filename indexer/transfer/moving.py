"""Moving: a gallery under another name or as a copy, and its files as they are at one moment."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vicinal.indexer.engines.tables import forget_owner
from vicinal.indexer.errors import GalleryExistsError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.staging import Staging
from vicinal.indexer.state import state_of
from vicinal.indexer.state.schema import OF_SEARCHES
from vicinal.indexer.state.state import GALLERY_FILE, copy_rows
from vicinal.indexer.storage.files import make_folder, scratch, storing, sync_path
from vicinal.indexer.storage.gallery_names import move_aliases, require_free
from vicinal.indexer.storage.home import Mirror

# Of another machine, of a moment, or of a job that is not over; and what is copied row by row.
_LEFT_OUT = shutil.ignore_patterns(
    "*.lock",
    "*.partial",
    "*.deleted",
    "staging",
    "uploads",
    "checked.json",
    "damaged.json",
    f"{GALLERY_FILE}*",
)
# These are written once and never changed.
_IMMUTABLE = {".lance", ".npy", ".npz", ".index", ".arrow"}
_PATIENCE = 30.0


def rename_gallery(gallery: Gallery, name: str) -> Gallery:
    """Give a gallery another name; its aliases stay with it."""
    root, is_known = gallery.path.parent, bool(gallery.aliases)
    require_free(root, name)
    with gallery.still(patience=_PATIENCE):
        for staged in (gallery.path / "staging").glob("*"):
            # Whoever holds them would go on under the old name.
            with Staging(gallery, staged.name).held():
                pass
        mirror = Mirror.keeping(gallery.table.path)
        if mirror is not None:
            mirror.move_gallery(gallery.name, name)
        else:
            _move(gallery.path, root / name)
            state_of(gallery.path).rename(name)
    if is_known:
        move_aliases(root, gallery.name, name)
    return Gallery(root / name, engine=gallery.tables.engine)


def copy_gallery(gallery: Gallery, name: str) -> Gallery:
    """Make a gallery with all that was made and said of another; they change apart."""
    root = gallery.path.parent
    require_free(root, name)
    with (
        scratch(root) as staging,
        pinned(gallery, with_searches=True) as source,
        storing(f"gallery '{name}'"),
    ):
        shutil.copytree(source, staging / name)
        with own_tables(Gallery(staging / name, engine=gallery.tables.engine)):
            settle(staging / name, root / name)
    return Gallery(root / name, engine=gallery.tables.engine)


@contextmanager
def own_tables(gallery: Gallery) -> Iterator[None]:
    """Make the tables of a copied gallery that its searches need, which go again where it does not appear;
    where the engine has no address, searches tell of that.
    """
    if gallery.tables.engine.address is not None:
        gallery.mend_tables()
    try:
        yield
    except BaseException:
        gallery.tables.drop_all()
        raise


@contextmanager
def pinned(gallery: Gallery, *, with_searches: bool = False) -> Iterator[Path]:
    """The gallery's files as they are at one moment, in a folder of its name: large ones are links."""
    with scratch(gallery.path.parent) as staging:
        copy = staging / gallery.name
        with gallery.still(patience=_PATIENCE), storing(f"a copy of gallery '{gallery.name}'"):
            shutil.copytree(gallery.path, copy, ignore=_LEFT_OUT, copy_function=_take)
            # What people searched for others need not have.
            left_out = () if with_searches else OF_SEARCHES
            copy_rows(state_of(gallery.path), state_of(copy), leave_out=left_out)
            forget_owner(copy)
        yield copy


def _take(source: str, target: str) -> str:
    if Path(source).suffix in _IMMUTABLE:
        # Not every file system has links.
        with suppress(OSError):
            os.link(source, target)
            return target
    return str(shutil.copy2(source, target))


def settle(folder: Path, target: Path) -> None:
    """Bring a finished folder to the disk itself, and let it appear; what is remembered of it comes last
    where several machines share that.
    """
    kept, state = state_of(folder.with_name(f"{folder.name}.rows")), state_of(target)
    if state.shared is not None:
        make_folder(kept.folder)
        state_of(folder).path.rename(kept.path)
    mirror = Mirror.keeping(target / "items.lance")
    if mirror is not None:
        mirror.put_folder(folder, target)
    else:
        for path in folder.rglob("*"):
            sync_path(path)
        sync_path(folder)
        _move(folder, target)
    if state.shared is not None:
        copy_rows(kept, state)


def _move(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError as error:
        # Somebody took the name meanwhile.
        if error.errno not in (errno.EEXIST, errno.ENOTDIR, errno.ENOTEMPTY):
            raise
        raise GalleryExistsError(target.name) from error
    sync_path(target.parent)

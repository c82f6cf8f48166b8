"""Backup: a data folder saved while it is searched and changed, and brought back.

<backup>/galleries/<name>.tar   each gallery as it is at one moment, with all that persons said of it
<backup>/server.db              keys and aliases; no jobs: what these have not committed is in no gallery
<backup>/audit/                 the audit log
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from sqlalchemy import Table

from vicinal.indexer.disk import make_folder, scratch, storing, sync_path
from vicinal.indexer.errors import StorageError
from vicinal.indexer.gallery import Gallery, list_galleries
from vicinal.indexer.state import schema, server_state, state_of
from vicinal.indexer.state.bringing import old_files
from vicinal.indexer.state.state import State, copy_rows
from vicinal.indexer.transfer.archive import export_gallery, import_gallery
from vicinal.service.errors import RequestError
from vicinal.service.settings import Settings

_AUDIT = "audit"
OnGallery = Callable[[Gallery], None]


def save(settings: Settings, folder: Path, *, on_gallery: OnGallery) -> None:
    """Save all galleries, keys and aliases in a new folder, which appears when it is whole.

    Raises:
        RequestError: The folder is there already, or there is nothing to save.
        GalleryError: A gallery cannot be read, is damaged, or is written for longer than half a minute.
    """
    if folder.exists():
        raise RequestError(f"'{folder}' is there already: name a new folder")
    found = list_galleries(settings.galleries_path)
    if not found:
        raise RequestError(f"no galleries in '{settings.data_dir}': there is nothing to save")
    make_folder(folder.absolute().parent)
    with scratch(folder.absolute().parent) as aside, storing(f"'{folder}'"):
        saved = aside / "saved"
        make_folder(saved / "galleries")
        # First: a gallery that an alias gets meanwhile may be one that is not saved any more.
        copy_rows(server_state(settings.data_dir), server_state(saved), leave_out=_of_this_machine())
        if (settings.data_dir / _AUDIT).is_dir():
            shutil.copytree(settings.data_dir / _AUDIT, saved / _AUDIT)
        for gallery in found:
            with (saved / "galleries" / f"{gallery.name}.tar").open("wb") as stream:
                export_gallery(gallery, stream, with_searches=True)
            on_gallery(gallery)
        for path in list(saved.rglob("*")):
            if path.suffix == ".lock":
                path.unlink()
            else:
                sync_path(path)
        saved.rename(folder)
        sync_path(folder.absolute().parent)


def restore(settings: Settings, folder: Path, *, on_gallery: OnGallery) -> None:
    """Bring back what was saved, into a data folder without galleries and keys.

    Raises:
        RequestError: The folder is no backup, or the data folder holds something already.
        GalleryError: What was saved is damaged.
    """
    archives = sorted((folder / "galleries").glob("*.tar"))
    if not archives:
        raise RequestError(f"'{folder}' is no backup")
    server = server_state(settings.data_dir)
    with server.reading() as rows:
        is_new = not any(rows.has(table) for table in schema.SERVER.sorted_tables)
    if not is_new or list_galleries(settings.galleries_path):
        raise RequestError(f"'{settings.data_dir}' is in use already: restore into a new data folder")
    make_folder(settings.data_dir)
    # Keys first: a server that is started too early must not answer everybody.
    copy_rows(server_state(folder), server, leave_out=_of_this_machine())
    if (folder / _AUDIT).is_dir():
        with storing(f"'{settings.data_dir / _AUDIT}'"):
            shutil.copytree(folder / _AUDIT, settings.data_dir / _AUDIT, dirs_exist_ok=True)
    for archive in archives:
        with archive.open("rb") as stream:
            gallery, _ = import_gallery(
                settings.galleries_path, stream, archive.stem, engine=settings.open_engine()
            )
        on_gallery(gallery)


def upgrade(settings: Settings, *, remove_old_files: bool = False) -> Iterator[tuple[State, list[Path]]]:
    """Bring the state of a server and of each gallery to the present form; with what older files there are
    beside it. These are kept, or removed where the rows that were made of them are on the disk.
    """
    folders = [one.path for one in list_galleries(settings.galleries_path)]
    for state in [server_state(settings.data_dir), *map(state_of, folders)]:
        old = old_files(state.folder, of_server=state.tables is schema.SERVER)
        if old or state.exists:
            with state.changing():
                pass
        for path in old if remove_old_files else ():
            _remove(path)
        yield state, old


def _of_this_machine() -> list[Table]:
    return [
        one for one in schema.SERVER.sorted_tables if one.name == "galleries" or one.name.startswith("job")
    ]


def _remove(path: Path) -> None:
    try:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    except OSError as error:
        raise StorageError(f"'{path}' cannot be removed: {error.strerror or error}") from error

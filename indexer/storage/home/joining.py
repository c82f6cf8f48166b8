"""Joining: bring what lies in a data folder and what is in its home together.

Galleries of the folder are brought whole, each in one transaction with what its `gallery.db` remembers, which
is laid aside in `mirror/brought`. So is `server.db`, where the database has no such rows yet.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from vicinal.indexer.disk import make_folder, replace_file
from vicinal.indexer.errors import GalleryExistsError, HomeError
from vicinal.indexer.state import State, server_state, state_of
from vicinal.indexer.state.schema import SERVER, documents, files, galleries, leases
from vicinal.indexer.state.state import GALLERY_FILE, SERVER_FILE
from vicinal.indexer.storage.home import places
from vicinal.indexer.storage.home.ledger import identity_of_file
from vicinal.indexer.storage.home.marks import FOLDER, Mark, give_identity, identity_in, mark_in, mark_path
from vicinal.indexer.storage.home.mirror import Mirror, spelled
from vicinal.indexer.storage.home.stores import HomeStore, open_store
from vicinal.models.configs.sealed_json import sealed

_KIND = "home"
_OF_HOMES = {galleries.name, files.name, leases.name}


def join(data_dir: Path, home: str) -> Mirror:
    """Make a data folder, whose database is shared, a mirror of a home, or open it: what the folder alone
    holds is brought to the home; what that holds is laid here when it is asked for.

    Raises:
        HomeError: The home does not answer, or the folder or the database belongs to another.
        GalleryExistsError: Both hold a gallery of one name.
        DatabaseAwayError: The database does not answer.
    """
    data_dir = spelled(data_dir)
    store = open_store(home)
    if isinstance(store_path := getattr(store, "path", None), Path):
        make_folder(store_path)
        if data_dir in [store_path, *store_path.parents] or store_path in data_dir.parents:
            raise HomeError(f"home '{home}' and data folder '{data_dir}' must lie apart")
    identity, known = _identity(data_dir, store), mark_in(data_dir)
    if known is not None and known.identity != identity:
        raise HomeError(
            f"'{data_dir}' is a mirror of home '{known.home}', not of '{home}': "
            f"give each home a data folder of its own, or remove '{data_dir / FOLDER}'"
        )
    replica = secrets.token_hex(4) if known is None else known.replica
    mark = Mark(home=store.address, identity=identity, replica=replica)
    make_folder(data_dir / FOLDER)
    mirror = Mirror(data_dir, mark, store)
    if known is None:
        _bring_all(mirror)
    _look_over(mirror)
    mirror.pull()
    if known != mark:
        replace_file(mark_path(data_dir), sealed(mark.model_dump_json()))
    Mirror._opened[os.getpid(), data_dir] = mirror
    return mirror


def _identity(data_dir: Path, store: HomeStore) -> str:
    """Identity that a store and the database of a data folder have; both get one where neither has."""
    there = identity_in(store)
    with state_of(data_dir / places.folder_of(places.WHOLE)).changing() as rows:
        known = rows.first(documents, documents.c.kind == _KIND)
        if known is None and there is None:
            content = json.dumps({"identity": secrets.token_hex(8), "address": store.address})
            rows.add(documents, {"kind": _KIND, "id": "", "at": time.time(), "content": content})
            known = rows.first(documents, documents.c.kind == _KIND)
    said = {"identity": "", "address": ""} if known is None else json.loads(known.content)
    identity = str(said["identity"])
    # Whoever drew it may have been cut off before it was given.
    if there is None and said["address"] == store.address:
        give_identity(store, identity)
    elif there != identity:
        raise HomeError(
            f"home '{store.address}' is not that of this database: give each home a database of its own, "
            "and none that an earlier release has written"
        )
    return identity


def _bring_all(mirror: Mirror) -> None:
    """Bring what lies here to the home."""
    local, theirs = _local_galleries(mirror), set(mirror.names())
    # Once that was found, what both hold was brought by a first attempt that was cut off.
    found_apart = mirror.folder / "joining"
    if not found_apart.exists():
        for gallery in theirs & set(local):
            raise GalleryExistsError(gallery)
        found_apart.touch()
    for gallery in [one for one in local if one not in theirs]:
        folder = mirror.data_dir / places.folder_of(gallery)
        mirror.bring(folder, _aside(mirror, folder, GALLERY_FILE, gallery))
    mirror.bring(mirror.data_dir / places.TOP)
    _bring_server(mirror)


def _bring_server(mirror: Mirror) -> None:
    """Bring what the server's own file remembers to the database, unless that has the same of another."""
    aside, state = _aside(mirror, mirror.data_dir, SERVER_FILE, ""), server_state(mirror.data_dir)
    is_first = not state.exists
    with state.changing() as written, State(aside, SERVER).reading() as read:
        for table in SERVER.sorted_tables:
            for part in read.parts(table) if table.name not in _OF_HOMES else ():
                written.put(table, *(one._asdict() for one in part), keep=not is_first)


def _aside(mirror: Mirror, folder: Path, name: str, gallery: str) -> Path:
    """Folder beside that has a file of SQLite from now on, which nobody here may read any more."""
    aside = mirror.folder / "brought" / gallery
    make_folder(aside)
    # Last the file itself: what its log holds belongs to it.
    for part in (f"{name}-shm", f"{name}-wal", name):
        if (folder / part).exists():
            (folder / part).rename(aside / part)
    return aside


def _local_galleries(mirror: Mirror) -> Sequence[str]:
    root = mirror.data_dir / places.GALLERIES
    found = {path.parent for name in ("active.json", GALLERY_FILE) for path in root.glob(f"*/{name}")}
    # Of a first attempt that was cut off.
    found |= {root / path.parent.name for path in (mirror.folder / "brought").glob(f"*/{GALLERY_FILE}")}
    folders = [one for one in found if one.is_dir() and not one.is_symlink()]
    return sorted(
        one.name for one in folders if places.is_kept(f"{places.folder_of(one.name)}/{places.TABLE}")
    )


def _look_over(mirror: Mirror) -> None:
    """Have what was changed here behind the mirror's back laid again."""
    for gallery in mirror.ledger.galleries():
        rows = [mirror.ledger.row(place) for place in mirror.ledger.paths(gallery)]
        wrong = [one for one in rows if one and one.identity != identity_of_file(mirror.data_dir / one.path)]
        with mirror.locked(gallery):
            mirror.ledger.note(row._replace(identity="") for row in wrong)

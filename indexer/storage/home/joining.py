"""Joining: bring what lies in a data folder and what is in its home together."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from vicinal.indexer.errors import GalleryExistsError, HomeError
from vicinal.indexer.storage.disk import make_folder, replace_file, sha256_of_file
from vicinal.indexer.storage.home import places
from vicinal.indexer.storage.home.laying import Batch
from vicinal.indexer.storage.home.ledger import identity_of_file
from vicinal.indexer.storage.home.log import sha256_of
from vicinal.indexer.storage.home.marks import FOLDER, Mark, identity_in, mark_in, mark_path
from vicinal.indexer.storage.home.mirror import Mirror, spelled
from vicinal.indexer.storage.home.stores import MARK, open_store, require_exclusive
from vicinal.models.configs.sealed_json import sealed


def join(data_dir: Path, home: str) -> Mirror:
    """Make a data folder a mirror of a home, or open it: what either holds alone is brought to the other.

    Raises:
        HomeError: The home does not answer, takes a name twice, or the folder belongs to another.
        GalleryExistsError: Both hold a gallery of one name.
    """
    data_dir = spelled(data_dir)
    store = open_store(home)
    if isinstance(store_path := getattr(store, "path", None), Path):
        make_folder(store_path)
        if data_dir in [store_path, *store_path.parents] or store_path in data_dir.parents:
            raise HomeError(f"home '{home}' and data folder '{data_dir}' must lie apart")
    require_exclusive(store)
    store.put_if_absent(MARK, sealed(json.dumps({"identity": secrets.token_hex(8), "format": 1})))
    identity = identity_in(store)
    known = mark_in(data_dir)
    if known is not None and known.identity != identity:
        raise HomeError(
            f"'{data_dir}' is a mirror of home '{known.home}', not of '{home}': "
            f"give each home a data folder of its own, or remove '{data_dir / FOLDER}'"
        )
    replica = secrets.token_hex(4) if known is None else known.replica
    mark = Mark(home=store.address, identity=identity, replica=replica)
    make_folder(data_dir / FOLDER)
    mirror = Mirror(data_dir, mark, store)
    _begin(mirror, is_new=known is None)
    if known != mark:
        replace_file(mark_path(data_dir), sealed(mark.model_dump_json()))
    Mirror._opened.pop((os.getpid(), data_dir), None)
    return mirror


def _begin(mirror: Mirror, *, is_new: bool) -> None:
    """Bring what lies here and what is in the home together; only who is new has anything to bring."""
    local = _local_galleries(mirror) if is_new else []
    # Once that was found, what lies here may be what the home held when a first attempt was cut off.
    found_apart = mirror.folder / "joining"
    if not found_apart.exists():
        _refuse_doubles(mirror, local)
        found_apart.touch()
    mirror.catch_up()
    found = {row: identity_of_file(mirror.data_dir / row.path) for row in mirror.ledger.rows().values()}
    wrong = [
        row
        for row, identity in found.items()
        # Counts may be newer here than there.
        if row.identity != identity
        and not (identity and row.replica == mirror.replica and places.is_own(row.path))
    ]
    with mirror.locked():
        mirror.ledger.note(row._replace(identity="") for row in wrong)
    mirror.relay(wrong)
    if not is_new:
        return
    for gallery in local:
        if not mirror.ledger.is_known(f"{places.GALLERIES}/{gallery}"):
            mirror.bring(mirror.data_dir / f"{places.GALLERIES}/{gallery}")
    for top in sorted(places.TOPS):
        if not mirror.ledger.is_known(top):
            mirror.bring(mirror.data_dir / top)
    _bring_up_aliases(mirror)


def _local_galleries(mirror: Mirror) -> list[str]:
    found = (mirror.data_dir / places.GALLERIES).glob("*/active.json")
    folders = [path.parent for path in found if not path.parent.is_symlink()]
    return sorted(one.name for one in folders if places.is_kept(mirror.place_of(one / "active.json")))


def _refuse_doubles(mirror: Mirror, local: Sequence[str]) -> None:
    """Refuse galleries of one name that are not the same."""
    if not local:
        return
    newest, theirs = mirror.log.newest_checkpoint(), Batch(0, 0)
    if newest:
        theirs = Batch.of_checkpoint(mirror.log.checkpoint(newest), {}, 0)
    while (entry := mirror.log.read(theirs.number + 1)) is not None:
        theirs.add(entry, {})
    for gallery in local:
        pointer = f"{places.GALLERIES}/{gallery}/active.json"
        their = theirs.rows.get(pointer)
        own = sha256_of_file(mirror.data_dir / pointer)
        if their is not None and their.object and sha256_of(their.object) != own:
            raise GalleryExistsError(gallery)


def _bring_up_aliases(mirror: Mirror) -> None:
    for path in (mirror.data_dir / places.GALLERIES).glob("*"):
        place = mirror.place_of(path)
        if path.is_symlink() and places.is_kept(place) and not mirror.is_there(place):
            target = str(path.readlink())
            if "/" not in target:
                mirror.link(path, target)

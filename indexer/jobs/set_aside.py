"""Items set aside: out of every search and of every version made from then on, and whole on the disk.

<gallery>/set-aside/<key>.arrow   the item's row, as it is added again
<gallery>/set-aside/<key>.json    which item, why, by whom and when; written last, and removed first

An item that is set aside is removed, so that nothing has to tell it from others: no search, calibration or
look for duplicates meets it, and no source brings it back. Its row stays here for `bring_back`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from vicinal.indexer.errors import GalleryError, ItemExistsError, NoImageError, NotSetAsideError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import Change, add_items, digests_of, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.preparation import no_rows, with_columns
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.files import (
    make_folder,
    read_bound,
    read_sealed_or_refuse,
    remove_file,
    write_bound,
    write_sealed,
)
from vicinal.indexer.views.snapshot import served_metadata
from vicinal.models.configs.sealed_json import BrokenSealError

_FOLDER = "set-aside"
_REMEDY = "bring it back from a backup, or remove it, and index the item's source with restore"


@dataclass(frozen=True)
class SetAside:
    """Item that was set aside, why, by whom, and which bundle embedded it."""

    id: str
    label: str | None
    uri: str
    metadata: dict[str, Any]
    reason: str
    by: str
    at: datetime
    bundle: str
    content_sha256: str
    row_sha256: str


def set_aside(reader: GalleryReader, item_ids: Sequence[str], *, reason: str, by: str) -> Change:
    """Set all of some items aside or, when one is not there, none."""
    return remove_items(reader, item_ids, keep=partial(_keep, reader, reason, by))


def listed_aside(reader: GalleryReader) -> list[SetAside]:
    """Items that are set aside, in the order in which they were."""
    found = [_read(file) for file in _folder(reader.gallery).glob("*.json")]
    if not found:
        return []
    # A process that ended between two steps leaves the row of an item that is there.
    held = digests_of(reader.gallery, reader.view(), [one.id for one in found])
    gone = [one for one in found if held.get(one.id, b"").hex() != one.content_sha256]
    return sorted(gone, key=lambda one: (one.at, one.id))


def find_aside(reader: GalleryReader, item_id: str) -> SetAside:
    """The item of an id that was set aside last."""
    found = [one for one in listed_aside(reader) if one.id == item_id]
    if not found:
        raise NotSetAsideError(reader.gallery.name, item_id)
    return found[-1]


def thumbnail_aside(reader: GalleryReader, item_id: str) -> bytes:
    """JPEG thumbnail of an item that is set aside."""
    picture = _row(reader.gallery, find_aside(reader, item_id))["thumbnail"][0].as_py()
    if picture is None:
        raise NoImageError(reader.gallery.name, item_id)
    return bytes(picture)


def bring_back(reader: GalleryReader, item_id: str) -> Change:
    """Add an item that was set aside as it was, and let its source describe it again."""
    gallery, one = reader.gallery, find_aside(reader, item_id)
    bundle = reader.view().snapshot.manifest.bundle
    if bundle != one.bundle:
        raise GalleryError(
            f"item '{item_id}' was set aside when gallery '{gallery.name}' was embedded with bundle "
            f"{one.bundle}, now it is {bundle}: index its source again with restore, or add its image"
        )
    change = add_items(reader, _row(gallery, one), bundle=one.bundle)
    if change.outcomes == ("refused",):
        raise ItemExistsError(gallery.name, [item_id], "it stays set aside until that one has another id")
    gallery.removals.forget([(item_id, bytes.fromhex(one.content_sha256))])
    for suffix in (".json", ".arrow"):
        remove_file((_folder(gallery) / _key(one)).with_suffix(suffix))
    return change


def without_set_aside(reader: GalleryReader) -> bool:
    """Compact a gallery whose built version still holds items that are set aside; whether it did."""
    view = reader.view()
    built = view.dead[view.dead < len(view.snapshot)]
    aside = {one.id for one in listed_aside(reader)} if len(built) else set[str]()
    if not aside.intersection(one["id"] for one in view.snapshot.items(built)):
        return False
    return compact(reader) is not None


def _keep(reader: GalleryReader, reason: str, by: str, rows: pa.Table) -> None:
    gallery, manifest = reader.gallery, reader.view().snapshot.manifest
    rows = rows.select([name for name in no_rows(manifest.dim).schema.names if name in rows.schema.names])
    rows = with_columns(rows, metadata=rows["metadata"].cast(pa.string())).replace_schema_metadata(None)
    make_folder(_folder(gallery))
    for place in range(len(rows)):
        row = rows.slice(place, 1)
        named = row.select(["id", "label", "uri", "metadata", "content_sha256"]).to_pylist()[0]
        content = named.pop("content_sha256").hex()
        one = SetAside(
            **{**named, "metadata": served_metadata(named["metadata"])},
            content_sha256=content,
            reason=reason,
            by=by,
            at=datetime.now(UTC),
            bundle=manifest.bundle,
            row_sha256="",
        )
        path = _folder(gallery) / _key(one)
        one = replace(one, row_sha256=write_bound(path.with_suffix(".arrow"), _encoded(row)))
        write_sealed(path.with_suffix(".json"), json.dumps({**asdict(one), "at": one.at.isoformat()}))


def _encoded(row: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, row.schema) as writer:
        writer.write_table(row.combine_chunks())
    return bytes(sink.getvalue())


def _read(file: Path) -> SetAside:
    fields = json.loads(read_sealed_or_refuse(file, _REMEDY))
    return SetAside(**{**fields, "at": datetime.fromisoformat(fields["at"])})


def _row(gallery: Gallery, one: SetAside) -> pa.Table:
    path = (_folder(gallery) / _key(one)).with_suffix(".arrow")
    try:
        return pa.ipc.open_file(pa.py_buffer(read_bound(path, one.row_sha256))).read_all()
    except (OSError, BrokenSealError) as error:
        raise GalleryError(f"'{path}' is missing or damaged: {_REMEDY}") from error


def _key(one: SetAside) -> str:
    return hashlib.sha256(f"{one.content_sha256} {one.id}".encode()).hexdigest()[:32]


def _folder(gallery: Gallery) -> Path:
    return gallery.path / _FOLDER

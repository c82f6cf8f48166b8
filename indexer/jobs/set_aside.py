"""Items set aside: out of every search and of every version made from then on, and whole on the disk.

<gallery>/set-aside/<key>.arrow   the item's row, as it is added again
<gallery>/set-aside/<key>.json    which item, why, by whom and when; written last, and removed first

An item that is set aside is removed, so that nothing has to tell it from others: no search, calibration or
look for duplicates meets it, and no source brings it back. Its row stays here for `bring_back`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from vicinal.indexer.errors import GalleryError, ItemExistsError, NoImageError, NotSetAsideError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import (
    Change,
    Patch,
    add_items,
    digests_of,
    found_positions,
    patch_items,
    remove_items,
)
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

_FOLDER, _METADATA = "set-aside", "metadata."
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
    instead: str | None = None  # The item that it is a copy of, and that stays for it
    carried: dict[str, Any] = field(default_factory=dict)  # What that got of it: `label`, `metadata.<key>`


def set_aside(
    reader: GalleryReader,
    item_ids: Sequence[str],
    *,
    reason: str,
    by: str,
    instead: Mapping[str, str] | None = None,
) -> Change:
    """Set all of some items aside or, when one is not there, none.

    Items that others stay for, by id, are set aside too, and give those the labels and metadata they lack.
    """
    instead = instead or {}
    values = _values(reader, [*item_ids, *instead, *instead.values()])
    carried: dict[str, dict[str, Any]] = {one: {} for one in instead}
    conflicts = []
    for one, stays in instead.items():
        for key, value in values[one].items():
            if key not in values[stays]:
                values[stays][key] = carried[one][key] = value
            elif values[stays][key] != value:
                conflicts.append(f"'{stays}' keeps its {key}, '{one}' has another")
    patch_items(reader, {one: _patch(values[one]) for one in instead.values()})
    copies = {one: {"instead": instead[one], "carried": carried[one]} for one in instead}
    keep = partial(_keep, reader, {"reason": reason, "by": by}, copies)
    change = remove_items(reader, [*item_ids, *instead], keep=keep)
    return replace(change, n_carried=sum(map(len, carried.values())), conflicts=tuple(conflicts))


def stand_ins(path: Path) -> dict[str, str]:
    """Items of the gallery in a folder that stay for copies which are set aside, by the copies' ids."""
    found: dict[str, str] = {}
    for file in (path / _FOLDER).glob("*.json"):
        # Searches go on without what was brought back meanwhile, or is damaged, which the list tells.
        with suppress(OSError, GalleryError):
            one = _read(file)
            found |= {one.id: one.instead} if one.instead else {}
    # Where one of these went too, that which stays for it; each step doubles how many are gone through.
    for _ in range(8):
        found = {one: found.get(stays, stays) for one, stays in found.items()}
    return found


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
    if one.carried and one.instead and reader.view().positions([one.instead])[0] >= 0:
        now = _values(reader, [one.instead])[one.instead]
        given = {key: None for key, value in one.carried.items() if now.get(key) == value}
        patch_items(reader, {one.instead: _patch(now | given)})
    return change


def without_set_aside(reader: GalleryReader) -> bool:
    """Compact a gallery whose built version still holds items that are set aside; whether it did."""
    view = reader.view()
    built = view.dead[view.dead < len(view.snapshot)]
    aside = {one.id for one in listed_aside(reader)} if len(built) else set[str]()
    if not aside.intersection(one["id"] for one in view.snapshot.items(built)):
        return False
    return compact(reader) is not None


def _values(reader: GalleryReader, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Labels and metadata of items, by id and key."""
    view = reader.view()
    items = view.items(found_positions(reader, view, ids))
    return {
        one["id"]: {
            **({} if one["label"] is None else {"label": one["label"]}),
            **{f"{_METADATA}{key}": value for key, value in one["metadata"].items() if value is not None},
        }
        for one in items
    }


def _patch(values: Mapping[str, Any]) -> Patch:
    metadata = {key.removeprefix(_METADATA): value for key, value in values.items() if key != "label"}
    return Patch(values.get("label"), metadata)


def _keep(
    reader: GalleryReader, said: Mapping[str, str], copies: Mapping[str, Mapping[str, Any]], rows: pa.Table
) -> None:
    gallery, manifest = reader.gallery, reader.view().snapshot.manifest
    rows = rows.select([name for name in no_rows(manifest.dim).schema.names if name in rows.schema.names])
    rows = with_columns(rows, metadata=rows["metadata"].cast(pa.string())).replace_schema_metadata(None)
    make_folder(_folder(gallery))
    for place in range(len(rows)):
        row = rows.slice(place, 1)
        named = row.select(["id", "label", "uri", "metadata", "content_sha256"]).to_pylist()[0]
        content = named.pop("content_sha256").hex()
        one = SetAside(
            **{**named, "metadata": served_metadata(named["metadata"]), **said},
            **copies.get(named["id"], {}),
            content_sha256=content,
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

"""Items set aside: out of every search and of every version made from then on, and whole on the disk.

An item that is set aside is removed, so that nothing has to tell it from others: no search, calibration or
look for duplicates meets it, and no source brings it back. What is said of it stands in the row of its
removal, and its own row is kept beside that for `bring_back`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
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
from vicinal.indexer.state.rows import OnDamage
from vicinal.indexer.state.schema import attachments, removals
from vicinal.indexer.storage.active_pointer import Note
from vicinal.indexer.storage.removals import ASIDE, forget, key_of, reading, remembered
from vicinal.indexer.views.snapshot import served_metadata

_METADATA = "metadata."


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
    copies = {one: (instead[one], carried[one]) for one in instead}

    def kept(rows: pa.Table) -> Note:
        return remembered(rows, _said(reader, rows, {"why": reason, "by": by}, copies))

    change = remove_items(reader, [*item_ids, *instead], note_of=kept)
    return replace(change, n_carried=sum(map(len, carried.values())), conflicts=tuple(conflicts))


def stand_ins(path: Path) -> dict[str, str]:
    """Items of the gallery in a folder that stay for copies which are set aside, by the copies' ids."""
    # Searches go on without what is damaged, which the list tells.
    found = {one.id: one.instead for one in _aside_in(path, lambda _: None) if one.instead}
    # Where one of these went too, that which stays for it; each step doubles how many are gone through.
    for _ in range(8):
        found = {one: found.get(stays, stays) for one, stays in found.items()}
    return found


def listed_aside(reader: GalleryReader) -> list[SetAside]:
    """Items that are set aside, in the order in which they were."""
    found = _aside_in(reader.gallery.path)
    if not found:
        return []
    # An item that came back otherwise is there.
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
    pair = item_id, bytes.fromhex(one.content_sha256)
    row, bundle = _row(gallery, one), one.bundle
    change = add_items(reader, row, bundle=bundle, note=lambda rows: forget(rows, [pair]))
    if change.outcomes == ("refused",):
        raise ItemExistsError(gallery.name, [item_id], "it stays set aside until that one has another id")
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


def _said(
    reader: GalleryReader,
    rows: pa.Table,
    said: Mapping[str, str],
    copies: Mapping[str, tuple[str, dict[str, Any]]],
) -> dict[str, dict[str, Any]]:
    """Columns of the removals of items that are set aside, by id, and their rows."""
    manifest = reader.view().snapshot.manifest
    rows = rows.select([name for name in no_rows(manifest.dim).schema.names if name in rows.schema.names])
    rows = with_columns(rows, metadata=rows["metadata"].cast(pa.string())).replace_schema_metadata(None)
    found = {}
    for place, named in enumerate(rows.select(["id", "label", "metadata"]).to_pylist()):
        instead, carried = copies.get(item_id := named.pop("id"), (None, {}))
        named["metadata"] = served_metadata(named["metadata"])
        details = json.dumps({**named, "bundle": manifest.bundle, "carried": carried})
        row = _encoded(rows.slice(place, 1))
        found[item_id] = {**said, "instead": instead, "details": details, "row": row}
    return found


def _encoded(row: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, row.schema) as writer:
        writer.write_table(row.combine_chunks())
    return bytes(sink.getvalue())


def _aside_in(path: Path, on_damage: OnDamage | None = None) -> list[SetAside]:
    with reading(path) as rows:
        found = rows.all(removals, removals.c.kind == ASIDE, on_damage=on_damage)
    return [
        SetAside(
            id=one.item,
            uri=one.uri,
            reason=one.why,
            by=one.by,
            at=datetime.fromtimestamp(one.at, UTC),
            content_sha256=one.content.hex(),
            instead=one.instead,
            **json.loads(one.details),
        )
        for one in found
    ]


def _row(gallery: Gallery, one: SetAside) -> pa.Table:
    key = key_of(one.id, bytes.fromhex(one.content_sha256))
    with reading(gallery.path) as rows:
        found = rows.first(attachments, attachments.c.kind == ASIDE, attachments.c.id == key)
    if found is None:
        raise GalleryError(
            f"the row of item '{one.id}', which was set aside, is lost: index its source again"
        )
    return pa.ipc.open_file(pa.py_buffer(found.content)).read_all()

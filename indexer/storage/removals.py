"""Removals: which items a person removed, so that the next look at their source does not bring them back.

Each is a row, written in the transaction that lets it come into force. One of an item that is there again
does no harm: a held item is not asked after.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from sqlalchemy import and_

from vicinal.indexer.errors import GalleryError, StorageError
from vicinal.indexer.state import DamagedRowError, Rows, state_of
from vicinal.indexer.state.schema import attachments, removals
from vicinal.indexer.storage.active_pointer import Note
from vicinal.indexer.storage.files import publishing

# Columns of the item table that are remembered, in the order of the fields of `Removal`.
REMEMBERED_COLUMNS = ("id", "content_sha256", "source", "uri", "file_size", "modified_at")
REMOVED, ASIDE = "removed", "set aside"
_IS_ASIDE = removals.c.kind == ASIDE
# Many times what is written to remove items of a large table.
_RESERVED_BYTES = 4 * 2**20
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Removal:
    """Item that was removed; `source` is None for uploads, `modified_at` in microseconds since 1970.

    `follows_content`: known again under another id of its source; not when the source took the same content
    away from another item, which it may bring back. `number` goes up with every removal.
    """

    id: str
    content: bytes
    source: str | None = None
    uri: str = ""
    file_size: int | None = None
    modified_at: int | None = None
    follows_content: bool = True
    number: int = field(default=1, compare=False)


@dataclass
class RemovedItems:
    """Removed items by id and content."""

    items: dict[str, dict[bytes, Removal]] = field(default_factory=dict)

    def of_id(self, item_id: str) -> Collection[Removal]:
        """Removed items that had an id."""
        return self.items.get(item_id, {}).values()

    def contents(self) -> set[bytes]:
        """Contents of all."""
        return {content for known in self.items.values() for content in known}

    def moving(self, source: str, held: Collection[bytes]) -> dict[int | None, set[bytes]]:
        """Contents that are known again under other ids of a source, by the size of their files."""
        found: dict[int | None, set[bytes]] = {}
        for known in self.items.values():
            for content, one in known.items():
                if one.follows_content and one.source == source and content not in held:
                    found.setdefault(one.file_size, set()).add(content)
        return found

    def but(self, others: RemovedItems) -> set[str]:
        """Ids of those that others do not have, or that were removed once more since."""
        before = {
            (item_id, one.content): one.number for item_id in others.items for one in others.of_id(item_id)
        }
        return {
            item_id
            for item_id, known in self.items.items()
            if any(one.number > before.get((item_id, content), 0) for content, one in known.items())
        }


class Removals:
    """Removals of the gallery in a folder; only a writer adds to them, see `remembered`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def forget(self, dropped: Iterable[tuple[str, bytes]]) -> None:
        """Note ids and contents that their source took away itself, and may bring back."""
        known = self.read().contents()
        pairs = [(item_id, content) for item_id, content in dropped if content in known]
        if pairs:
            with publishing(self.folder) as rows:
                forget(rows, pairs)

    def read(self) -> RemovedItems:
        """All that is remembered."""
        found = RemovedItems()
        with reading(self.folder) as rows:
            for one in rows.all(removals, order_by=[removals.c.number]):
                values = (one.source, one.uri, one.file_size, one.modified_at, bool(one.follows_content))
                removal = Removal(one.item, one.content, *values, one.number)
                found.items.setdefault(one.item, {})[one.content] = removal
        return found


@contextmanager
def reading(folder: Path) -> Iterator[Rows]:
    """Rows of the gallery in a folder; a damaged one is refused with what would help."""
    try:
        with state_of(folder).reading() as rows:
            yield rows
    except DamagedRowError as error:
        raise GalleryError(f"{error}: bring it back from a backup") from error


def remembered(items: pa.Table, aside: Mapping[str, Mapping[str, Any]] | None = None) -> Note:
    """A note that a person removes items, or sets them aside: `aside` has by id what is said of each, and its
    whole `row`.
    """
    columns = [items[name] for name in REMEMBERED_COLUMNS[:-1]]
    columns.append(items["modified_at"].cast(pa.int64()))
    names, plain = ("item", "content", *REMEMBERED_COLUMNS[2:]), {"at": time.time(), "follows_content": 1}
    made, kept = [], []
    for values in zip(*(column.to_pylist() for column in columns), strict=True):
        said = dict((aside or {}).get(values[0], {}))
        if said:
            row = {"kind": ASIDE, "id": key_of(*values[:2]), "name": "row", "content": said.pop("row")}
            kept.append(row)
        made.append(
            {**plain, "kind": ASIDE if said else REMOVED, **dict(zip(names, values, strict=True)), **said}
        )

    def note(rows: Rows) -> None:
        number = rows.next_number("removal")
        # What is set aside and leaves another version, too, stays set aside.
        stays = {} if aside else {(one.item, one.content): one for one in rows.all(removals, _IS_ASIDE)}
        again = [stays[_pair(one)]._asdict() for one in made if _pair(one) in stays]
        new = [one for one in made if _pair(one) not in stays]
        _drop_rows(rows, map(_pair, new))
        rows.put(removals, *({**one, "number": number} for one in (*new, *again)))
        rows.add(attachments, *kept)

    return note


def forget(rows: Rows, pairs: Collection[tuple[str, bytes]]) -> None:
    """Forget removals of items by id and content; their content is not followed under other ids any more."""
    _drop_rows(rows, pairs)
    for item_id, content in pairs:
        rows.remove(removals, and_(removals.c.item == item_id, removals.c.content == content))
        rows.change(removals, removals.c.content == content, follows_content=0)


def _pair(one: Mapping[str, Any]) -> tuple[str, bytes]:
    return one["item"], one["content"]


def key_of(item_id: str, content: bytes) -> str:
    """Id of the attachment with the row of an item that is set aside."""
    return hashlib.sha256(f"{content.hex()} {item_id}".encode()).hexdigest()[:32]


def _drop_rows(rows: Rows, pairs: Iterable[tuple[str, bytes]]) -> None:
    if rows.has(attachments, attachments.c.kind == ASIDE):
        rows.remove_each(attachments.c.id, [key_of(*pair) for pair in pairs])


@dataclass(frozen=True)
class Reserve:
    """Room on the disk that a removal in any gallery of a folder may take when there is no other.

    On a full disk a removal, which helps there, would be refused. So a file holds some room; a removal that
    finds none gives it up and tries once more, and the next change that finds room takes it back.
    """

    folder: Path

    def keep(self) -> None:
        """Take the room, unless it is held or there is none to spare."""
        if self._path.exists():
            return
        try:
            with self._path.open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, _RESERVED_BYTES)
        except (AttributeError, OSError):
            # Full, read-only, or a system that promises no room.
            self._give_up()

    def used_if_full(self, remove: Callable[[], Done]) -> Done:
        """Remove something, with the room that is held where there is no other."""
        try:
            return remove()
        except StorageError:
            if not self._give_up():
                raise
            return remove()
        finally:
            self.keep()

    def _give_up(self) -> bool:
        with suppress(OSError):
            self._path.unlink()
            return True
        return False

    @property
    def _path(self) -> Path:
        return self.folder / ".reserve"

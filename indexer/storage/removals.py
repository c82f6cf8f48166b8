"""Removals: which items a person removed, so that the next look at their source does not bring them back.

One file a change, written whole and before the change comes into force. One left by a change that never did
so does no harm: a held item is not asked after. Files are read by name; the last small ones become one.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from vicinal.indexer.errors import StorageError
from vicinal.indexer.storage.files import make_folder, read_sealed_or_refuse, remove_file, write_sealed

# Columns of the item table that are remembered, in the order of the fields of `Removal`.
REMEMBERED_COLUMNS = ("id", "content_sha256", "source", "uri", "file_size", "modified_at")
_REMEDY = "bring it back from a backup, or remove it, and what was removed may come back"
_MOST_SMALL_FILES = 64
_SMALL_BYTES = 2**20
# Many times what Lance writes to remove items of a large table.
_RESERVED_BYTES = 4 * 2**20
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Removal:
    """Item that was removed; `source` is None for uploads, `modified_at` in microseconds since 1970.

    `follows_content`: known again under another id of its source; not when the source took the same content
    away from another item, which it may bring back.
    """

    id: str
    content: bytes
    source: str | None = None
    uri: str = ""
    file_size: int | None = None
    modified_at: int | None = None
    follows_content: bool = True
    times: int = field(default=1, compare=False)


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
            (item_id, one.content): one.times for item_id in others.items for one in others.of_id(item_id)
        }
        return {
            item_id
            for item_id, known in self.items.items()
            if any(one.times > before.get((item_id, content), 0) for content, one in known.items())
        }

    def apply(self, change: dict[str, Any]) -> None:
        """Take one change of a file in."""
        for item_id, content, *others in change.get("removed", ()):
            one, known = Removal(item_id, bytes.fromhex(content), *others), self.items.setdefault(item_id, {})
            before = known.get(one.content)
            known[one.content] = one if before is None else replace(one, times=before.times + 1)
        dropped = {(item_id, bytes.fromhex(content)) for item_id, content in change.get("dropped", ())}
        contents = {content for _, content in dropped}
        for item_id, known in list(self.items.items()) if dropped else ():
            left = {
                content: replace(one, follows_content=one.follows_content and content not in contents)
                for content, one in known.items()
                if (item_id, content) not in dropped
            }
            self.items[item_id] = left


class Removals:
    """Removals of one gallery; only a writer adds to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def remember(self, rows: pa.Table) -> None:
        """Note items that a person removes, before they are gone."""
        columns = [rows[name] for name in REMEMBERED_COLUMNS[:-1]]
        columns.append(rows["modified_at"].cast(pa.int64()))
        values = zip(*(column.to_pylist() for column in columns), strict=True)
        self._write([{"removed": [[item_id, content.hex(), *rest] for item_id, content, *rest in values]}])

    def forget(self, dropped: Iterable[tuple[str, bytes]]) -> None:
        """Note ids and contents that their source took away itself, and may bring back."""
        known = self.read().contents()
        pairs = [[item_id, content.hex()] for item_id, content in dropped if content in known]
        if pairs:
            self._write([{"dropped": pairs}])

    def read(self) -> RemovedItems:
        """All that is remembered."""
        while True:
            found = RemovedItems()
            try:
                for path in self._files():
                    for change in _changes_in(path):
                        found.apply(change)
            except FileNotFoundError:
                # A writer made one file of several.
                continue
            return found

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.json"))

    def _write(self, changes: list[dict[str, Any]]) -> None:
        files = self._files()
        small: list[Path] = []
        for path in reversed(files):
            if path.stat().st_size >= _SMALL_BYTES:
                break
            small.insert(0, path)
        merged = small if len(small) >= _MOST_SMALL_FILES else []
        changes = [*(change for path in merged for change in _changes_in(path)), *changes]
        last = int(files[-1].stem.partition("-")[0]) if files else 0
        make_folder(self.folder)
        # Of a gallery that was deleted and made anew, no file has the name of another.
        name = f"{last + 1:012d}-{secrets.token_hex(4)}.json"
        write_sealed(self.folder / name, json.dumps({"changes": changes}))
        # Read before the merged one until they are gone, they change nothing of what it says.
        for path in merged:
            remove_file(path)


def _changes_in(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(read_sealed_or_refuse(path, _REMEDY))["changes"])


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

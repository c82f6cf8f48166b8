"""Older files of a gallery that say what is searched, removed and set aside, and which words it was given.

active.json, active.copy.json   the newest move, and the same once more
removed/*.json                  changes, in order: items that were removed, and those that sources dropped
set-aside/<key>.{json,arrow}    items that were set aside, each with its row
identity.json, engines.json     words
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from vicinal.indexer.state.rows import Rows
from vicinal.indexer.state.schema import attachments, documents, moves, removals
from vicinal.models.configs.sealed_json import unsealed

logger = logging.getLogger(__name__)
NAMES = ("active.json", "active.copy.json", "removed", "set-aside", "identity.json", "engines.json")
_WORDS = {"identity.json": ("identity", "identity"), "engines.json": ("engine", "owner")}
# Of items that were removed, in the order in which they were listed after their content.
_LISTED = ("source", "uri", "file_size", "modified_at", "follows_content")
_DETAILS = ("label", "metadata", "bundle", "carried")
_Items = dict[tuple[str, bytes], dict[str, Any]]


def bring_in(folder: Path, rows: Rows) -> None:
    """Make rows of all that these files say."""
    for path in _present(folder / name for name in NAMES[:2]):
        with _told(path):
            if not rows.has(moves):
                rows.add(moves, {**_move(path), "number": rows.next_number("move")})
    for path in _present(folder / name for name in _WORDS):
        with _told(path):
            kind, field = _WORDS[path.name]
            word = json.dumps(str(_read(path)[field]))
            rows.put(documents, {"kind": kind, "id": "", "at": path.stat().st_mtime, "content": word})
    items: _Items = {}
    for path in sorted((folder / "removed").glob("*.json")):
        with _told(path):
            for change in _read(path)["changes"]:
                _apply(change, path.stat().st_mtime, items)
    for path in sorted((folder / "set-aside").glob("*.json")):
        with _told(path):
            item, content, said, row = _aside(path)
            plain = dict.fromkeys(_LISTED) | {"follows_content": 1}
            items[item, content] = {**plain, **items.get((item, content), {}), **said}
            rows.put(attachments, {"kind": "set aside", "id": path.stem, "name": "row", "content": row})
    number = rows.next_number("removal")
    for (item, content), one in items.items():
        rows.put(removals, {**one, "item": item, "content": content, "number": number})


def _present(paths: Iterator[Path]) -> list[Path]:
    return [path for path in paths if path.exists()]


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, LookupError, TypeError, ValueError) as error:
        logger.warning("'%s' is damaged, and what it says is left out: %s", path, error)


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(unsealed(path.read_bytes())))


def _move(path: Path) -> dict[str, Any]:
    fields = {"revisions": {}, "calibrated_as": 0, "calibrated": {}, "last_version": 0, **_read(path)}
    by_version = {name: json.dumps(dict(fields[name])) for name in ("revisions", "calibrated")}
    return {**fields, **by_version, "at": path.stat().st_mtime}


def _apply(change: dict[str, Any], at: float, items: _Items) -> None:
    for item, content, *listed in change.get("removed", ()):
        said = dict(zip(_LISTED, [*listed, True][: len(_LISTED)], strict=True))
        said["follows_content"] = int(said["follows_content"])
        items[item, bytes.fromhex(content)] = {"kind": "removed", "at": at, **said}
    dropped = {(item, bytes.fromhex(content)) for item, content in change.get("dropped", ())}
    contents = {content for _, content in dropped}
    for key in dropped:
        items.pop(key, None)
    for (_, content), one in items.items() if dropped else ():
        one["follows_content"] &= int(content not in contents)


def _aside(path: Path) -> tuple[str, bytes, dict[str, Any], bytes]:
    """Id and content of an item that was set aside, columns of its removal, and its row."""
    fields, row = _read(path), path.with_suffix(".arrow").read_bytes()
    if hashlib.sha256(row).hexdigest() != fields["row_sha256"]:
        raise ValueError("its row is not what was written")
    said = {
        "kind": "set aside",
        "at": datetime.fromisoformat(fields["at"]).timestamp(),
        "uri": fields["uri"],
        "by": fields["by"],
        "why": fields["reason"],
        "instead": fields.get("instead"),
        "details": json.dumps({"carried": {}, **{name: fields[name] for name in _DETAILS if name in fields}}),
    }
    return fields["id"], bytes.fromhex(fields["content_sha256"]), said, row

"""Kept searches, answers, label sessions and verdicts of earlier releases, from their files.

<gallery>/searches/searches.sqlite        searches, answers, and what was called different
<gallery>/labelling/<id>/                 session.json, pairs.npz, answers.json; current.json beside it
<gallery>/duplicates/verdicts.json        photos that were called no copies
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from vicinal.indexer.state import schema
from vicinal.indexer.state.rows import Rows
from vicinal.models.configs.sealed_json import unsealed

logger = logging.getLogger(__name__)
NAMES = ("searches/searches.sqlite", "labelling", "duplicates/verdicts.json")
_SAID = {True: "same", False: "different", None: "unsure"}


def bring_searches(folder: Path, rows: Rows) -> None:
    """Make rows of what people said of a gallery in the files of its folder."""
    searches, labelling, copies = (folder / name for name in NAMES)
    _tried(searches, _bring_searches, rows)
    _tried(copies, _bring_copies, rows)
    for path in sorted(labelling.glob("*/session.json")):
        _tried(path, _bring_session, rows)
    _tried(labelling / "current.json", _bring_current, rows)


def _tried(path: Path, bring: Callable[[Path, Rows], None], rows: Rows) -> None:
    if path.exists():
        try:
            with rows.connection.begin_nested():
                bring(path, rows)
        except (OSError, ValueError, LookupError, TypeError, sqlite3.Error, SQLAlchemyError) as error:
            logger.warning("'%s' is damaged, and left out: %s", path, error)


def _bring_searches(path: Path, rows: Rows) -> None:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
        file.row_factory = sqlite3.Row
        tables = {
            name: [dict(one) for one in file.execute(f"select * from {name} order by {order}")]
            for name, order in (
                ("searches", "id"),
                ("answers", "number"),
                ("different", "answer"),
                ("asked", "at, rowid"),
                ("wanted", "name"),
            )
        }
    found, answers = tables["searches"], tables["answers"]
    wanted = {one["name"]: one["value"] for one in tables["wanted"]}
    rows.put(schema.searches, *found)
    drawn = [{"search": one["id"], "content": one["picture"]} for one in found if one["picture"] is not None]
    rows.put(schema.pictures, *drawn)
    rows.put(schema.answers, *answers)
    rows.put(schema.different, *tables["different"])
    rows.put(schema.asked, *({**one, "number": n} for n, one in enumerate(tables["asked"], start=1)))
    note = {"most": int(wanted.get("most", 1)), "deleted_before": wanted.get("deleted_before", 0.0)}
    rows.put(schema.documents, {"kind": "kept searches", "id": "", "at": 0.0, "content": json.dumps(note)})
    given = [one["number"] for one in (*answers, *({"number": one["answer"]} for one in tables["different"]))]
    _count(rows, "answer", max([0, *given]))
    _count(rows, "hint", -min([0, *given]))
    _count(rows, "asked", len(tables["asked"]))
    _count(rows, "different", 1)


def _bring_copies(path: Path, rows: Rows) -> None:
    kept = _read(path)
    for one in kept["verdicts"]:
        said = {"number": one["number"], "session": "", "said": "different", "by": one["by"]}
        said |= {
            "first": one["first"],
            "first_content": one["contents"][one["first"]],
            "at": _seconds(one["at"]),
        }
        pairs = [{**said, "other": other, "other_content": one["contents"][other]} for other in one["others"]]
        rows.put(schema.verdicts, *({**pair, "place": place} for place, pair in enumerate(pairs)))
    _count(rows, "verdict", kept["next_number"] - 1)


def _bring_session(path: Path, rows: Rows) -> None:
    head = _read(path)
    head.pop("pairs_sha256")
    answers = _read(path.with_name("answers.json"))["answers"]
    at = _seconds(head["created_at"])
    session = {"kind": "labelling", "id": head["id"], "at": at}
    pairs = path.with_name("pairs.npz").read_bytes()
    rows.put(schema.documents, {**session, "content": json.dumps(head)})
    rows.put(schema.attachments, {**session, "name": "pairs", "content": pairs})
    for one in answers:
        said = {"session": head["id"], "pair": one["pair"], "said": _SAID[one["same"]], "by": "", "at": at}
        rows.put(schema.verdicts, {"number": rows.next_number("verdict"), "place": 0, **said})


def _bring_current(path: Path, rows: Rows) -> None:
    current = {"kind": "labelling", "id": "", "at": path.stat().st_mtime, "content": _read(path)["session"]}
    rows.put(schema.documents, current)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(unsealed(path.read_bytes()))
    return found


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _count(rows: Rows, name: str, value: int) -> None:
    rows.put(schema.numbers, {"name": name, "value": value})

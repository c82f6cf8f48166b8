"""What people said in files of earlier releases becomes rows; what is damaged takes nothing else along."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from vicinal.indexer.state import Rows, schema, state_of
from vicinal.models.configs.sealed_json import sealed

TABLES = """
create table searches (id text primary key, at real, key real, sender text, visit text, embedding blob,
    signature blob, fields text, drawn_at real, item_id text, picture blob) without rowid;
create table answers (number integer primary key autoincrement, search text, kind text, item_id text,
    label text, by text, at real, taken_back_at real);
create table different (answer integer, search text, item_id text, content blob, bundle text, embedding blob,
    by text, at real, primary key (answer, item_id)) without rowid;
create table asked (search text, by text, at real);
create table wanted (name text primary key, value real) without rowid;
insert into wanted values ('most', 100), ('deleted_before', 2.5);
insert into asked values ('s', 'eve', 7.0), ('s', 'anna', 6.0);
insert into answers values (-9, 's', 'wrong', 'a', null, 'till', 8.0, null);
insert into answers values (4, 's', 'absent', null, null, 'eve', 9.0, null);
"""


@pytest.fixture
def gallery(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / "searches").mkdir(parents=True)
    embedding, fields = np.eye(1, 4, dtype="<f4").tobytes(), json.dumps({"bundle": "b", "candidates": []})
    with closing(sqlite3.connect(folder / "searches" / "searches.sqlite")) as file:
        file.executescript(TABLES)
        row = ("s", 5.0, 0.25, "", "v", embedding, None, fields, 6.0, None, b"jpeg")
        file.execute(f"insert into searches values ({', '.join('?' * 11)})", row)
        pair = (4, "s", "a", b"sum", "b", embedding, "eve", 9.0)
        file.execute(f"insert into different values ({', '.join('?' * 8)})", pair)
        file.commit()
    write(folder / "labelling" / "current.json", {"session": "one"})
    head = {"id": "one", "created_at": "2026-01-01T00:00:00Z", "version": 1, "pairs_sha256": "0"}
    write(folder / "labelling" / "one" / "session.json", head)
    (folder / "labelling" / "one" / "pairs.npz").write_bytes(b"arrays")
    said = [{"pair": 3, "same": True}, {"pair": 1, "same": None}]
    write(folder / "labelling" / "one" / "answers.json", {"answers": said})
    one = {"number": 2, "first": "x", "others": ["y", "z"], "by": "eve", "at": "2026-01-01T00:00:00Z"}
    copies = [{**one, "contents": {"x": "0", "y": "1", "z": "2"}}]
    write(folder / "duplicates" / "verdicts.json", {"next_number": 6, "verdicts": copies})
    return folder


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(sealed(json.dumps(content)))


def said_in(rows: Rows) -> list[tuple[object, ...]]:
    c = schema.verdicts.c
    found = rows.all(schema.verdicts, order_by=(c.number, c.place))
    return [(one.session, one.number, one.pair, one.first, one.other, one.said, one.by) for one in found]


def test_all_that_was_said_is_brought_in(gallery: Path) -> None:
    with state_of(gallery).changing() as rows:
        (search,) = rows.all(schema.searches)
        assert (search.id, search.at, search.key, search.visit, search.drawn_at) == ("s", 5.0, 0.25, "v", 6.0)
        assert rows.values(schema.pictures.c.content) == [b"jpeg"]
        order = [schema.answers.c.number]
        told = [(one.number, one.kind, one.by) for one in rows.all(schema.answers, order_by=order)]
        assert told == [(-9, "wrong", "till"), (4, "absent", "eve")]
        assert [(one.item_id, one.content) for one in rows.all(schema.different)] == [("a", b"sum")]
        assert [one.by for one in rows.all(schema.asked, order_by=[schema.asked.c.number])] == ["anna", "eve"]
        assert said_in(rows) == [
            ("", 2, None, "x", "y", "different", "eve"),
            ("", 2, None, "x", "z", "different", "eve"),
            ("one", 6, 3, None, None, "same", ""),
            ("one", 7, 1, None, None, "unsure", ""),
        ]
        kept = {(one.kind, one.id): one.content for one in rows.all(schema.documents)}
        assert json.loads(kept["kept searches", ""]) == {"most": 100, "deleted_before": 2.5}
        assert kept["labelling", ""] == "one"
        assert json.loads(kept["labelling", "one"])["version"] == 1
        assert rows.values(schema.attachments.c.content) == [b"arrays"]
        numbers = [rows.next_number(one) for one in ("answer", "hint", "asked", "verdict")]
        assert numbers == [5, 10, 3, 8]


def test_what_is_damaged_takes_nothing_else_along(gallery: Path, caplog: pytest.LogCaptureFixture) -> None:
    (gallery / "searches" / "searches.sqlite").write_bytes(b"noise" * 1000)
    (gallery / "labelling" / "one" / "answers.json").write_text("{")
    with state_of(gallery).reading() as rows:
        assert [one[:2] for one in said_in(rows)] == [("", 2), ("", 2)]
        assert rows.count(schema.searches) == 0
    assert [one.args[0].name for one in caplog.records if "left out" in one.message] == [
        "searches.sqlite",
        "session.json",
    ]

"""Jobs and keys of before there were rows, brought in with the first look at a data folder."""

from __future__ import annotations

import json
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from vicinal.models.configs.sealed_json import sealed
from vicinal.service.jobs.store import JobStore
from vicinal.service.keys import Keyring, KeyStore
from vicinal.service.settings import Settings

KEY = "vic_0123456789ab_" + "x" * 43
RECORD = {
    "id": "0123456789ab",
    "name": "shop",
    "scopes": ["search"],
    "galleries": None,
    "folders": [],
    "salt": "00" * 16,
    "digest": "7a8f",
    "created_at": "2026-05-01T10:00:00Z",
    "expires_at": None,
}


def record(job_id: str, gallery: str, state: str, **fields: Any) -> bytes:
    """A job as it was kept."""
    row = {
        "id": job_id,
        "kind": "reindex",
        "gallery": gallery,
        "request": {"source": "photos"},
        "folders": ["a"],
        "state": state,
        "revision": 7,
        "attempt": 1,
        "worker": "host:1",
        "progress": {"total": 3},
        "problem": None,
        "problem_type": None,
        "problem_members": {},
        "result": None,
        "created_at": f"2026-05-01T10:00:0{job_id[-1]}Z",
        "updated_at": "2026-05-01T10:05:00.5Z",
        "started_at": None,
        "finished_at": None,
    }
    return sealed(json.dumps(row | fields))


def write_jobs(path: Path, kept: dict[str, bytes]) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("create table kv (queue text, key text, value blob, primary key (queue, key))")
        file.executemany("insert into kv values ('vicinal', ?, ?)", kept.items())
        file.commit()


def test_jobs_that_ended_are_there_and_others_wait_again(galleries: Path) -> None:
    failures = [{"id": "a", "path": "a.jpg", "reason": "no image"}]
    kept = {
        "job:j1": record("j1", "shoes", "succeeded", result={"version": 3}),
        "job:j2": record("j2", "boots", "running"),
        "job:j3": record("j3", "hats", "queued", attempt=0),
        "job:j4": record("j4", "bags", "failed")[:-1] + b" ",
        "claim:j2:1": b"host:1",
        "cancel:j3": b"1",
        "failures:j1": zlib.compress(json.dumps(failures).encode()),
        "log:j1": zlib.compress(b'[{"text": "begins"}]'),
        "gallery:boots": b"j2",
    }
    write_jobs(galleries.parent / "jobs.db", kept)
    store = JobStore(galleries.parent)
    waits, again, ended = store.all()
    assert (ended.state, ended.result, ended.folders) == ("succeeded", {"version": 3}, ("a",))
    assert (ended.updated_at.isoformat(), ended.revision) == ("2026-05-01T10:05:00.500000+00:00", 7)
    assert (store.list_of("j1", "failures"), store.list_of("j1", "log")) == (failures, [{"text": "begins"}])
    assert (again.state, again.attempt, waits.state, waits.cancel_requested) == ("queued", 1, "queued", True)
    taken = store.claim("w", 20.0)
    assert taken is not None
    assert (taken.id, taken.attempt) == ("j2", 2)
    assert (galleries.parent / "jobs.db").exists()


def test_a_damaged_store_of_jobs_keeps_no_keys_back(galleries: Path) -> None:
    (galleries.parent / "jobs.db").write_bytes(b"no database at all " * 1000)
    (galleries.parent / "keys").mkdir()
    (galleries.parent / "keys" / "keys.json").write_bytes(sealed(json.dumps({"keys": [RECORD], "on": True})))
    store = KeyStore(galleries.parent)
    assert (list(store.all()), store.is_on, JobStore(galleries.parent).all()) == ([RECORD["id"]], True, [])
    store.revoke("shop")
    assert (KeyStore(galleries.parent).all(), store.is_on) == ({}, True)


@pytest.mark.parametrize("is_on", [True, False])
def test_keys_that_were_off_stay_off(tmp_path: Path, is_on: bool) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "keys.json").write_bytes(sealed(json.dumps({"keys": [], "on": is_on})))
    assert KeyStore(tmp_path).is_on is is_on


def test_a_mark_alone_says_that_keys_are_on(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "keys-are-on").touch()
    assert Keyring(Settings(data_dir=tmp_path)).is_asked_for


def test_damaged_keys_are_none_and_calls_need_one(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "keys.json").write_bytes(sealed(json.dumps({"keys": [RECORD], "on": False}))[:-9])
    store = KeyStore(tmp_path)
    assert (store.is_on, store.find(KEY)) == (True, None)

"""Older files of records: what they say is in force, and what is damaged is left out and told."""

from __future__ import annotations

import json
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table

from vicinal.indexer.state import State, state_of
from vicinal.indexer.state.schema import activations, attachments, documents, search_counts
from vicinal.indexer.storage.files import write_sealed

AT = "2026-11-28T10:00:00Z"
SECONDS = datetime.fromisoformat(AT).timestamp()
GONE = {"kind": "activate", "pipeline": "rerank=k_reciprocal k1=20", "calibration": "b", "at": AT}


def event(calibration: str, kind: str = "activate", slot: str = "rerank=off") -> dict[str, Any]:
    return {"kind": kind, "pipeline": slot, "calibration": calibration, "at": AT}


FILES: dict[str, dict[str, Any]] = {
    "calibrations/a.json": {"id": "a", "created_at": AT, "scores_sha256": sha256(b"scores").hexdigest()},
    "calibrations/b.json": {"id": "b", "created_at": AT, "scores_sha256": sha256(b"others").hexdigest()},
    "calibrations/checks/a.json": {"calibration": "a", "checked_at": AT},
    "calibrations/active.json": {"rerank=off": {"calibration": "a", "at": AT}},
    "calibrations/activations.json": {"events": [event("a"), event("b"), GONE, event("a", "roll_back")]},
    "calibrations/pipeline.json": {"calibration": "a", "at": AT},
    "calibrations/drift/a.0.json": {"since": AT, "counts": {}},
    "calibrations/metrics/beside.json": {"bundle": "f", "sha256": sha256(b"beside").hexdigest()},
    "comparisons/c.json": {"id": "c", "created_at": AT},
    "duplicates/d.json": {"id": "d", "created_at": AT},
    "duplicates/verdicts.json": {"verdicts": []},
    "reports/1.json": {"kind": "index"},
}


@pytest.fixture
def gallery(galleries: Path) -> Path:
    """Folder of a gallery of the release before there were rows."""
    folder = galleries / "shoes"
    for name, fields in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_sealed(folder / name, json.dumps(fields))
    for name in ("a", "b"):
        (folder / "calibrations" / f"{name}.scores.npz").write_bytes(b"scores")
    for content in (b"beside", b"metric"):
        (folder / "calibrations" / "metrics" / f"{sha256(content).hexdigest()}.npz").write_bytes(content)
    return folder


def rows_of(state: State, table: Table, *columns: str) -> set[tuple[Any, ...]]:
    with state.reading() as rows:
        return {tuple(getattr(one, name) for name in columns) for one in rows.all(table)}


def in_force(state: State) -> list[tuple[str, str]]:
    with state.reading() as rows:
        found = rows.all(activations, order_by=[activations.c.number])
    return [(one.kind, one.calibration) for one in found if (one.slot, one.at) == ("rerank=off", SECONDS)]


def test_every_record_is_a_row(gallery: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = state_of(gallery)
    kinds = ("calibration", "comparison", "duplicates", "report")
    documented = rows_of(state, documents, "kind", "id")
    expected = {*zip(kinds, "acd1", strict=True), ("calibration", "b"), ("check", "a"), ("pipeline", "")}
    assert documented == expected
    assert rows_of(state, attachments, "kind", "id", "name", "content") == {
        ("calibration", "a", "scores", b"scores"),
        ("beside", "f", "", b"beside"),
        ("metric", sha256(b"metric").hexdigest(), "", b"metric"),
    }
    assert rows_of(state, search_counts, "calibration", "counter", "since") == {("a", "0", SECONDS)}
    assert in_force(state) == [("activate", "a"), ("activate", "b"), ("roll_back", "a")]
    with state.reading() as rows:
        assert rows.count(activations) == 3
        record = rows.first(documents, documents.c.kind == "check")
    assert record is not None
    assert (record.at, json.loads(record.content)) == (SECONDS, FILES["calibrations/checks/a.json"])
    assert "b.scores.npz' is left out" in caplog.text


def test_the_last_change_is_found_where_its_event_is_missing(gallery: Path) -> None:
    write_sealed(gallery / "calibrations" / "activations.json", json.dumps({"events": [event("b")]}))
    assert in_force(state_of(gallery)) == [("activate", "b"), ("activate", "a")]


@pytest.mark.parametrize("name", ["active.json", "activations.json"])
def test_either_file_says_what_is_in_force(gallery: Path, name: str) -> None:
    (gallery / "calibrations" / name).write_text("{")
    assert in_force(state_of(gallery))[-1][1] == "a"


def test_damage_stays_where_nothing_else_says_what_is_in_force(
    gallery: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("active.json", "activations.json", "pipeline.json", "a.json")
    for name in names:
        (gallery / "calibrations" / name).write_text("{")
    state = state_of(gallery)
    assert {(one.table, one.row["kind"]) for one in state.damaged()} == {
        ("activations", "activate"),
        ("documents", "pipeline"),
    }
    with state.reading() as rows:
        assert rows.values(documents.c.id, documents.c.kind == "calibration") == ["b"]
    assert all(f"calibrations/{name}' is left out" in caplog.text for name in names)

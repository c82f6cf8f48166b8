"""The database of several machines: set once, kept secret, and missed for a while without harm."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.postgres_server import PASSWORD, PostgresServer
from tests.service.types import Fail, MakeSettings
from tests.waiting import wait_until
from vicinal.indexer.state import use_database
from vicinal.service.database import open_database
from vicinal.service.http.app import create_app
from vicinal.service.jobs.records import new_job
from vicinal.service.jobs.store import JobStore
from vicinal.service.keys import KeyStore
from vicinal.service.settings import Settings


@pytest.fixture
def settings(tmp_path: Path, postgres_url: str, make_settings: MakeSettings) -> Iterator[Settings]:
    made = make_settings(tmp_path, database=postgres_url, run_jobs=False)
    yield made
    shared = open_database(made)
    assert shared is not None
    use_database(tmp_path, None)
    shared.database.close()


def test_a_password_is_shown_nowhere(settings: Settings) -> None:
    shared = open_database(settings)
    assert shared is not None
    said = [
        repr(settings),
        settings.model_dump_json(),
        shared.database.place,
        JobStore(settings.data_dir).place,
    ]
    assert [one for one in said if PASSWORD in one] == []


def test_a_folder_has_one_database_however_often_it_is_opened(settings: Settings) -> None:
    assert open_database(settings) is open_database(settings)
    assert open_database(settings.model_copy(update={"database": None})) is None


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("mysql://a:secret@host/x", "must be like postgresql://"),
        ("postgresql://a:secret@127.0.0.1:1/x", "does not answer"),
    ],
)
def test_an_address_that_is_wrong_is_told_in_one_line(
    fail: Fail, monkeypatch: pytest.MonkeyPatch, address: str, said: str
) -> None:
    monkeypatch.setenv("VICINAL_DATABASE", address)
    told = fail("keys", "list")
    assert (said in told, "secret" in told) == (True, False)


def test_a_missing_package_is_named(fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VICINAL_DATABASE", "postgresql://host/x")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "psycopg" else found(name))
    assert "VICINAL_DATABASE needs psycopg" in fail("keys", "list")


def test_what_another_machine_keeps_is_read_after_a_change_alone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = open_database(settings)
    assert shared is not None
    store = KeyStore(settings.data_dir)
    _, first = store.create("shop", ["search"])
    shared.followed()
    assert store.find(first) is not None
    n_read = []
    reading = shared.database.reading
    monkeypatch.setattr(shared.database, "reading", lambda: n_read.append(1) or reading())
    assert (store.find(first) is not None, n_read) == (True, [])
    # Another machine.
    use_database(settings.data_dir / "other", shared.database)
    _, second = KeyStore(settings.data_dir / "other").create("other", ["search"])
    assert store.find(second) is None
    shared.followed()
    assert store.find(second) is not None
    job = JobStore(settings.data_dir).create(new_job("steps", "shoes", {}))
    assert JobStore(settings.data_dir / "other").all() == [job]
    use_database(settings.data_dir / "other", None)


@pytest.mark.slow
def test_a_server_goes_on_with_what_it_knows_while_the_database_is_away(
    settings: Settings, postgres: PostgresServer
) -> None:
    with TestClient(create_app(settings)) as client:
        _, key = KeyStore(settings.data_dir).create("shop", ["admin"])
        client.headers["authorization"] = f"Bearer {key}"
        wait_until(lambda: client.get("/v1/me").json().get("name"))
        postgres.stop()
        assert client.get("/v1/me").status_code == 200
        assert client.get("/v1/jobs").json()["type"] == "urn:vicinal:problem:jobs-unavailable"
        assert "does not answer" in str(client.get("/readyz").json()["degraded"])
        postgres.start()
        wait_until(lambda: client.get("/v1/jobs").status_code == 200)
        assert client.get("/readyz").json()["degraded"] == []

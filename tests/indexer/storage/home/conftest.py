"""Homes in a folder and in a bucket, and mirrors of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Float, cast, literal

from tests.s3_server import serving_bucket
from vicinal.indexer.state.database import postgres as postgres_at
from vicinal.indexer.state.state import use_database
from vicinal.indexer.storage.home import leases
from vicinal.indexer.storage.home.joining import join
from vicinal.indexer.storage.home.mirror import Mirror
from vicinal.indexer.storage.home.stores import HomeStore, open_store


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """The address of a bucket."""
    pytest.importorskip("obstore")
    with serving_bucket() as (_, name):
        yield f"s3://{name}"


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.slow)])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty home."""
    if request.param == "folder":
        return str(tmp_path / "home")
    return f"{request.getfixturevalue('bucket')}/{secrets.token_hex(4)}"


@pytest.fixture
def store(home: str) -> HomeStore:
    found = open_store(home)
    if isinstance(path := getattr(found, "path", None), Path):
        path.mkdir()
        (path / "home.json").touch()
    return found


@pytest.fixture
def mirrors(tmp_path: Path, postgres_url: str) -> Iterator[Callable[..., Any]]:
    """Mirrors of one home, in a folder, each with connections of its own to one database."""
    databases = {}

    def joined(*names: str, home: str | None = None) -> list[Mirror]:
        for name in set(names) - {folder.name for folder in databases}:
            databases[tmp_path / name] = postgres_at(postgres_url)
            use_database(tmp_path / name, databases[tmp_path / name])
        return [join(tmp_path / name, home or str(tmp_path / "home")) for name in names]

    yield joined
    for folder, database in databases.items():
        use_database(folder, None)
        database.close()


class Clock:
    """Clock of the database."""

    now = 1e9


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Clock by which leases end; nobody renews one by himself."""
    made = Clock()
    monkeypatch.setattr(leases, "_now", lambda: cast(literal(made.now), Float))
    monkeypatch.setattr(leases.Leases, "_show_life", lambda *_: None)
    return made

"""Homes in a folder and in a bucket, and mirrors of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.s3_server import serving_bucket
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
def mirrors(tmp_path: Path) -> Callable[..., Any]:
    """Mirrors of one home, in a folder."""

    def joined(*names: str, home: str | None = None) -> list[Mirror]:
        return [join(tmp_path / name, home or str(tmp_path / "home")) for name in names]

    return joined

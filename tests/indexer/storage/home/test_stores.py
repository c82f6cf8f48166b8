"""Stores: both give back what was written, and say who does not answer."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tests.ports import free_port
from vicinal.indexer.errors import HomeError
from vicinal.indexer.storage.home.stores import FolderStore, HomeStore, open_store


def test_what_was_written_is_read(store: HomeStore, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"vicinal" * 400_000)
    store.put("objects/small", b"content")
    store.put("objects/large", large)
    assert store.get("objects/small") == b"content"
    assert store.fetch("objects/large", tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == large.read_bytes()
    assert [one.name for one in store.list("objects")] == ["objects/large", "objects/small"]


def test_what_is_not_there_is_nothing(store: HomeStore, tmp_path: Path) -> None:
    store.delete("objects/none")
    assert store.get("objects/none") is None
    assert not store.fetch("objects/none", tmp_path / "fetched")
    assert list(store.list("objects")) == []


def test_a_folder_that_is_not_mounted_is_no_empty_home(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match="is it mounted"):
        FolderStore(tmp_path).get("objects/none")


@pytest.mark.slow
@pytest.mark.parametrize("hangs", [False, True])
def test_a_store_that_nobody_answers_for_says_so(
    bucket: str, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1] if hangs else free_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setattr("vicinal.indexer.storage.home.stores._ANSWER_SECONDS", 2)
        store, began = open_store(bucket), time.monotonic()
        with pytest.raises(HomeError, match=f"home '{bucket}' does not answer") as raised:
            store.get("home.json")
    assert time.monotonic() - began < 60.0
    assert "secret" not in str(raised.value)
    assert raised.value.headers == {"Retry-After": "5"}

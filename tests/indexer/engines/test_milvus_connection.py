"""The connection to Milvus: what an address says and what errors mean, without a server."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from vicinal.indexer.engines.milvus import MilvusEngine
from vicinal.indexer.errors import EngineAwayError, EngineError, EngineFullError

pytest.importorskip("pymilvus", exc_type=ImportError)


@pytest.mark.parametrize("address", ["root:secret@host", "http://me:sec/ret@host", "http://host/a/b", "x.db"])
def test_an_address_that_is_none_is_refused_without_being_told(address: str) -> None:
    with pytest.raises(EngineError, match="is no address of Milvus: write http://USER:PASSWORD") as caught:
        MilvusEngine(address)
    assert "secret" not in str(caught.value)


def test_a_password_is_written_as_an_address_takes_it() -> None:
    engine = MilvusEngine("https://ro%40ot:%2Fsecret@[::1]/shop")
    given = {"uri": "https://[::1]:19530", "token": "ro@ot:/secret", "db_name": "shop"}
    assert engine._connection._given == given


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (3, EngineAwayError, "no memory left"),
        (7, EngineFullError, "the disk of Milvus is full"),
        (103, EngineAwayError, "still loading"),
        (1403, EngineError, "grant it the collections"),
        (10_001, EngineAwayError, "did not do in time"),
        (65535, EngineError, "refuses what it was asked, with its error 65535: odd"),
    ],
)
def test_what_a_server_says_is_said_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, number: int, kind: type[EngineError], words: str
) -> None:
    engine = MilvusEngine("http://host")

    def fail(**_: Any) -> None:
        raise engine._connection.library.MilvusException(number, "odd")

    monkeypatch.setattr(engine._connection, "_client", SimpleNamespace(list_collections=fail))
    with pytest.raises(EngineError, match=words) as caught:
        engine.names("vicinal_")
    assert type(caught.value) is kind


def test_an_old_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MilvusEngine("http://host")
    old = SimpleNamespace(get_server_version=lambda **_: "v2.2.16")
    monkeypatch.setattr(engine._connection.library, "MilvusClient", lambda **_: old)
    with pytest.raises(EngineError, match=r"Milvus is of version 2\.2, 2\.3 or later is needed"):
        engine.describe()


@pytest.mark.slow
def test_a_server_that_never_answers_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vicinal.indexer.engines.milvus_connection.CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        engine = MilvusEngine(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(EngineAwayError, match=r"did not do in time|does not answer"):
            engine.describe()

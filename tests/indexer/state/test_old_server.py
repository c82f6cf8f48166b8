"""Keys of before there were rows, brought in with the first look at a data folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vicinal.models.configs.sealed_json import sealed
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


def test_keys_stay_keys_and_can_be_revoked(galleries: Path) -> None:
    (galleries.parent / "keys").mkdir()
    (galleries.parent / "keys" / "keys.json").write_bytes(sealed(json.dumps({"keys": [RECORD], "on": True})))
    store = KeyStore(galleries.parent)
    assert (list(store.all()), store.is_on) == ([RECORD["id"]], True)
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

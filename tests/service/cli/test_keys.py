"""`vicinal keys`: a key is shown once, listed without itself, and revoked by its name."""

from __future__ import annotations

import json

import pytest

from tests.service.types import Fail, Run
from vicinal.service.keys import KeyStore
from vicinal.service.settings import Settings


def store() -> KeyStore:
    return KeyStore(Settings().data_dir)


def test_a_key_is_made_shown_once_and_listed_without_itself(run: Run) -> None:
    options = ("--scope", "write", "-s", "search", "-g", "shoes", "--source", "shoes/new", "--source", "old")
    key = run("keys", "create", "shop", *options).stdout.strip()
    record = store().find(key)
    assert record is not None
    assert (record.name, record.scopes, record.galleries) == ("shop", ("search", "write"), ("shoes",))
    assert record.folders == ("shoes/new", "old")
    listed = run("keys", "list").stdout
    assert ("shop" in listed, record.id in listed, "search, write in shoes" in listed) == (True, True, True)
    shown = run("keys", "list", "--json").stdout
    assert key.split("_", 2)[2] not in listed + shown
    assert not {"salt", "digest"} & json.loads(shown)[0].keys()


def test_keys_are_turned_off_by_a_command_alone(run: Run, fail: Fail) -> None:
    run("keys", "create", "shop", "-s", "search")
    run("keys", "revoke", "shop")
    assert "none is accepted" in fail("serve", "--port", "0")
    assert "0 taken away" in run("keys", "off").stdout
    assert not store().is_on


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["a", "-s", "read"], "there is no scope 'read', only search, write, admin"),
        (["a", "-s", "search", "--expires", "soon"], "'soon' is no end"),
        (["a", "-s", "search", "--expires", "2001-01-01"], "is over already"),
        (["a", "-s", "search", "--expires", "999999w"], "is no end"),
        (["a", "-s", "search", "-g", "../x"], "is no gallery name"),
        (["a", "-s", "search", "--source", "../x"], "is no folder below sources_dir"),
        (["a", "-s", "search", "--source", "x/../../y"], "is no folder below sources_dir"),
        (["a", "-s", "search", "--source", "/srv"], "is no folder below sources_dir"),
        (["a", "-s", "search", "--source", ""], "is no folder below sources_dir"),
    ],
)
def test_a_wrong_key_is_refused_in_one_line(fail: Fail, arguments: list[str], reason: str) -> None:
    assert reason in fail("keys", "create", *arguments)

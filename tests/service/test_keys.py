"""Keys that operators make: kept as hashes, found by their id, bound to galleries, gone when revoked."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from vicinal.indexer.state import state_of
from vicinal.indexer.state.schema import facts, keys
from vicinal.indexer.storage import active_pointer
from vicinal.indexer.storage.active_pointer import Activation
from vicinal.indexer.storage.gallery_names import set_alias
from vicinal.service import keys as module
from vicinal.service.errors import KeyStoreError, RequestError
from vicinal.service.keys import Grant, Keyring, KeyStore, check_exposure
from vicinal.service.settings import Settings


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "data")


def test_a_key_is_found_and_nothing_of_it_is_kept(store: KeyStore, tmp_path: Path) -> None:
    record, key = store.create("shop", ["search", "write"])
    assert store.find(key) == record
    assert (record.scopes, record.galleries, record.expires_at) == (("search", "write"), None, None)
    secret = key.split("_", 2)[2]
    path = tmp_path / "data" / "server.db"
    assert secret.encode() not in path.read_bytes() + repr(record).encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_what_is_nearly_a_key_is_none(store: KeyStore) -> None:
    """Negative control of the test above."""
    _, key = store.create("shop", ["search"])
    other = store.create("other", ["admin"])[1]
    swapped = "_".join([*key.split("_")[:2], other.split("_", 2)[2]])
    wrong = [
        key[:-1],
        f"{key}x",
        key[:-1] + ("A" if key[-1] != "A" else "B"),
        key.upper(),
        swapped,
        "",
        "vic_",
        "é",
    ]
    assert [store.find(one) for one in wrong] == [None] * len(wrong)


def test_only_the_record_of_its_id_is_hashed_for_a_key(
    store: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [store.create(f"key {n}", ["search"])[1] for n in range(5)]
    n_hashed = []
    digest = module._digest
    monkeypatch.setattr(module, "_digest", lambda *one: n_hashed.append(one) or digest(*one))
    assert store.find(made[3]) is not None
    assert store.find("vic_000000000000_" + "x" * 43) is None
    assert len(n_hashed) == 2


def test_another_process_sees_a_key_made_and_revoked_at_once(galleries: Path) -> None:
    store, other = KeyStore(galleries.parent), KeyStore(galleries.parent)
    assert (other.all(), other.is_on) == ({}, False)
    record, key = store.create("shop", ["search"])
    assert other.find(key) == record
    store.revoke("shop")
    assert other.find(key) is None
    assert other.is_on
    assert store.turn_off() == 0
    assert not other.is_on


def test_a_key_is_revoked_by_its_id_too_and_others_stay(store: KeyStore) -> None:
    first, _ = store.create("a", ["search"])
    second, key = store.create("b", ["search"])
    assert store.revoke(first.id) == first
    assert store.find(key) == second
    with pytest.raises(RequestError, match="there is no key 'a', only b"):
        store.revoke("a")


def test_an_expired_key_is_none(store: KeyStore) -> None:
    now = datetime.now(UTC)
    _, over = store.create("over", ["search"], expires_at=now - timedelta(seconds=1))
    _, running = store.create("running", ["search"], expires_at=now + timedelta(hours=1))
    assert (store.find(over) is None, store.find(running) is None) == (True, False)


def test_a_damaged_key_is_none_and_says_so(store: KeyStore, caplog: pytest.LogCaptureFixture) -> None:
    damaged, key = store.create("shop", ["search"])
    _, other = store.create("other", ["search"])
    with store._state.changing() as rows:
        content = damaged.model_dump_json().replace('"search"', '"admin"')
        rows.connection.execute(keys.update().where(keys.c.id == damaged.id).values(content=content))
    assert (store.find(key), store.find(other) is None, store.is_on) == (None, False, True)
    assert damaged.id in str(store.problem)
    assert "it is no key" in caplog.text


def test_what_cannot_be_read_accepts_no_key(store: KeyStore, tmp_path: Path) -> None:
    key = store.create("shop", ["search"])[1]
    (tmp_path / "data" / "server.db").write_bytes(b"no database at all " * 1000)
    for one in (store, KeyStore(tmp_path / "data")):
        assert one.is_on
        with pytest.raises(KeyStoreError, match="none is accepted"):
            one.find(key)


def test_keys_that_cannot_be_told_to_be_off_are_on(store: KeyStore) -> None:
    store.create("shop", ["search"])
    with store._state.changing() as rows:
        rows.connection.execute(facts.update().values(value="off"))
    assert store.is_on


def test_a_grant_covers_its_galleries_and_what_its_aliases_stand_for(tmp_path: Path) -> None:
    root = tmp_path / "galleries"
    for name in ("shop", "shop-2", "other"):
        with state_of(root / name).changing() as rows:
            active_pointer._add(rows, Activation(1, 1, 1, "token"))
    set_alias(root, "live", "shop")
    grant = Grant(name="a", scopes=("search",), galleries=("live",))
    assert [grant.covers(root, one) for one in ("live", "shop", "shop-2", "none")] == [
        True,
        True,
        False,
        False,
    ]
    set_alias(root, "live", "shop-2")
    assert [grant.covers(root, one) for one in ("live", "shop", "shop-2")] == [True, False, True]
    assert Grant(name="a", scopes=("search",)).covers(root, "other")


def test_keys_of_the_settings_and_of_the_store_count_alike(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, api_keys={"from the settings": ("admin",)})
    ring = Keyring(settings)
    _, key = ring.store.create("shop", ["search"], galleries=["shop"])
    assert ring.find("from the settings").scopes == ("admin",)
    assert (ring.find(key).scopes, ring.find(key).galleries) == (("search",), ("shop",))
    assert "from the settings" not in ring.find("from the settings").name
    assert (ring.find(""), ring.find("other")) == (None, None)


def test_keys_are_asked_for_from_the_first_one_on_and_after_the_last_one_too(tmp_path: Path) -> None:
    """Revoking the last key must not open the server to everybody."""
    ring = Keyring(Settings(data_dir=tmp_path))
    assert not ring.is_asked_for
    ring.store.create("shop", ["search"])
    assert ring.is_asked_for
    ring.store.revoke("shop")
    assert ring.is_asked_for


def gone(folder: Path) -> None:
    (folder / "server.db").unlink()


def everything_gone(folder: Path) -> None:
    shutil.rmtree(folder)


def unmounted(folder: Path) -> None:
    everything_gone(folder)
    folder.mkdir()


@pytest.mark.parametrize("lose", [gone, everything_gone, unmounted])
def test_a_process_that_saw_keys_goes_on_asking_when_they_vanish(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    ring = Keyring(Settings(data_dir=tmp_path / "data"))
    _, key = ring.store.create("shop", ["search"])
    assert ring.is_asked_for
    lose(tmp_path / "data")
    assert ring.is_asked_for
    with pytest.raises(KeyStoreError, match="none is accepted"):
        ring.find(key)


def test_who_took_the_keys_out_of_the_settings_is_told_before_the_next_start(tmp_path: Path) -> None:
    check_exposure(Settings(data_dir=tmp_path, api_keys={"key": ("search",)}))
    with pytest.raises(KeyStoreError, match="none is accepted"):
        check_exposure(Settings(data_dir=tmp_path))


@pytest.mark.parametrize("changes", [{"host": "0.0.0.0"}, {"host": "::"}, {"cors_origins": ("*",)}])
def test_who_serves_strangers_asks_for_keys_whatever_is_in_the_folder(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """A process of a server may be replaced while the folder is not mounted."""
    ring = Keyring(Settings(data_dir=tmp_path, **changes))
    assert (ring.is_asked_for, ring.find("any")) == (True, None)


@pytest.mark.parametrize("lose", [gone, lambda _: None])
def test_an_operator_turns_keys_off_and_on(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    settings = Settings(data_dir=tmp_path)
    running = Keyring(settings)
    _, key = running.store.create("shop", ["search"])
    assert running.is_asked_for
    lose(tmp_path)
    KeyStore(tmp_path).turn_off()
    assert (running.is_asked_for, Keyring(settings).is_asked_for, running.find(key)) == (False, False, None)
    _, key = KeyStore(tmp_path).create("shop", ["search"])
    assert (running.is_asked_for, running.find(key) is None) == (True, False)


def test_a_lent_key_is_got_once_and_is_for_its_gallery(tmp_path: Path) -> None:
    ring = Keyring(Settings(data_dir=tmp_path))
    token = ring.offer(Grant(name="label", scopes=("admin",), galleries=("shoes",)))
    assert (ring.is_asked_for, ring.find(token), ring.redeem("other")) == (True, None, None)
    key = ring.redeem(token)
    assert (ring.find(key).galleries, ring.redeem(token), ring.is_asked_for) == (("shoes",), None, True)
    assert [ring.find(one) for one in (token, key + "x", "")] == [None] * 3

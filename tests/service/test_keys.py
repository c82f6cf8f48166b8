"""Keys that operators make: kept as hashes, found by their id, bound to galleries, gone when revoked."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from vicinal.indexer.storage.gallery_names import set_alias
from vicinal.service import keys as module
from vicinal.service.errors import KeyStoreError, RequestError
from vicinal.service.keys import Grant, Keyring, KeyStore, check_exposure
from vicinal.service.settings import Settings


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys" / "keys.json")


def test_a_key_is_found_and_nothing_of_it_is_kept(store: KeyStore) -> None:
    record, key = store.create("shop", ["search", "write"])
    assert store.find(key) == record
    assert (record.scopes, record.galleries, record.expires_at) == (("search", "write"), None, None)
    secret = key.split("_", 2)[2]
    assert secret not in store.path.read_text() + repr(record)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


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


def test_another_process_sees_a_key_made_and_revoked_at_once(store: KeyStore) -> None:
    other = KeyStore(store.path)
    assert other.all() == {}
    record, key = store.create("shop", ["search"])
    assert other.find(key) == record
    store.revoke("shop")
    assert other.find(key) is None
    assert other.is_on


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


@pytest.mark.slow
def test_keys_made_at_once_are_all_there(store: KeyStore) -> None:
    def make(n: int) -> str:
        return KeyStore(store.path).create(f"key {n}", ["search"])[1]

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make, range(16)))
    assert len(store.all()) == 16
    assert all(store.find(key) for key in made)


def test_a_damaged_file_accepts_no_key_and_loses_none(store: KeyStore) -> None:
    key = store.create("shop", ["search"])[1]
    whole = store.path.read_text()
    store.path.write_text(whole.replace('"search"', '"admin"'))
    for refused in (
        lambda: store.find(key),
        lambda: store.create("b", ["search"]),
        lambda: store.revoke("shop"),
    ):
        with pytest.raises(KeyStoreError, match="none is accepted"):
            refused()
    store.path.write_text(whole)
    assert store.find(key) is not None


def test_a_grant_covers_its_galleries_and_what_its_aliases_stand_for(tmp_path: Path) -> None:
    for name in ("shop", "shop-2", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "active.json").write_text("{}")
    set_alias(tmp_path, "live", "shop")
    grant = Grant(name="a", scopes=("search",), galleries=("live",))
    assert [grant.covers(tmp_path, one) for one in ("live", "shop", "shop-2", "none")] == [
        True,
        True,
        False,
        False,
    ]
    set_alias(tmp_path, "live", "shop-2")
    assert [grant.covers(tmp_path, one) for one in ("live", "shop", "shop-2")] == [True, False, True]
    assert Grant(name="a", scopes=("search",)).covers(tmp_path, "other")


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


def gone(path: Path) -> None:
    path.unlink()


def folder_gone(path: Path) -> None:
    shutil.rmtree(path.parent)


def folder_is_a_file(path: Path) -> None:
    folder_gone(path)
    path.parent.touch()


def everything_gone(path: Path) -> None:
    shutil.rmtree(path.parents[1])


def unmounted(path: Path) -> None:
    everything_gone(path)
    path.parents[1].mkdir()


def dangling(path: Path) -> None:
    gone(path)
    path.symlink_to("nothing")


LOSSES = [gone, folder_gone, folder_is_a_file, dangling, everything_gone, unmounted]


@pytest.mark.parametrize("lose", LOSSES)
def test_a_process_that_saw_keys_goes_on_asking_when_they_vanish(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    ring = Keyring(Settings(data_dir=tmp_path / "data"))
    _, key = ring.store.create("shop", ["search"])
    assert ring.is_asked_for
    lose(ring.store.path)
    assert ring.is_asked_for
    with pytest.raises(KeyStoreError, match="none is accepted"):
        ring.find(key)


@pytest.mark.parametrize("lose", LOSSES[:4])
def test_a_process_that_starts_after_keys_vanished_asks_for_them(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    lose_from = KeyStore(settings.keys_path)
    lose_from.create("shop", ["search"])
    lose(lose_from.path)
    assert Keyring(settings).is_asked_for
    with pytest.raises(KeyStoreError, match="none is accepted"):
        check_exposure(settings)


@pytest.mark.parametrize("changes", [{"host": "0.0.0.0"}, {"host": "::"}, {"cors_origins": ("*",)}])
def test_who_serves_strangers_asks_for_keys_whatever_is_in_the_folder(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """A process of a server may be replaced while the folder is not mounted."""
    ring = Keyring(Settings(data_dir=tmp_path, **changes))
    assert (ring.is_asked_for, ring.find("any")) == (True, None)


@pytest.mark.parametrize("lose", [gone, folder_gone, lambda _: None])
def test_an_operator_turns_keys_off_and_on(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    settings = Settings(data_dir=tmp_path)
    running = Keyring(settings)
    _, key = running.store.create("shop", ["search"])
    assert running.is_asked_for
    lose(running.store.path)
    KeyStore(settings.keys_path).turn_off()
    assert (running.is_asked_for, Keyring(settings).is_asked_for, running.find(key)) == (False, False, None)
    _, key = KeyStore(settings.keys_path).create("shop", ["search"])
    assert (running.is_asked_for, running.find(key) is None) == (True, False)


def test_a_damaged_file_cannot_be_turned_off_unseen(store: KeyStore) -> None:
    store.create("shop", ["search"])
    store.path.write_bytes(store.path.read_bytes().replace(b'"on": true', b'"on": false'))
    assert store.is_on


def test_a_lent_key_is_got_once_and_is_for_its_gallery(tmp_path: Path) -> None:
    ring = Keyring(Settings(data_dir=tmp_path))
    token = ring.offer(Grant(name="label", scopes=("admin",), galleries=("shoes",)))
    assert (ring.is_asked_for, ring.find(token), ring.redeem("other")) == (True, None, None)
    key = ring.redeem(token)
    assert (ring.find(key).galleries, ring.redeem(token), ring.is_asked_for) == (("shoes",), None, True)
    assert [ring.find(one) for one in (token, key + "x", "")] == [None] * 3

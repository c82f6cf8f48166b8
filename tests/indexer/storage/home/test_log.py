"""The log: who creates a number first, what is void, and what is removed."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pytest

from tests.indexer.storage.home.replicas import MemoryStore
from vicinal.indexer.errors import HomeError
from vicinal.indexer.storage.home.follower import Follower
from vicinal.indexer.storage.home.log import Checkpoint, Entry, Log


class Forgetful(MemoryStore):
    """A store whose answers to writes are lost so many times."""

    lost = 0

    def put_if_absent(self, name: str, content: bytes) -> bool:
        done = super().put_if_absent(name, content)
        if self.lost:
            self.lost -= 1
            raise HomeError("home 'memory' does not answer: it is a test")
        return done


def entry(number: int, **fields: object) -> Entry:
    return Entry.model_validate({"number": number, "id": f"id {number}", **fields})


def filled(store: MemoryStore, n: int) -> Log:
    log = Log(store)
    for number in range(1, n + 1):
        came = {"galleries/a/x.json": (f"object-{number}", 1)}
        store.put(f"objects/object-{number}", b"x")
        assert log.create(entry(number, came=came))
    return log


def test_the_second_of_a_number_is_refused() -> None:
    log = filled(MemoryStore(), 1)
    assert not log.create(entry(1, id="another"))
    assert log.read(1) == entry(1, came={"galleries/a/x.json": ("object-1", 1)})


def test_an_entry_whose_answer_was_lost_is_known_again() -> None:
    store = Forgetful()
    store.lost = 1
    assert Log(store).create(entry(1))


def test_an_entry_behind_a_pruned_log_is_void() -> None:
    """A replica that slept for days must not begin a log of its own."""
    store = MemoryStore()
    log = filled(store, 3)
    store.delete("log/000000000001.json")
    store.delete("log/000000000002.json")
    assert not log.create(entry(2, id="late"))
    assert log.read(2) is None


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_log_that_was_emptied_is_not_new(tmp_path: Path, n: int) -> None:
    """Who joins would begin it anew, and all objects would go; a home that never had an entry is new."""
    store = MemoryStore()
    filled(store, n)
    for one in [*store.list("log")]:
        store.delete(one.name)
    (tmp_path / "mirror").mkdir()
    follower = Follower(tmp_path, "memory", store)
    with pytest.raises(HomeError, match="does not have entry 1 any more") if n else nullcontext():
        follower.catch_up()


def test_a_damaged_entry_is_refused() -> None:
    store = MemoryStore()
    log = filled(store, 1)
    stored = store.get("log/000000000001.json") or b""
    store.put("log/000000000001.json", stored.replace(b"object-1", b"object-2"))
    with pytest.raises(HomeError, match="entry 1 of home 'memory' is damaged"):
        log.read(1)


def test_what_no_replica_needs_is_removed_after_a_day() -> None:
    store = MemoryStore()
    log = filled(store, 4)
    for number in (2, 4):
        files = {"galleries/a/x.json": (f"object-{number}", 1, number, "")}
        log.keep(Checkpoint(number=number, files=files, leases={}))
        store.now += timedelta(days=2)
    log.create(entry(5))
    store.put("objects/object-9", b"about to be named")
    assert log.prune() == 1
    assert log.collect() == 1
    assert [one.name for one in store.list("objects")] == [f"objects/object-{i}" for i in (2, 3, 4, 9)]
    assert log.collect() == log.prune() == 0


def test_nothing_young_is_removed() -> None:
    store = MemoryStore()
    log = filled(store, 3)
    store.put("objects/object-9", b"unnamed")
    log.keep(Checkpoint(number=2, files={}, leases={}))
    log.keep(Checkpoint(number=3, files={}, leases={}))
    assert log.prune() == log.collect() == 0

"""Kept searches of several replicas: what one of them keeps, hears and deletes comes to all."""

from __future__ import annotations

import random
import shutil
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service.answering.test_store import a_search
from vicinal.service.answering import sharing
from vicinal.service.answering.sharing import SharedSearches
from vicinal.service.answering.store import KeptSearch, SearchStore

DAYS, MOST = 30.0, 1000


class Clock(datetime):
    """Time that a test moves on."""

    at = datetime(2026, 11, 1, tzinfo=UTC)

    @classmethod
    def now(cls, _zone: Any = None) -> datetime:  # type: ignore[override]
        return cls.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr(Clock, "at", datetime(2026, 11, 1, tzinfo=UTC))
    monkeypatch.setattr("vicinal.service.answering.store.datetime", Clock)
    monkeypatch.setattr(sharing, "datetime", Clock)
    return Clock


class Replica:
    """A replica whose batches lie in a folder that stands for the home, and come from there when told."""

    def __init__(self, root: Path, name: str, home: Path) -> None:
        (root / name / "shop").mkdir(parents=True)
        self.replica, self.home = name, home
        self.store = SearchStore(root / name / "shop")
        self.folder = self.store.path.parent / "events"
        self.shared = SharedSearches(self.store, self)
        self.shared.begin()

    def put(self, path: Path, content: bytes) -> None:
        for place in (self.home, self.folder):
            target = place / path.relative_to(self.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    def erase(self, gone: Sequence[Path]) -> None:
        for place in (self.home, self.folder):
            for path in gone:
                (place / path.relative_to(self.folder)).unlink(missing_ok=True)

    def pull(self) -> None:
        """Lay batches of the home in place and take away those that went."""
        there = {one.relative_to(self.home) for one in self.home.glob("*/*.batch")}
        own = {one.relative_to(self.folder) for one in self.folder.glob("*/*.batch")}
        for one in sorted(there ^ own):
            if one in there:
                (self.folder / one).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.home / one, self.folder / one)
            else:
                (self.folder / one).unlink()

    def settle(self, *, most: int = MOST, thorough: bool = False) -> None:
        self.shared.settle(most=most, days=DAYS, thorough=thorough)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def replicas(tmp_path: Path, home: Path, clock: type[Clock]) -> list[Replica]:
    return [Replica(tmp_path, name, home) for name in ("a", "b", "c")]


def bring_together(replicas: Sequence[Replica], *, most: int = MOST, rounds: int = 4) -> None:
    """Let all that happened come to all."""
    for number in range(rounds):
        for one in replicas:
            one.pull()
            one.settle(most=most, thorough=number > 0)


def test_a_search_and_its_answers_come_to_the_others(replicas: list[Replica]) -> None:
    one, other, _ = replicas
    search = a_search(1, id="s", signature=bytes(768), at=Clock.at)
    one.store.keep([(search, b"jpeg")], most=MOST, days=DAYS)
    bring_together(replicas)
    assert other.store.picture("s") == b"jpeg"
    # Also where nothing was kept but what came.
    assert other.store.get("s").in_sample
    given = other.store.answer("s", "wrong", by="eve", item_id="mug", different={"mug": b"digest"})
    other.store.draw(["s"], asked=["s"], by="eve")
    bring_together(replicas)
    assert one.store.answers() == [given]
    assert one.store.get("s").drawn_at == Clock.at
    assert [pair.item_id for pair in one.store.different()] == ["mug"]
    one.store.take_back(given.number)
    bring_together(replicas)
    assert other.store.answers() == other.store.different() == []


def unlike(name: str, **changes: Any) -> KeptSearch:
    """A search that is like no other."""
    embedding = np.random.default_rng(zlib.crc32(name.encode())).normal(size=16).astype(np.float32)
    given = {"id": name, "at": Clock.at, "embedding": embedding / np.linalg.norm(embedding), **changes}
    return a_search(**given)


def test_the_later_answer_of_a_person_holds_wherever_it_was_given(replicas: list[Replica]) -> None:
    one, other, _ = replicas
    one.store.keep([(a_search(id="s", at=Clock.at), None)], most=MOST, days=DAYS)
    bring_together(replicas)
    for replica, kind in ((one, "absent"), (other, "unsure")):
        Clock.at += timedelta(minutes=1)
        replica.store.answer("s", kind, by="eve")
    bring_together(replicas)
    assert [[given.kind for given in each.store.answers()] for each in replicas] == [["unsure"]] * 3


def files_with(root: Path, content: bytes, *, whole: bool = False) -> list[str]:
    """Files that hold any 64 bytes of a content, which SQLite lays into pages, or all of a short one."""
    starts = range(0, len(content) - 64, 16 if len(content) < 1000 else 300)
    pieces = [content] if whole else [content[start : start + 64] for start in starts]
    found = []
    for path in root.rglob("*"):
        if path.is_file():
            stored = path.read_bytes()
            if any(one in stored for one in pieces):
                found.append(str(path.relative_to(root)))
    return sorted(found)


def test_what_is_deleted_on_demand_is_nowhere_any_more(
    replicas: list[Replica], home: Path, tmp_path: Path
) -> None:
    one, other, late = replicas
    picture = random.Random(0).randbytes(40_000)
    searches = [unlike(name) for name in ("a", "b")]
    one.store.keep([(searches[0], picture), (searches[1], b"another")], most=MOST, days=DAYS)
    bring_together(replicas)
    # Another replica tells of it again, which the one that deletes has not heard.
    other.store.answer("a", "wrong", by="eve", item_id="mug", different={"mug": None})
    other.settle()
    assert len(files_with(home, picture)) == 2
    one.store.delete(["a"])
    bring_together([one, other], rounds=2)
    assert {name.partition("/")[0] for name in files_with(tmp_path, picture)} == {late.replica}
    bring_together(replicas, rounds=2)
    assert files_with(tmp_path, picture) == []
    assert [each.store.picture("b") for each in replicas] == [b"another"] * 3
    assert late.store.answers() == late.store.different() == []


def test_a_replica_that_was_away_brings_nothing_back(replicas: list[Replica], tmp_path: Path) -> None:
    one, _, away = replicas
    one.store.keep([(a_search(1, id="a", at=Clock.at), b"x" * 5000)], most=MOST, days=DAYS)
    bring_together(replicas)
    away.store.answer("a", "absent", by="eve")
    Clock.at += timedelta(days=1)
    one.store.delete(before=Clock.at)
    bring_together(replicas[:2])
    away.settle()
    bring_together(replicas)
    assert all(each.store.n_kept == 0 for each in replicas)
    assert files_with(tmp_path, b"x" * 5000) == []

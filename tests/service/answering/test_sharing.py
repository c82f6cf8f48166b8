"""Kept searches of several replicas, beside one machine on which the same happened in the order of time."""

from __future__ import annotations

import random
import shutil
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service.answering.test_store import a_search
from vicinal.indexer.storage.home import Mirror
from vicinal.indexer.storage.home.joining import join
from vicinal.service.answering import sharing
from vicinal.service.answering.sharing import SearchSharing, SharedSearches
from vicinal.service.answering.store import KeptSearch, SearchStore, standing
from vicinal.service.errors import AnswerNotFoundError, SearchNotFoundError
from vicinal.service.settings import Settings

DAYS, MOST = 30.0, 1000
ITEMS = ("mug", "jug", "cup")
PERSONS = ("anna", "eve")


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


class CrashError(Exception):
    """Stands for the end of a process."""


class Replica:
    """A replica whose batches lie in a folder that stands for the home, and come from there when told."""

    def __init__(self, root: Path, name: str, home: Path) -> None:
        (root / name / "shop").mkdir(parents=True)
        self.replica, self.home = name, home
        self.store = SearchStore(root / name / "shop")
        self.folder = self.store.path.parent / "events"
        self.steps_to_live = -1
        self.shared = self.started()
        self.shared.begin()

    def started(self) -> SharedSearches:
        """A process that starts anew."""
        shared = SharedSearches(self.store, self)
        for step in ("_take", "_tell", "_forget"):
            setattr(shared, step, self._mortal(getattr(shared, step)))
        return shared

    def _mortal(self, do: Callable[..., Any]) -> Callable[..., Any]:
        """Crash before or after a step, when its turn has come."""

        def step(*given: Any) -> Any:
            self._die()
            done = do(*given)
            self._die()
            return done

        return step

    def _die(self) -> None:
        self.steps_to_live -= 1
        if self.steps_to_live == 0:
            raise CrashError

    def put(self, path: Path, content: bytes) -> None:
        self._die()
        for place in (self.home, self.folder):
            target = place / path.relative_to(self.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            self._die()

    def erase(self, gone: Sequence[Path]) -> None:
        self._die()
        for place in (self.home, self.folder):
            for path in gone:
                (place / path.relative_to(self.folder)).unlink(missing_ok=True)
            self._die()

    def pull(self, random_: random.Random | None = None) -> None:
        """Lay batches of the home in place and take away those that went: all, or some in any order."""
        there = {one.relative_to(self.home) for one in self.home.glob("*/*.batch")}
        own = {one.relative_to(self.folder) for one in self.folder.glob("*/*.batch")}
        changes = sorted(there ^ own)
        if random_ is not None:
            changes = random_.sample(changes, random_.randint(0, len(changes)))
        for one in changes:
            if one in there:
                (self.folder / one).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.home / one, self.folder / one)
            else:
                (self.folder / one).unlink()

    def settle(self, *, most: int = MOST, thorough: bool = False) -> None:
        self.shared.settle(most=most, days=DAYS, thorough=thorough)


def state_of(store: SearchStore) -> dict[str, Any]:
    """All that a store says, without the numbers of answers."""
    number = {
        one.number: (one.search, one.kind, one.by, one.item_id, one.at)
        for one in store.answers(replaced=True)
    }
    return {
        "searches": [
            (
                one.id,
                one.at,
                one.key,
                one.embedding.tolist(),
                one.candidates,
                one.drawn_at,
                one.item_id,
                one.in_sample,
                one.visit,
            )
            for one in store.searches()
        ],
        "pictures": [store.picture(one.id) for one in store.searches()],
        "answers": sorted(
            (one.search, one.kind, one.item_id or "", one.label or "", one.by, one.at)
            for one in store.answers()
        ),
        "replaced": sorted(str(number[one.number]) for one in store.answers(replaced=True)),
        "standing": {
            search: sorted((one.by, one.kind) for one in own)
            for search, own in standing(store.answers()).items()
        },
        "asked": sorted(store.asked()),
        "different": sorted(
            (one.search, one.item_id, one.by, one.at, one.content) for one in store.different()
        ),
    }


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


def random_operation(random_: random.Random, known: Sequence[str], made: Sequence[str]) -> tuple[Any, ...]:
    """An operation on one of the searches that a replica has, or on all."""
    if not known or random_.random() < 0.3:
        return "keep", f"{len(made):03x}", random_.random()
    search, by = random_.choice(known), random_.choice(PERSONS)
    item = random_.choice(ITEMS)
    return random_.choice(
        [
            ("answer", search, "wrong", by, item, {item: b"digest"}),
            ("answer", search, "item", by, item, {one: None for one in ITEMS if one != item}),
            ("answer", search, "absent", by, None, dict.fromkeys(ITEMS)),
            ("answer", search, "unsure", by, None, {}),
            ("take back", search),
            ("take back", search),
            ("draw", search, by),
            ("added", search, f"search-{search}"),
            ("added", search, None),
            *([("delete", search)] if random_.random() < 0.5 else []),
            *([("delete before", random_.choice([5, 60]))] if random_.random() < 0.05 else []),
        ]
    )


def apply(
    store: SearchStore, operation: tuple[Any, ...], pair: tuple[Any, ...] | None
) -> tuple[Any, ...] | None:
    """Do it on a store. Which answer is taken back is told by `pair`, all but its number, or found."""
    kind, *rest = operation
    with suppress(SearchNotFoundError, AnswerNotFoundError):
        if kind == "keep":
            search = unlike(rest[0], key=rest[1])
            store.keep([(search, rest[0].encode())], most=MOST, days=DAYS)
        elif kind == "answer":
            search_id, said, by, item, different = rest
            store.answer(search_id, said, by=by, item_id=item, different=different)
        elif kind == "take back":
            numbers = {
                **{one.answer: (one.search, one.by, one.at) for one in store.different()},
                **{one.number: (one.search, one.by, one.at) for one in store.answers()},
            }
            own = [one for one, (search, *_) in numbers.items() if search == rest[0]]
            if pair is None and own:
                pair = numbers[min(own)]
            for number in [one for one, what in numbers.items() if what == pair]:
                store.take_back(number)
        elif kind == "draw":
            store.draw([rest[0]], asked=[rest[0]], by=rest[1])
        elif kind == "added":
            store.mark_added(*rest)
        elif kind == "delete":
            store.delete([rest[0]])
        else:
            store.delete(before=Clock.at - timedelta(minutes=rest[0]))
    return pair


def hear(replica: Replica, random_: random.Random, *, most: int = MOST) -> None:
    """Let a replica hear of some of what happened, which may kill it, and of that once more."""
    replica.pull(random_)
    replica.steps_to_live = random_.randint(1, 12) if random_.random() < 0.4 else -1
    try:
        replica.settle(most=most, thorough=random_.random() < 0.3)
    except CrashError:
        replica.shared = replica.started()
    replica.steps_to_live = -1
    if random_.random() < 0.1:
        with replica.store.opened() as file:
            file.execute("delete from batches")


def run(
    replicas: Sequence[Replica], reference: SearchStore, seed: int, *, n: int = 60
) -> list[tuple[Any, ...]]:
    """Operations on replicas that hear of each other late, in any order, twice, and after crashes."""
    random_ = random.Random(seed)
    made: list[str] = []
    log = []
    for _ in range(n):
        Clock.at += timedelta(minutes=random_.choice([0.001, 0.1, 3]))
        replica = random_.choice(replicas)
        known = [one.id for one in replica.store.searches()] if replica.store.exists else []
        operation = random_operation(random_, known, made)
        if operation[0] == "keep":
            made.append(operation[1])
        pair = apply(replica.store, operation, None)
        apply(reference, operation, pair or ())
        log.append((Clock.at, replica.replica, *operation))
        if random_.random() < 0.5:
            hear(random_.choice(replicas), random_)
    return log


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_replicas_come_to_what_one_machine_has(replicas: list[Replica], tmp_path: Path, seed: int) -> None:
    (tmp_path / "one" / "shop").mkdir(parents=True)
    reference = SearchStore(tmp_path / "one" / "shop")
    log = run(replicas[: 2 + seed % 2], reference, seed)
    bring_together(replicas[: 2 + seed % 2])
    reference.let_go(most=MOST, days=DAYS)
    for one in replicas[: 2 + seed % 2]:
        assert state_of(one.store) == state_of(reference), log


def test_a_replica_that_does_not_settle_answers_is_found_out(
    replicas: list[Replica], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test before: it sees where the later answer of a person does not win."""
    monkeypatch.setattr("vicinal.service.answering.event_batches._settle", lambda _file: None)
    one, other, _ = replicas
    one.store.keep([(a_search(id="s", at=Clock.at), None)], most=MOST, days=DAYS)
    bring_together(replicas)
    for replica, kind in ((one, "absent"), (other, "unsure")):
        Clock.at += timedelta(minutes=1)
        replica.store.answer("s", kind, by="eve")
    bring_together(replicas)
    assert len(one.store.answers()) == 2
    monkeypatch.undo()


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


def test_a_damaged_batch_is_told_once_and_left_out(
    replicas: list[Replica], caplog: pytest.LogCaptureFixture
) -> None:
    one, other, _ = replicas
    for name in ("a", "b"):
        one.store.keep([(a_search(1, id=name, at=Clock.at), None)], most=MOST, days=DAYS)
        one.settle()
    other.pull()
    batch = min(other.folder.rglob("*.batch"))
    batch.write_bytes(b"nothing of a database" * 100)
    for _ in range(2):
        other.settle()
    assert [each.id for each in other.store.searches()] == ["b"]
    assert caplog.text.count("is damaged") == 1


def test_a_machine_that_leaves_the_home_keeps_all_and_tells_nothing_more(replicas: list[Replica]) -> None:
    one, other, _ = replicas
    one.store.keep([(a_search(1, id="a", at=Clock.at), b"jpeg")], most=MOST, days=DAYS)
    one.settle()
    other.pull()
    SharedSearches(other.store).end(DAYS)
    assert other.store.picture("a") == b"jpeg"
    assert other.store.answer("a", "absent", by="eve").number == 1
    assert not other.folder.exists()


def test_without_a_home_nothing_is_written_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    store = SearchStore(tmp_path / "shop")
    store.keep([(a_search(id="a"), b"jpeg")], most=MOST, days=DAYS)
    assert store.answer("a", "absent", by="eve").number == 1
    settings = Settings(data_dir=tmp_path / "data")
    with SearchSharing(settings) as sharing_:
        assert sharing_._thread is None
    assert {one.name for one in store.path.parent.iterdir()} == {"searches.sqlite"}
    with store.opened() as file:
        assert file.execute("pragma user_version").fetchone() == (1,)


def joined(tmp_path: Path, name: str, home: Path) -> tuple[Mirror, SearchStore]:
    """A replica of a home that has one gallery, or nothing of it but its pointer."""
    mirror = join(tmp_path / name, str(home))
    folder = mirror.data_dir / "galleries" / "shop"
    if not folder.exists():
        mirror.put(folder / "active.json", b"{}")
    return mirror, SearchStore(folder)


def test_mirrors_of_a_home_share_searches_and_erase_what_is_deleted(tmp_path: Path) -> None:
    home, picture = tmp_path / "shared", random.Random(1).randbytes(9000)
    first, one = joined(tmp_path, "one", home)
    second, other = joined(tmp_path, "two", home)
    one.keep([(a_search(1, id="a"), picture)], most=MOST, days=DAYS)
    ways = [(first, SharedSearches(one, first)), (second, SharedSearches(other, second))]

    def settle() -> None:
        for mirror, shared in ways * 3:
            mirror.pull()
            shared.settle(most=MOST, days=DAYS)

    settle()
    given = other.answer("a", "wrong", by="eve", item_id="mug", different={"mug": None})
    settle()
    assert one.answers() == [given]
    assert one.picture("a") == other.picture("a") == picture
    assert files_with(home, picture)
    one.delete(["a"])
    settle()
    assert files_with(tmp_path, picture) == []
    assert other.n_kept == 0
    assert first.pull() == second.pull()

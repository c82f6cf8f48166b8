"""Driver of a run over replicas: changes through all of them while one thing after the other breaks.

Each client sends its changes one after the other, each through a replica that is drawn. What was acknowledged
must be there when everything runs again; what was refused must not; what got no answer, or one that says that
the home was away, may be there or not, wholly, and on all replicas alike.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from sqlalchemy import select

from tests.postgres_server import PostgresServer
from tests.replicas.hosts import Network
from tests.replicas.programs import Replica
from tests.service.redis_server import RedisServer
from tests.waiting import wait_until
from vicinal.indexer.state.database import postgres
from vicinal.indexer.state.schema import files
from vicinal.indexer.storage.home.stores import open_store

__all__ = [
    "DIM",
    "FAULTS",
    "GALLERY",
    "SPACE",
    "ReplicaDriver",
    "ReplicaReport",
    "add",
    "check_home",
    "items_of",
    "make_gallery",
    "nearest",
    "search",
    "vector",
]

GALLERY, SPACE, DIM = "shop", "drawn@1", 16
_URL = "/v1/galleries/{}"
_N_CLIENTS, _N_IDS = 3, 6
_LONGEST_FUSE = 90
# Of a replica that is stopped, and then believes that it still writes.
_STOPPED_SECONDS = 4.0
FAULTS = (
    "nothing",
    "kill",
    "fuse",
    "cut from all",
    "cut from the home",
    "cut from Redis",
    "stop",
    "kill Redis",
    "freeze Redis",
    "cut from the database",
    "kill the database",
    "freeze the database",
)


def vector(item_id: str) -> list[float]:
    """Embedding of an item, unlike all others."""
    drawn: list[float] = np.random.default_rng(list(item_id.encode())).normal(size=DIM).tolist()
    return drawn


def make_gallery(replica: Replica) -> None:
    """Make the gallery through a replica."""
    answer = replica.http.put(_URL.format(GALLERY), params={"space": SPACE, "dim": DIM})
    assert answer.status_code == 201, answer.text


def add(replica: Replica, item_id: str, label: str, gallery: str = GALLERY) -> httpx.Response:
    """Add an item, or replace it."""
    # A little unlike the one before, which would count as the same.
    embedding = np.add(vector(item_id), 0.01 * np.array(vector(label)))
    item = {"id": item_id, "embedding": embedding.tolist(), "label": label}
    body = {"items": [item], "space": SPACE, "on_conflict": "replace"}
    return replica.http.post(f"{_URL.format(gallery)}/items", json=body)


def items_of(replica: Replica, gallery: str = GALLERY) -> list[tuple[str, str | None]]:
    """Ids and labels of all items as a replica lists them."""
    found: list[tuple[str, str | None]] = []
    after: str | None = ""
    while after is not None:
        asked = {"size": 1000, **({"after": after} if after else {})}
        page = replica.http.get(f"{_URL.format(gallery)}/items", params=asked)
        body = page.raise_for_status().json()
        found += [(one["id"], one["label"]) for one in body["items"]]
        after = body["next"]
    return found


def search(replica: Replica, item_id: str, gallery: str = GALLERY) -> httpx.Response:
    """Search for an item's embedding."""
    body = {"embedding": vector(item_id), "limit": 1}
    return replica.http.post(f"{_URL.format(gallery)}/search", json=body)


def nearest(replica: Replica, item_id: str, gallery: str = GALLERY) -> str | None:
    """Id of the item that a search for an item's embedding finds first."""
    found = search(replica, item_id, gallery).raise_for_status().json()
    return next((one["id"] for one in [*found["matches"], *found["candidates"]]), None)


def check_home(home: str, database: str) -> int:
    """Refuse a home whose database lists what is not there; number of the files that it lists."""
    connections = postgres(database)
    with connections.reading() as connection:
        listed = list(connection.scalars(select(files.c.object)))
    connections.close()
    there = {one.name for one in open_store(home).list("objects")}
    assert {f"objects/{one}" for one in listed} <= there
    return len(listed)


@dataclass
class ReplicaReport:
    """What a run did and found."""

    n_rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    n_unknown_done: int = 0
    n_compactions: int = 0
    n_searches: int = 0
    settle_seconds: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Counts."""
        settled = np.array(self.settle_seconds or [0.0])
        return {
            "rounds": self.n_rounds,
            "faults": dict(sorted(self.faults.items())),
            "acknowledged": dict(sorted(self.acknowledged.items())),
            "refused": dict(sorted(self.refused.items())),
            "without_an_answer": dict(sorted(self.unknown.items())),
            "of_these_done": self.n_unknown_done,
            "compactions": self.n_compactions,
            "searches": self.n_searches,
            "settle_seconds": {
                "median": round(float(np.median(settled)), 2),
                "most": round(float(settled.max()), 2),
            },
        }


class ReplicaDriver:
    """A run over replicas that serve, one of which has made the gallery.

    Args:
        seed: Decides all that is drawn; where a fault hits is up to the machine.
        n_steps: Changes of each client in a round.
    """

    def __init__(
        self,
        replicas: list[Replica],
        network: Network,
        redis_server: RedisServer,
        database: PostgresServer,
        *,
        seed: int,
        n_steps: int = 5,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.replicas, self.network, self.say = replicas, network, say
        self.redis_server, self.database = redis_server, database
        self.rng, self.n_steps = np.random.default_rng(seed), n_steps
        self.report = ReplicaReport()
        # Labels that each item may have now; None for an item that may be absent.
        there = dict(items_of(replicas[0]))
        ids = [f"{client}/{number}" for client in range(_N_CLIENTS) for number in range(_N_IDS)]
        self.possible: dict[str, set[str | None]] = {one: {there.get(one)} for one in ids}
        # Labels that it has where a change was made that got no answer.
        self._unknown: dict[str, set[str | None]] = {}
        self._lock = threading.Lock()

    def run(self, n_rounds: int, faults: tuple[str, ...] = ()) -> ReplicaReport:
        """Let so many faults happen, one a round; of all unless some are given.

        Raises:
            AssertionError: The replicas do not hold what they must.
        """
        for _ in range(n_rounds):
            fault = str(self.rng.choice(faults or FAULTS))
            if self.replicas[0].host.namespace is None and fault.startswith("cut"):
                fault = "kill"
            self._round(fault)
        return self.report

    def _round(self, fault: str) -> None:
        self.report.n_rounds += 1
        self.report.faults[fault] += 1
        seeds = self.rng.integers(2**32, size=_N_CLIENTS)
        failures: list[BaseException] = []

        def client(number: int) -> None:
            try:
                self._change(number, np.random.default_rng(seeds[number]))
            except BaseException as error:
                failures.append(error)

        clients = [threading.Thread(target=client, args=(number,)) for number in range(_N_CLIENTS)]
        for one in clients:
            one.start()
        victim = self.replicas[int(self.rng.integers(len(self.replicas)))]
        time.sleep(float(self.rng.random()) * 0.4)
        self._break(fault, victim)
        for one in clients:
            one.join()
        self._mend(fault, victim)
        assert not failures, failures
        self._settle(fault)

    def _break(self, fault: str, victim: Replica) -> None:
        if fault == "kill":
            victim.kill()
        elif fault == "fuse":
            victim.arm(int(self.rng.integers(1, _LONGEST_FUSE)))
        elif fault.startswith("cut"):
            addresses = {
                "all": (),
                "the home": (self.network.store,),
                "Redis": (self.network.redis,),
                "the database": (self.network.database,),
            }
            victim.host.cut(*addresses[fault.removeprefix("cut from ")])
        elif fault == "stop":
            victim.signal(signal.SIGSTOP)
            time.sleep(_STOPPED_SECONDS)
            victim.signal(signal.SIGCONT)
        elif fault in ("kill Redis", "freeze Redis"):
            getattr(self.redis_server, fault.partition(" ")[0])()
        elif fault in ("kill the database", "freeze the database"):
            getattr(self.database, fault.partition(" ")[0])()

    def _mend(self, fault: str, victim: Replica) -> None:
        if fault == "fuse" and not victim.has_ended():
            victim.kill()
        if fault in ("fuse", "kill"):
            victim.serve()
        if fault.startswith("cut"):
            victim.host.heal()
        if fault == "kill Redis":
            self.redis_server.start()
        if fault == "freeze Redis":
            self.redis_server.thaw()
        if fault == "kill the database":
            self.database.start()
        if fault == "freeze the database":
            self.database.thaw()

    def _change(self, client: int, rng: np.random.Generator) -> None:
        """Send changes of one client's items, one after the other."""
        for _ in range(self.n_steps):
            item_id = f"{client}/{rng.integers(_N_IDS)}"
            kind = str(rng.choice(["add", "add", "delete", "patch"]))
            replica = self.replicas[int(rng.integers(len(self.replicas)))]
            label = f"{kind} {rng.integers(10**6)}"
            before = self.possible[item_id]
            if kind == "add":
                after: set[str | None] = {label}
            else:
                # One that is absent stays so.
                after = {None if one is None or kind == "delete" else label for one in before}
            try:
                answer = self._send(replica, kind, item_id, label)
            except httpx.TransportError as error:
                self._note(item_id, before | after, self.report.unknown, f"{kind}: {type(error).__name__}")
                self._unknown[item_id] = after - before
                continue
            problem = "" if answer.is_success else answer.json()["type"].rpartition(":")[2]
            if answer.is_success:
                if kind != "add":
                    assert before != {None}, f"{kind} of '{item_id}', which was not there: {answer.text}"
                self._note(item_id, after - {None} or {None}, self.report.acknowledged, kind)
            elif answer.status_code == 404:
                assert None in before, f"'{item_id}' is gone, which was {before}"
                self._note(item_id, {None}, self.report.acknowledged, f"{kind}: not there")
            elif problem == "gallery-busy":
                self._note(item_id, before, self.report.refused, problem)
            else:
                assert answer.status_code == 503, answer.text
                assert "Retry-After" in answer.headers, answer.text
                self._note(item_id, before | after, self.report.unknown, f"{kind}: {problem}")
                self._unknown[item_id] = after - before
            if kind == "delete" and rng.random() < 0.1:
                self._compact(replica)

    def _send(self, replica: Replica, kind: str, item_id: str, label: str) -> httpx.Response:
        if kind == "add":
            return add(replica, item_id, label)
        if kind == "delete":
            return replica.http.delete(f"{_URL.format(GALLERY)}/item", params={"id": item_id})
        return replica.http.patch(
            f"{_URL.format(GALLERY)}/item", params={"id": item_id}, json={"label": label}
        )

    def _compact(self, replica: Replica) -> None:
        try:
            if replica.http.post(f"{_URL.format(GALLERY)}/compaction").is_success:
                with self._lock:
                    self.report.n_compactions += 1
        except httpx.TransportError:
            return

    def _note(self, item_id: str, possible: set[str | None], counts: Counter[str], what: str) -> None:
        with self._lock:
            counts[what] += 1
        self.possible[item_id] = possible
        self._unknown.pop(item_id, None)

    def _settle(self, fault: str) -> None:
        """Wait until all replicas hold the same, which is what they must hold, and take a change each."""
        begun = time.monotonic()
        for number, replica in enumerate(self.replicas):
            item_id = f"{number % _N_CLIENTS}/{self.rng.integers(_N_IDS)}"
            label = f"after {fault} {self.report.n_rounds} {number}"

            def takes(replica: Replica = replica, item_id: str = item_id, label: str = label) -> bool:
                try:
                    answer = add(replica, item_id, label)
                except httpx.TransportError:
                    return False
                assert answer.is_success or answer.status_code == 503, answer.text
                return answer.is_success

            wait_until(takes, every=0.1)
            self.possible[item_id] = {label}
        held: list[list[tuple[str, str | None]]] = []

        def agree() -> bool:
            held[:] = [items_of(replica) for replica in self.replicas]
            return all(sorted(one, key=str) == sorted(held[0], key=str) for one in held) and self._explains(
                held[0]
            )

        try:
            wait_until(agree, every=0.05)
        except TimeoutError:
            raise AssertionError(self._difference(held, fault)) from None
        self.report.settle_seconds.append(time.monotonic() - begun)
        there = dict(held[0])
        assert len(there) == len(held[0]), f"an item is there twice: {held[0]}"
        self.report.n_unknown_done += sum(there.get(one) in after for one, after in self._unknown.items())
        self._unknown = {}
        self.possible = {item_id: {there.get(item_id)} for item_id in self.possible}
        for replica in self.replicas:
            item_id = str(self.rng.choice(list(self.possible)))
            self.report.n_searches += 1
            assert (nearest(replica, item_id) == item_id) == (item_id in there), (item_id, there)
        self.say(f"{fault}: {len(there)} items")

    def _explains(self, held: list[tuple[str, str | None]]) -> bool:
        there = dict(held)
        is_known = set(there) <= set(self.possible)
        return is_known and all(there.get(one) in possible for one, possible in self.possible.items())

    def _difference(self, held: list[list[tuple[str, str | None]]], fault: str) -> str:
        wrong = {
            item_id: (sorted(map(str, possible)), [dict(one).get(item_id) for one in held])
            for item_id, possible in self.possible.items()
            if len({dict(one).get(item_id) for one in held} | {None}) > 2
            or any(dict(one).get(item_id) not in possible for one in held)
        }
        return f"after '{fault}' the replicas hold, beside what they may: {json.dumps(wrong, indent=1)}"

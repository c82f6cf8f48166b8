"""Replicas beside an engine that dies, or that one of them does not reach: its gallery says so, no other."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.milvus_server import MilvusServer
from tests.replicas.conftest import MakeReplicas
from tests.replicas.driver import GALLERY, SPACE, add, items_of, nearest, search
from tests.replicas.engines import EngineBeside
from tests.replicas.hosts import Network
from tests.replicas.programs import Replica
from tests.replicas.test_replicas import serve, write_versions
from tests.waiting import wait_for_job, wait_until
from vicinal.indexer.engines import ENGINE, GalleryTables

pytestmark = pytest.mark.slow

# Of the same items: one whose candidates the engine finds, and one on Faiss.
BESIDE, URL = "beside", "/v1/galleries/beside"
REINDEX = f"/v1/admin/galleries/{BESIDE}/reindex"


@pytest.fixture
def engine(milvus_server: MilvusServer, network: Network) -> Iterator[EngineBeside]:
    made = EngineBeside(milvus_server, network.engines)
    yield made
    made.close()


@pytest.fixture
def replicas(make_replicas: MakeReplicas, engine: EngineBeside, tmp_path: Path) -> list[Replica]:
    """Two that serve both galleries, and work."""
    given = {"VICINAL_RUN_JOBS": "true", "VICINAL_REDIS_TIMEOUT_SECONDS": "60", **engine.variables}
    made = make_replicas(2, VICINAL_SOURCES_DIR=str(tmp_path), **given)
    # The second loses its engine in no test but with all others: what it is late with is no failure.
    made[1].variables["TEST_IS_PATIENT"] = "1"
    source = str(write_versions(tmp_path)[0])
    for gallery, index in ((GALLERY, "Flat"), (BESIDE, ENGINE)):
        made[0].run("index", source, "-g", gallery, "--space", SPACE, "--index", index)
    serve(made)
    for one in made:
        wait_until(lambda one=one: one.http.get(URL).is_success)
    return made


@contextmanager
def searching(replicas: list[Replica]) -> Iterator[dict[tuple[int, str], Counter[str]]]:
    """Search both galleries through all replicas; what was answered, by replica and gallery."""
    over = threading.Event()
    found = {
        (number, gallery): Counter[str]() for number in range(len(replicas)) for gallery in (GALLERY, BESIDE)
    }

    def run(number: int, gallery: str) -> None:
        n = 0
        while not over.wait(0.05):
            n += 1
            found[number, gallery][outcome_of(search(replicas[number], f"query {n}", gallery))] += 1

    with ThreadPoolExecutor(len(found)) as pool:
        running = [pool.submit(run, *one) for one in found]
        try:
            yield found
        finally:
            over.set()
        for one in running:
            one.result()


def outcome_of(answer: httpx.Response) -> str:
    if answer.is_success:
        return "answered"
    assert int(answer.headers["Retry-After"]) > 0, answer.text
    return f"{answer.status_code} {answer.json()['type'].rpartition(':')[2]}"


def versions_of(replica: Replica) -> list[tuple[int, bool]]:
    return [
        (one["version"], one["is_active"]) for one in replica.http.get(f"{URL}/versions").json()["versions"]
    ]


def named_tables(replica: Replica) -> set[str]:
    """Tables that the versions of a replica name."""
    folder = replica.data_dir / "galleries" / BESIDE
    return GalleryTables(folder).of_version(folder / "versions")


def require_no_others(engine: EngineBeside, replicas: list[Replica]) -> None:
    def are_alike() -> bool:
        there = engine.tables_of(replicas[0].data_dir, BESIDE)
        return bool(there) and all(named_tables(one) == there for one in replicas)

    wait_until(are_alike)


def change(replicas: list[Replica], galleries: tuple[str, ...] = (GALLERY, BESIDE)) -> None:
    """Add an item through each, and remove one."""
    for gallery in galleries:
        for number, one in enumerate(replicas):
            assert add(one, f"through {number}", "new", gallery).is_success
        assert replicas[-1].http.delete(f"/v1/galleries/{gallery}/item", params={"id": "a/0"}).is_success


def require_changed(replica: Replica, gallery: str) -> None:
    wait_until(
        lambda: [nearest(replica, f"through {n}", gallery) for n in range(2)] == ["through 0", "through 1"]
    )
    wait_until(lambda: nearest(replica, "a/0", gallery) != "a/0")
    ids = [one for one, _ in items_of(replica, gallery)]
    assert sorted(ids) == sorted([f"a/{i}" for i in range(1, 60)] + ["through 0", "through 1"])


def says_away(replica: Replica) -> bool:
    """Whether a replica says in all places that its engine is away."""
    ready = replica.http.get("/readyz")
    up = re.findall(r'^vicinal_engine_up{engine="milvus"} (\S+)$', replica.http.get("/metrics").text, re.M)
    if ready.status_code != 200 or [float(one) for one in up] != [0.0]:
        return False
    problems = {one["name"]: one["problem"] is None for one in ready.json()["galleries"]}
    return problems == {BESIDE: False, GALLERY: True}


def test_an_engine_that_is_killed_in_the_middle_of_a_build_takes_nothing_with_it(
    engine: EngineBeside, replicas: list[Replica]
) -> None:
    versions = [versions_of(one) for one in replicas]
    with searching(replicas) as found:
        with engine.building(replicas[0].data_dir, BESIDE):
            accepted = replicas[0].http.post(REINDEX, json={"source": "b.parquet", "index": ENGINE})
        for one in replicas:
            wait_until(lambda one=one: says_away(one))
        change(replicas)
        for one in replicas:
            require_changed(one, GALLERY)
        job = wait_for_job(replicas[0].http, accepted)
        refused = replicas[1].http.post(REINDEX, json={"index": ENGINE})
        engine.server.start()
        for one in replicas:
            wait_until(lambda one=one: search(one, "any", BESIDE).is_success, every=0.1)
            require_changed(one, BESIDE)
            wait_until(lambda one=one: one.http.get("/readyz").json()["degraded"] == [])
    assert job["state"] == "failed", job
    assert "does not answer" in str(job)
    assert (refused.status_code, outcome_of(refused)) == (503, "503 engine-away")
    for (_, gallery), outcomes in found.items():
        away = {"503 engine-away"} if gallery == BESIDE else set[str]()
        assert set(outcomes) == {"answered", *away}
    assert [versions_of(one) for one in replicas] == versions
    require_no_others(engine, replicas)
    accepted = replicas[1].http.post(REINDEX, json={"source": "b.parquet", "index": ENGINE})
    job = wait_for_job(replicas[1].http, accepted)
    assert job["state"] == "succeeded", job
    for one in replicas:
        wait_until(lambda one=one: len(items_of(one, BESIDE)) == 61 + 60)
    require_no_others(engine, replicas)


def test_a_replica_that_does_not_reach_the_engine_says_so_while_the_other_goes_on(
    engine: EngineBeside, replicas: list[Replica], network: Network
) -> None:
    cut, other = replicas
    with searching(replicas) as found:
        wait_until(lambda: all(one["answered"] for one in found.values()))
        cut.host.cut(network.engines)
        wait_until(lambda: says_away(cut))
        change(replicas)
        require_changed(other, BESIDE)
        require_changed(cut, GALLERY)
        # While others wait for the engine, too many may.
        wait_until(lambda: outcome_of(search(cut, "any", BESIDE)) == "503 engine-away")
        assert other.http.get("/readyz").status_code == 200
        cut.host.heal()
        wait_until(lambda: search(cut, "any", BESIDE).is_success, every=0.1)
        require_changed(cut, BESIDE)
    assert {*found[0, BESIDE]} - {"429 too-many-requests"} == {"answered", "503 engine-away"}
    assert [set(found[key]) for key in ((0, GALLERY), (1, GALLERY), (1, BESIDE))] == [{"answered"}] * 3
    require_no_others(engine, replicas)

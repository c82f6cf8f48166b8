"""Replicas as processes on hosts of their own: what one takes all find, whatever breaks meanwhile."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.postgres_server import PostgresServer
from tests.replicas.conftest import MakeReplicas
from tests.replicas.driver import (
    DIM,
    FAULTS,
    GALLERY,
    SPACE,
    ReplicaDriver,
    add,
    check_home,
    items_of,
    make_gallery,
    nearest,
)
from tests.replicas.hosts import Network
from tests.replicas.programs import Replica, Store
from tests.service.redis_server import RedisServer
from tests.waiting import wait_for_job, wait_until

pytestmark = pytest.mark.slow

URL = f"/v1/galleries/{GALLERY}"


def serve(replicas: list[Replica]) -> None:
    for one in replicas:
        one.serve(waits=False)
    for one in replicas:
        wait_until(one.is_alive)


def started(replicas: list[Replica]) -> list[Replica]:
    """Serve, with an empty gallery that all of them know."""
    serve(replicas)
    make_gallery(replicas[0])
    for one in replicas:
        wait_until(lambda one=one: one.http.get(URL).is_success)
    return replicas


def finds(replica: Replica, item_id: str) -> Callable[[], bool]:
    return lambda: nearest(replica, item_id) == item_id


@pytest.mark.parametrize("kind", ["bucket", "folder"])
def test_what_one_takes_all_find(make_replicas: MakeReplicas, tmp_path: Path, kind: str) -> None:
    replicas = started(make_replicas(3, None if kind == "bucket" else str(tmp_path / "home")))
    for number, one in enumerate(replicas):
        item_id = f"of {number}"
        assert add(one, item_id, "new").is_success
        # The one that took it finds it at once.
        assert nearest(one, item_id) == item_id
        for other in replicas:
            wait_until(finds(other, item_id))
    assert replicas[1].http.patch(f"{URL}/item", params={"id": "of 0"}, json={"label": "patched"}).is_success
    wait_until(lambda: ("of 0", "patched") in items_of(replicas[2]))
    assert replicas[2].http.delete(f"{URL}/item", params={"id": "of 1"}).is_success
    for one in replicas:
        wait_until(lambda one=one: nearest(one, "of 1") != "of 1")
    assert sorted(items_of(replicas[0])) == [("of 0", "patched"), ("of 2", "new")]


def write_versions(folder: Path) -> list[Path]:
    """Two sources of the same embeddings under other ids: what finds one of both finds the other."""
    rng, found = np.random.default_rng(0), []
    vectors = rng.normal(size=(60, DIM))
    for name in "ab":
        ids, labels = [f"{name}/{i}" for i in range(60)], [f"label {i // 6}" for i in range(60)]
        parquet.write_table(
            pa.table({"id": ids, "label": labels, "embedding": list(vectors)}), folder / f"{name}.parquet"
        )
        found.append(folder / f"{name}.parquet")
    return found


def test_a_swap_under_load_drops_nothing_and_mixes_nothing(
    make_replicas: MakeReplicas, tmp_path: Path
) -> None:
    replicas = make_replicas(2)
    for source in write_versions(tmp_path):
        replicas[0].run("index", str(source), "-g", GALLERY, "--space", SPACE)
    serve(replicas)
    versions = [one["version"] for one in replicas[0].http.get(f"{URL}/versions").json()["versions"]]
    # The newest is searched, and stands first; it holds what the one before does.
    held = dict(zip(versions, ({"a", "b"}, {"a"}), strict=True))
    over, answers = threading.Event(), list[Any]()

    def search(replica: Replica, seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not over.is_set():
            body = {"embedding": rng.normal(size=DIM).tolist(), "limit": 20}
            answers.append(replica.http.post(f"{URL}/search", json=body))

    threads = [threading.Thread(target=search, args=(one, seed)) for one in replicas for seed in range(2)]
    for one in threads:
        one.start()
    try:
        for number in range(4):
            through, version = replicas[number % 2], versions[(number + 1) % 2]
            assert through.http.post(f"{URL}/versions/{version}/activate").is_success
            for one in replicas:
                wait_until(lambda one=one, v=version: one.http.get(URL).json()["version"] == v)
    finally:
        over.set()
        for one in threads:
            one.join()
    assert {answer.status_code for answer in answers} == {200}
    seen = {answer.json()["version"] for answer in answers}
    for answer in answers:
        body = answer.json()
        assert {one["id"][0] for one in [*body["matches"], *body["candidates"]]} == held[body["version"]]
    assert seen == set(versions)


@pytest.mark.parametrize("first", range(3))
def test_nothing_is_lost_whatever_breaks(
    make_replicas: MakeReplicas,
    network: Network,
    store: Store,
    redis_server: RedisServer,
    database: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    first: int,
) -> None:
    for name, value in store.variables.items():
        monkeypatch.setenv(name, value)
    home = store.new_home()
    replicas = started(make_replicas(2, home))
    driver = ReplicaDriver(replicas, network, redis_server, database, seed=first, n_steps=3)
    for fault in FAULTS[first::3]:
        driver.run(1, (fault,))
    assert driver.report.acknowledged["add"] > 0
    assert check_home(home, replicas[0].variables["VICINAL_DATABASE"]) > 0


def test_one_that_was_stopped_in_the_middle_of_a_commit_does_not_write_when_it_wakes(
    make_replicas: MakeReplicas,
) -> None:
    first, second = started(make_replicas(2))
    assert add(first, "before", "new").is_success
    answers: list[httpx.Response] = []
    first.arm(12, signal.SIGSTOP)
    sent = threading.Thread(target=lambda: answers.append(add(first, "asleep", "new")))
    sent.start()
    wait_until(lambda: is_stopped(first))
    # Its lease is lost when it has shown no life for some seconds.
    wait_until(lambda: add(second, "meanwhile", "new").is_success)
    first.signal(signal.SIGCONT)
    sent.join()
    wait_until(lambda: dict(items_of(first)) == dict(items_of(second)))
    there = dict(items_of(first))
    assert {"before", "meanwhile"} <= set(there)
    assert ("asleep" in there) == answers[0].is_success
    assert answers[0].status_code in (200, 503)


def is_stopped(replica: Replica) -> bool:
    process = (replica.folder / "serve.pid").read_text()
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_job_works_wherever_it_is_taken(make_replicas: MakeReplicas, tmp_path: Path) -> None:
    patient = {"VICINAL_REDIS_TIMEOUT_SECONDS": "60"}
    serving, working = make_replicas(2, VICINAL_SOURCES_DIR=str(tmp_path), **patient)
    source = write_versions(tmp_path)[0]
    serving.run("index", str(source), "-g", GALLERY, "--space", SPACE)
    serve([serving])
    working.start("worker")
    queries = {
        "embeddings": (parquet.read_table(source)["embedding"].to_pylist()[0:60:2]),
        "labels": [f"label {i // 6}" for i in range(0, 60, 2)],
        "target": "fpir=10%",
    }
    accepted = serving.http.post(f"/v1/admin/galleries/{GALLERY}/calibrations", json=queries)
    job = wait_for_job(serving.http, accepted)
    assert job["state"] == "succeeded", job
    wait_until(lambda: serving.http.get(URL).json()["calibration"] is not None)
    # The queries go after the calibration came: a replica can have followed the home to just between.
    calibrations = serving.data_dir / "galleries" / GALLERY / "calibrations"
    wait_until(lambda: not list(calibrations.glob("uploads/*/*")))
    accepted = serving.http.post(f"/v1/admin/galleries/{GALLERY}/reindex", json={"source": "b.parquet"})
    job = wait_for_job(serving.http, accepted)
    assert job["state"] == "succeeded", job
    wait_until(lambda: {item_id[0] for item_id, _ in items_of(serving)} == {"a", "b"})

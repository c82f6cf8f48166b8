"""Replicas as processes on hosts of their own: what one takes all find, whatever breaks meanwhile."""

from __future__ import annotations

from pathlib import Path

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
    check_home,
    items_of,
    make_gallery,
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


def write_sources(folder: Path) -> list[list[float]]:
    """Two sources of the same embeddings under other ids."""
    vectors = np.random.default_rng(0).normal(size=(60, DIM)).tolist()
    for name in "ab":
        ids, labels = [f"{name}/{i}" for i in range(60)], [f"label {i // 6}" for i in range(60)]
        columns = pa.table({"id": ids, "label": labels, "embedding": vectors})
        parquet.write_table(columns, folder / f"{name}.parquet")
    return vectors


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


def test_a_job_works_wherever_it_is_taken(make_replicas: MakeReplicas, tmp_path: Path) -> None:
    patient = {"VICINAL_REDIS_TIMEOUT_SECONDS": "60"}
    serving, working = make_replicas(2, VICINAL_SOURCES_DIR=str(tmp_path), **patient)
    vectors = write_sources(tmp_path)
    serving.run("index", str(tmp_path / "a.parquet"), "-g", GALLERY, "--space", SPACE)
    serve([serving])
    working.start("worker")
    queries = {
        "embeddings": vectors[::2],
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

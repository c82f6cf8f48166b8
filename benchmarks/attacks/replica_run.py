"""Replicas that are killed, stopped and cut off while they are changed; nothing may be lost, twice or mixed.

    python -m benchmarks.attacks.replica_run [--runs 200] [--lanes 3]

Needs root, `redis-server` and moto. Each run is a seed and two rounds of
`tests.replicas.driver`: changes through all replicas, one thing that breaks, and a comparison of all of them
when everything runs again. Every ten runs begin with a new home, in a bucket or a folder in turn, of two or
three replicas, and with adding items one by one and asking the others for them until they find each. The exit
status is 1 when a run failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.record import percentiles, save_result
from tests.conftest import write_tiny_bundle
from tests.postgres_server import PostgresServer
from tests.replicas.driver import (
    GALLERY,
    ReplicaDriver,
    add,
    check_home,
    make_gallery,
    nearest,
)
from tests.replicas.hosts import Network, networked
from tests.replicas.programs import Replica, Store, serving_store
from tests.service.redis_server import RedisServer
from tests.waiting import wait_until

_RUNS_OF_HOME, _ROUNDS, _N_STEPS, _N_ADDED = 10, 2, 3, 20
_URL = f"/v1/galleries/{GALLERY}"


@contextmanager
def replicas_of(
    home: str,
    database: str,
    n: int,
    network: Network,
    store: Store,
    redis_server: RedisServer,
    folder: Path,
) -> Iterator[list[Replica]]:
    """So many replicas that serve a gallery of a new home, an empty one."""
    bundle = write_tiny_bundle(folder / "bundle")
    given = {
        "VICINAL_HOME": home,
        "VICINAL_DATABASE": database,
        "VICINAL_REDIS_URL": redis_server.url,
        "VICINAL_REDIS_RETRY_SECONDS": "0.2",
        "VICINAL_BUNDLE": str(bundle.path),
        **store.variables,
    }
    with ExitStack() as closed_last:
        replicas = [Replica(host, folder / f"replica-{host.number}", given) for host in network.hosts[:n]]
        for one in replicas:
            closed_last.callback(one.close)
            closed_last.callback(one.host.heal)
        for one in replicas:
            one.serve()
        make_gallery(replicas[0])
        for one in replicas:
            wait_until(lambda one=one: one.http.get(_URL).is_success)  # type: ignore[misc]
        yield replicas


def seconds_until_found(replicas: list[Replica]) -> list[float]:
    """Seconds from the answer of the replica that took an item until each other one finds it."""
    found = []
    for number in range(_N_ADDED):
        taker, item_id = replicas[number % len(replicas)], f"timed {number}"
        assert add(taker, item_id, "timed").is_success
        begun = time.perf_counter()
        assert nearest(taker, item_id) == item_id
        for other in replicas:
            if other is not taker:
                wait_until(lambda other=other, i=item_id: nearest(other, i) == i, every=0.005)  # type: ignore[misc]
                found.append(time.perf_counter() - begun)
        assert taker.http.delete(f"{_URL}/item", params={"id": item_id}).is_success
    return found


def lane_of(seeds: list[int], folder: Path, seconds_left: float) -> dict[str, Any]:
    """What the runs of some seeds find, one after the other, as many as there is time for."""
    over = time.monotonic() + seconds_left
    reports, failures, seconds = list[dict[str, Any]](), list[str](), list[float]()
    n_files = 0
    with networked(3) as network, serving_store(network.store) as store, ExitStack() as closed_last:
        postgres = PostgresServer(address=network.database)
        closed_last.callback(postgres.remove)
        os.environ.update(store.variables)
        for first in range(0, len(seeds), _RUNS_OF_HOME):
            if time.monotonic() > over:
                break
            group, number = seeds[first : first + _RUNS_OF_HOME], first // _RUNS_OF_HOME
            place = folder / f"home-of-{group[0]}"
            place.mkdir()
            home = store.new_home() if number % 2 == 0 else str(place / "home")
            redis_server = RedisServer(place / "redis", network.redis)
            redis_server.start()
            try:
                n_replicas, database = 2 + (number + group[0]) % 2, postgres.new_database()
                with replicas_of(home, database, n_replicas, network, store, redis_server, place) as replicas:
                    seconds += seconds_until_found(replicas)
                    for seed in group:
                        if time.monotonic() > over:
                            break
                        driver = ReplicaDriver(
                            replicas, network, redis_server, postgres, seed=seed, n_steps=_N_STEPS
                        )
                        reports.append(driver.run(_ROUNDS).as_json())
                        print(f"run {seed}: {reports[-1]['faults']}", flush=True)
                    n_files += check_home(home, database)
            except Exception as error:
                failures.append(f"home of run {group[0]}, after {len(reports)} runs: {error!r}"[:2000])
                print(failures[-1], flush=True)
            finally:
                redis_server.stop()
    return {"reports": reports, "failures": failures, "seconds_until_found": seconds, "files": n_files}


def _added(counts: list[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(sorted(total.items()))


def main() -> int:
    """Run all lanes side by side, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--lanes", type=int, default=3, help="sets of replicas at a time")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no run after so long")
    parser.add_argument("--lane", type=int, help="run one lane alone, and print what it finds")
    parser.add_argument("--folder", type=Path, help="where logs stay")
    parser.add_argument("--no-result", action="store_true", help="write no result")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="replicas-"))
    if given.lane is not None:
        seeds = list(range(given.first + given.lane, given.first + given.runs, given.lanes))
        found = lane_of(seeds, folder, 60 * given.minutes)
        (folder / "found.json").write_text(json.dumps(found))
        return 0
    options = ["--runs", str(given.runs), "--first", str(given.first), "--lanes", str(given.lanes)]
    options += ["--minutes", str(given.minutes)]
    lanes = [folder / f"lane-{number}" for number in range(given.lanes)]
    begun, processes = time.monotonic(), []
    for number, place in enumerate(lanes):
        place.mkdir(parents=True)
        words = ["-m", "benchmarks.attacks.replica_run", "--lane", str(number), "--folder", str(place)]
        processes.append(subprocess.Popen([sys.executable, *words, *options]))
    for process in processes:
        process.wait()
    found = [json.loads((place / "found.json").read_text()) for place in lanes]
    reports = [one for lane in found for one in lane["reports"]]
    seconds = [one for lane in found for one in lane["seconds_until_found"]]
    result = {
        "runs": len(reports),
        "seeds_drawn_from": [given.first, given.first + given.runs - 1],
        "failures": [one for lane in found for one in lane["failures"]],
        "lanes": given.lanes,
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "files_checked": sum(lane["files"] for lane in found),
        **{
            name: _added([one[name] for one in reports])
            for name in ("faults", "acknowledged", "refused", "without_an_answer")
        },
        **{
            name: sum(one[name] for one in reports)
            for name in ("rounds", "of_these_done", "compactions", "searches")
        },
        "settle_seconds_most": max((one["settle_seconds"]["most"] for one in reports), default=0.0),
        "milliseconds_until_found_by_others": {
            **percentiles([1e3 * one for one in seconds] or [0.0]),
            "most": round(1e3 * float(np.max(seconds or [0.0])), 3),
            "n": len(seconds),
        },
    }
    print(json.dumps(result, indent=1))
    if not given.no_result:
        save_result("replica_run", result)
    return int(bool(result["failures"]))


if __name__ == "__main__":
    sys.exit(main())

"""Searches under load, over HTTP: rates, latencies, what is turned away; the client is a process of its own.

    python -m benchmarks.load.searches --folder build/load

Galleries: `photos`, 60 rendered products indexed with the bundle that ships, and `ready`, 100,000 made-up
embeddings of 256 numbers. For each number of processes: as many searches as clients in a closed loop get
answered; a steady half of the best of these; and three times the best, for minutes. A second client asks
`/livez` twenty times a second beside all of it. Query embeddings are not cached.

The best rate of the embedder is that of a loop over JPEG files at its best batch, in a process that has the
machine to itself. Clients take cores too, so that what a server could reach at most is this rate times the
share of the cores that its clients leave.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from benchmarks.common.cost_meters import in_fresh_process
from benchmarks.common.large_gallery import items_and_queries
from benchmarks.common.record import save_result
from benchmarks.common.server_process import running_server
from benchmarks.load.client import Plan, outcome, started
from benchmarks.load.requests import LIVEZ, image_requests, search_request
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder
from vicinal.service.cli.main import app
from vicinal.service.demo import prepare_demo
from vicinal.service.settings import Settings

_DIM = 256
_BATCHES = (8, 16, 32, 64)
_ALIVE_PER_SECOND = 20.0
# The first seconds of overload are a burst to the server, which lets it wait; they are not counted.
_BURST_SECONDS = 5.0


def embedder_rate(bundle: Path, images: list[bytes], seconds: float) -> dict[str, float]:
    """Images a second from JPEG bytes to embeddings, by batch; the machine has nothing else to do."""
    embedder = Embedder(ModelBundle.open(bundle))
    rates = {}
    for size in _BATCHES:
        batch = (images * -(-size // len(images)))[:size]
        embedder.embed(batch)
        n, begun = 0, time.perf_counter()
        while time.perf_counter() < begun + seconds:
            embedder.embed(batch)
            n += size
        rates[str(size)] = round(n / (time.perf_counter() - begun), 1)
    return rates


def ready_gallery(data_dir: Path, n_items: int) -> list[bytes]:
    """Index made-up embeddings, and give requests that search for others of their kind."""
    items, queries = items_and_queries(n_items, 1000, _DIM)
    folder = data_dir.parent
    np.save(folder / "items.npy", items)
    with (folder / "items.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "label"])
        rows.writerows((f"item-{i:06d}", f"label-{i // 20}") for i in range(n_items))
    arguments = ["index", str(folder / "items.npy"), "-g", "ready", "--space", "made-up"]
    done = CliRunner().invoke(app, [*arguments, "--data-dir", str(data_dir)])
    if done.exit_code:
        raise RuntimeError(done.output)
    bodies = (json.dumps({"embedding": [round(float(x), 6) for x in row]}).encode() for row in queries)
    return [search_request("ready", body, "application/json") for body in bodies]


def measured(port: int, requests: list[bytes], **how: Any) -> dict[str, Any]:
    """What one client sees, and beside it what `/livez` takes and what the clients cost."""
    seconds = float(how["seconds"])
    client = started(Plan("127.0.0.1", port, requests, **how))
    prober = started(Plan("127.0.0.1", port, [LIVEZ], "open", 4, seconds, _ALIVE_PER_SECOND))
    seen, alive = outcome(client), outcome(prober)
    return {**seen, "livez": alive["statuses"], "client_cores": seen["cores"] + alive["cores"]}


def answered(seen: dict[str, Any]) -> float:
    """Searches that were answered, a second."""
    return float(seen["statuses"].get("200", {"per_second": 0.0})["per_second"])


def of_kind(
    port: int,
    requests: list[bytes],
    seconds: float,
    minutes: float,
    clients: Sequence[int] = (1, 4, 8, 16, 32, 64),
) -> dict[str, Any]:
    """All loads of one kind of search; those of three times the best for minutes."""
    runs = {str(n): measured(port, requests, connections=n, seconds=seconds) for n in clients}
    best = max(answered(one) for one in runs.values())
    steady = measured(port, requests, kind="open", connections=64, seconds=seconds, rate=max(1.0, best / 2))
    overload = measured(
        port,
        requests,
        kind="open",
        connections=900,
        seconds=60 * minutes,
        rate=3 * best,
        warm_up=_BURST_SECONDS,
    )
    return {"closed": runs, "best": best, "half": steady, "three_times": overload}


@contextmanager
def served(data_dir: Path, bundle: Path, workers: int) -> Iterator[int]:
    """Port of a server with so many processes, warm."""
    environment = {
        "VICINAL_QUERY_CACHE_ENTRIES": "0",
        "VICINAL_WORKERS": str(workers),
        "VICINAL_LOG_LEVEL": "warning",
    }
    os.environ.pop("OMP_NUM_THREADS", None)
    with running_server(data_dir, bundle, environment) as (url, _):
        time.sleep(5.0)
        yield int(url.rpartition(":")[2])


def main() -> None:
    """Make the galleries, run every load, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load but the last")
    parser.add_argument("--minutes", type=float, default=5.0, help="of three times the best")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--kinds", nargs="+", default=["images", "ready"])
    arguments = parser.parse_args()
    data_dir, bundle = arguments.folder / "data", default_bundle_path()
    arguments.folder.mkdir(parents=True)
    prepare_demo(arguments.folder, Settings(bundle=bundle), lambda *_: None)
    images = [path.read_bytes() for path in sorted((arguments.folder / "catalog").rglob("*.jpg"))[:300]]
    requests = {"images": image_requests("demo", images), "ready": ready_gallery(data_dir, arguments.items)}
    result: dict[str, Any] = {"embedder": in_fresh_process(embedder_rate, bundle, images, 5.0), "workers": {}}
    for workers in arguments.workers:
        with served(data_dir, bundle, workers) as port:
            result["workers"][str(workers)] = {
                kind: of_kind(port, requests[kind], arguments.seconds, arguments.minutes)
                for kind in arguments.kinds
            }
        print(json.dumps(result["workers"][str(workers)], indent=1))
    save_result("searches_under_load", result)


if __name__ == "__main__":
    main()

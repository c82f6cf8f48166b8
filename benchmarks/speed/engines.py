"""The same searches over HTTP by Faiss and Milvus: latency, throughput, recall, memory, building.

    python -m benchmarks.speed.engines --items 100000 --folder build/engines

One gallery each, of the same made-up items and neighbor lists, behind one server; Milvus is a real server on
this machine, that of the tests (2.3.5 of January 2024). They are measured in turns, so that what else the
machine does meets all of them; what is compared are ratios to Faiss of the same run. Query embeddings are not
cached. Recall is that of the ten nearest among what is found, before anything is scored exactly.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.large_gallery import items_and_queries, write_bundle, write_gallery
from benchmarks.common.record import save_result
from benchmarks.common.server_process import running_server
from benchmarks.load.client import Plan, outcome, started
from benchmarks.load.requests import search_request
from tests.milvus_server import serving_milvus
from vicinal.indexer.engines import Engine
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import NeighborGraph, build_neighbor_graph
from vicinal.models.bundle import ModelBundle
from vicinal.service.settings import Settings

# Kinds of index, by the names of their galleries.
KINDS = {"faiss": "auto", "milvus": "milvus"}
_N_QUERIES = 1000
_N_WANTED = 10


@contextmanager
def milvus_of(names: list[str], folder: Path) -> Iterator[str | None]:
    """Start Milvus where it is measured, and give its address."""
    if "milvus" not in names:
        yield None
        return
    with serving_milvus(folder / "milvus", folder / "milvus-programs") as milvus:
        yield milvus.url


def built(
    gallery: Gallery, items: np.ndarray, bundle: ModelBundle, kind: str, graph: NeighborGraph
) -> dict[str, Any]:
    """Write a gallery, and say what its version took and what its index finds."""
    seconds = write_gallery(gallery, items, bundle, graph=graph, index=kind)["publish"]
    return {"publish_seconds": seconds, "index": gallery.snapshot().manifest.index}


def bytes_of(gallery: Gallery) -> int:
    """Bytes that a gallery takes on the disk here."""
    return sum(one.stat().st_size for one in gallery.path.rglob("*") if one.is_file())


def recall(gallery: Gallery, items: np.ndarray, queries: np.ndarray) -> dict[str, float]:
    """Share of the ten nearest items of some queries that is found, and how many candidates are fetched."""
    nearest = np.argpartition(-(queries @ items.T), _N_WANTED, axis=1)[:, :_N_WANTED]
    index = gallery.snapshot().index
    n_fetched = index.n_fetched(_N_WANTED)
    found = index.search(queries, n_fetched)
    hits = [len(set(one) & set(other)) for one, other in zip(found.tolist(), nearest.tolist(), strict=True)]
    return {"recall_of_ten": round(float(np.mean(hits)) / _N_WANTED, 4), "n_fetched": n_fetched}


def memory_of_tree(pid: int) -> int:
    """MiB that a process and those it started hold, what they share counted once."""
    pids, total = [pid], 0
    while pids:
        one = pids.pop()
        try:
            rolled = Path(f"/proc/{one}/smaps_rollup").read_text()
            total += sum(int(line.split()[1]) for line in rolled.splitlines() if line.startswith("Pss:"))
            for task in Path(f"/proc/{one}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return total // 1024


def load_of(port: int, name: str, queries: np.ndarray, filter: str | None, **how: Any) -> dict[str, Any]:
    """What one client sees that searches in a closed loop."""
    asked = {} if filter is None else {"filter": filter}
    bodies = ({"embedding": [round(float(x), 6) for x in query], **asked} for query in queries)
    requests = [search_request(name, json.dumps(body).encode(), "application/json") for body in bodies]
    seen: dict[str, Any] = {"statuses": {}}
    # A busy machine may answer none in the time that counts.
    while not seen["statuses"]:
        seen = outcome(started(Plan("127.0.0.1", port, requests, "closed", **how)))
    others = {status: one["n"] for status, one in seen["statuses"].items() if status != "200"}
    # Where searches wait too long, some are turned away.
    if "200" not in seen["statuses"] or others.keys() - {"429"}:
        raise RuntimeError(f"searches of '{name}' were not answered: {others}")
    return {**seen["statuses"]["200"], "turned_away": others.get("429", 0), "load": os.getloadavg()[0]}


def measured(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All of it at one size."""
    items, queries = items_and_queries(arguments.items, _N_QUERIES, arguments.dim)
    settings = Settings(data_dir=folder / "data", bundle=folder / "bundle")
    bundle = write_bundle(settings.bundle, arguments.dim)
    graph = build_neighbor_graph(items)
    loads = {
        f"{n} at once{', filtered' if filter else ''}": {"connections": n, "filter": filter}
        for filter in (None, "label < 'label-2000'")
        for n in arguments.connections
    }
    runs: dict[str, Any] = {name: {} for name in arguments.engines}
    with milvus_of(arguments.engines, folder) as address, closing(Engine(address)) as engine:
        for name in arguments.engines:
            gallery = Gallery(settings.galleries_path / name, engine=engine)
            runs[name] = built(gallery, items, bundle, KINDS[name], graph)
            runs[name] |= recall(gallery, items, queries)
            runs[name]["bytes_an_item"] = round(bytes_of(gallery) / len(items), 1)
            print(name, runs[name], flush=True)
        environment = {"VICINAL_QUERY_CACHE_ENTRIES": "0", "VICINAL_LOG_LEVEL": "warning"}
        if address is not None:
            environment["VICINAL_MILVUS_URL"] = address
        with running_server(settings.data_dir, settings.bundle, environment) as (url, pid):
            port = int(url.rpartition(":")[2])
            for turn in range(arguments.turns):
                for load, how in loads.items():
                    for name in arguments.engines:
                        seen = load_of(port, name, queries, seconds=arguments.seconds, **how)
                        runs[name].setdefault(load, []).append(seen)
                        print(turn, load, name, seen["per_second"], seen["milliseconds"], flush=True)
            memory = {"vicinal": memory_of_tree(pid)}
    return {"items": arguments.items, "dim": arguments.dim, "runs": runs, "memory_mib": memory}


def ratios_of(runs: dict[str, Any]) -> dict[str, float]:
    """Medians over the turns, over those of Faiss."""
    ratios = {}
    measures: dict[str, Callable[[dict[str, Any]], float]] = {
        "p50": lambda one: one["milliseconds"]["p50"],
        "p99": lambda one: one["milliseconds"]["p99"],
        "searches a second": lambda one: one["per_second"],
    }
    for name, run in runs.items():
        for load, turns in run.items():
            if name == "faiss" or "faiss" not in runs or not isinstance(turns, list):
                continue
            for what, of in measures.items():
                both = (turns, runs["faiss"][load])
                own, other = (float(np.median([of(one) for one in each])) for each in both)
                ratios[f"{name} over faiss, {load}, {what}"] = round(own / other, 3)
    return ratios


def main() -> None:
    """Start Milvus, build, search and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--engines", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8])
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="of each load, a second of which warms up"
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("build/engines"))
    parser.add_argument("--note", default="", help="what else the machine did")
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    arguments.folder.mkdir(parents=True)
    begun, load = time.monotonic(), os.getloadavg()
    try:
        result = measured(arguments, arguments.folder)
    finally:
        shutil.rmtree(arguments.folder, ignore_errors=True)
    result |= {"ratios": ratios_of(result["runs"]), "note": arguments.note, "load_before": load}
    result["seconds"] = round(time.monotonic() - begun, 1)
    print(json.dumps(result, indent=1))
    if not arguments.no_result:
        print(save_result(f"engines_{arguments.items}", result))


if __name__ == "__main__":
    main()

"""Searches over HTTP, side by side: `vicinal serve` and Chroma's server, over the same ready embeddings.

    python -m benchmarks.peers.http_search --folder build/http --chroma build/peers-chroma/bin/chroma

Both servers run all the time and take turns; who waits costs nothing. Each answers with the ten nearest
items: Vicinal without re-ranking and with a threshold of 0, Chroma with the least effort at which it finds
98 % of them; it takes that from the making of a collection alone, so that each effort gets one. Measured are
searches a second of 1, 8 and 32 clients in a closed loop, and the latency at a steady half of the best of
these. The client is a process of its own on the same cores. Without `--chroma` Vicinal is measured alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import httpx
import numpy as np

from benchmarks.common.large_gallery import items_and_queries
from benchmarks.common.record import save_result
from benchmarks.load.client import Plan, outcome, started
from benchmarks.load.requests import search_request
from benchmarks.load.searches import answered, ready_gallery, served
from tests.ports import free_port
from vicinal.models.bundle import default_bundle_path

K, DIM, MARK, N_CHOSEN_BY = 10, 256, 0.98, 200
EFFORTS = (32, 64, 128, 256)
CLIENTS = (1, 8, 32)
_COLLECTIONS = "/api/v2/tenants/default_tenant/databases/default_database/collections"


@dataclass(frozen=True)
class Server:
    """A server and what is sent to it.

    Attributes:
        port: Its port.
        requests: Whole requests, one a query.
        recall_at_10: Share of the ten nearest that its answers hold.
        effort: What a search may spend; None where there is nothing to choose.
    """

    port: int
    requests: list[bytes]
    recall_at_10: float
    effort: int | None = None


def vicinal_server(port: int, queries: np.ndarray, exact: np.ndarray) -> Server:
    """The gallery `ready` of a server that runs."""
    bodies = [
        {"embedding": _short(row), "limit": K, "threshold": 0.0, "rerank": "off", "refine": "off"}
        for row in queries
    ]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        found = []
        for body in bodies[:N_CHOSEN_BY]:
            answer = client.post("/v1/galleries/ready/search", json=body).raise_for_status().json()
            found.append([int(match["id"].rpartition("-")[2]) for match in answer["matches"]])
    requests = [search_request("ready", json.dumps(body).encode(), "application/json") for body in bodies]
    return Server(port, requests, _recall(found, exact))


@contextmanager
def chroma(command: Path, folder: Path) -> Iterator[int]:
    """Port of Chroma's server."""
    port = free_port()
    arguments = [str(command), "run", "--path", str(folder), "--port", str(port)]
    with (folder.parent / "chroma.log").open("w") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            for _ in range(150):
                try:
                    client.get("/api/v2/heartbeat").raise_for_status()
                    break
                except httpx.HTTPError:
                    time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        process.wait()


def chroma_server(port: int, items: np.ndarray, queries: np.ndarray, exact: np.ndarray) -> Server:
    """Fill it, with the least effort that finds enough."""
    bodies = [
        {"query_embeddings": [_short(row)], "n_results": K, "include": ["distances"]} for row in queries
    ]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
        for effort in EFFORTS:
            path = _collection(client, items, effort)
            found = []
            for body in bodies[:N_CHOSEN_BY]:
                answer = client.post(f"{path}/query", json=body).raise_for_status().json()
                found.append([int(i) for i in answer["ids"][0]])
            recall = _recall(found, exact)
            print("Chroma", effort, recall, flush=True)
            if recall >= MARK:
                break
    requests = []
    for body in bodies:
        content = json.dumps(body).encode()
        head = f"POST {path}/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        requests.append(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return Server(port, requests, recall, effort)


def _collection(client: httpx.Client, items: np.ndarray, effort: int) -> str:
    """Path of a new collection with all items."""
    graph = {"space": "ip", "ef_construction": 200, "max_neighbors": 16, "ef_search": effort}
    wanted = {"name": f"items-{effort}", "configuration": {"hnsw": graph}}
    path = f"{_COLLECTIONS}/{client.post(_COLLECTIONS, json=wanted).raise_for_status().json()['id']}"
    for start in range(0, len(items), 1000):
        rows = items[start : start + 1000]
        ids = [str(start + i) for i in range(len(rows))]
        body = {"ids": ids, "embeddings": [_short(row) for row in rows]}
        client.post(f"{path}/add", json=body).raise_for_status()
    return path


def turns(servers: dict[str, Server], rounds: int, seconds: float) -> dict[str, dict[str, Any]]:
    """What one client sees of each server, in turns; the best of the rounds counts, and all are kept."""
    rows: dict[str, dict[str, Any]] = {name: {"closed": {}} for name in servers}
    for clients in CLIENTS:
        for _ in range(rounds):
            for name, server in servers.items():
                seen = outcome(
                    started(Plan("127.0.0.1", server.port, server.requests, "closed", clients, seconds))
                )
                rows[name]["closed"].setdefault(str(clients), []).append(seen)
    for name, server in servers.items():
        best = max(answered(one) for runs in rows[name]["closed"].values() for one in runs)
        plan = Plan("127.0.0.1", server.port, server.requests, "open", 64, 2 * seconds, best / 2)
        half = outcome(started(plan))
        rows[name] |= {
            "best": best,
            "half": half,
            "recall_at_10": server.recall_at_10,
            "effort": server.effort,
        }
        print(name, best, rows[name]["half"]["statuses"], server.recall_at_10, flush=True)
    return rows


def main() -> None:
    """Fill both servers, let them take turns, and save the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--chroma", type=Path, help="its command")
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True)
    data_dir = arguments.folder / "data"
    items, queries = items_and_queries(arguments.items, 1000, DIM)
    exact = faiss.knn(queries, items, K, metric=faiss.METRIC_INNER_PRODUCT)[1]
    ready_gallery(data_dir, arguments.items)
    with ExitStack() as stack:
        port = stack.enter_context(served(data_dir, default_bundle_path(), arguments.workers))
        servers = {"Vicinal": vicinal_server(port, queries, exact)}
        if arguments.chroma:
            other = stack.enter_context(chroma(arguments.chroma, arguments.folder / "chroma"))
            servers["Chroma"] = chroma_server(other, items, queries, exact)
        rows = turns(servers, arguments.rounds, arguments.seconds)
    best = rows["Vicinal"]["best"]
    ratios = {f"searches a second, to {name}": round(best / rows[name]["best"], 2) for name in [*servers][1:]}
    result = {
        "items": arguments.items,
        "dim": DIM,
        "workers": arguments.workers,
        "servers": rows,
        "ratios": ratios,
    }
    print(ratios)
    if not arguments.no_result:
        print(save_result("peers_http_search", result))


def _short(row: np.ndarray) -> list[float]:
    return [round(float(x), 6) for x in row]


def _recall(found: list[list[int]], exact: np.ndarray) -> float:
    shares = [len({*one} & set(row.tolist())) / K for one, row in zip(found, exact, strict=False)]
    return round(float(np.mean(shares)), 4)


if __name__ == "__main__":
    main()

"""Changes a second where several replicas share a database and a store, each call of which takes a while.

    python -m benchmarks.load.writers --database postgresql://user:password@host/name --folder build/writers

Each writer is a process of its own, a replica with a data folder of its own, and adds one ready embedding a
change, as fast as it is answered: first each into a gallery of its own, then threads of one process into one
gallery. A call of the store takes `--store-ms` more than the disk does, as that of a bucket would.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.record import percentiles, save_result
from vicinal.indexer.sources import EmbeddingSource
from vicinal.indexer.storage.home import stores
from vicinal.service.local_gallery import LocalGallery, open_gallery

_DIM, _N_ITEMS = 64, 200
_CALLS = ("get", "fetch", "put", "put_if_absent", "list", "delete")


def slow_store(seconds: float) -> None:
    """Have every call of a store in a folder take longer."""
    for name in _CALLS:
        does = getattr(stores.FolderStore, name, None)
        if does is not None:
            setattr(stores.FolderStore, name, _slowed(does, seconds))


def _slowed(does: Any, seconds: float) -> Any:
    def call(*given: Any, **named: Any) -> Any:
        time.sleep(seconds)
        return does(*given, **named)

    return call


def opened(folder: Path, writer: str, gallery: str, database: str) -> LocalGallery:
    """A gallery of a replica."""
    return open_gallery(
        gallery, data_dir=folder / writer, home=str(folder.parent / "home"), database=database, redis_url=None
    )


def begun(folder: Path, writer: str, gallery: str, database: str) -> LocalGallery:
    """The same, with its first items."""
    made = opened(folder, writer, gallery, database)
    ids = [f"first-{i}" for i in range(_N_ITEMS)]
    vectors = np.random.default_rng(0).normal(size=(_N_ITEMS, _DIM)).astype(np.float32)
    made.index(EmbeddingSource.of_arrays(vectors, ids), space="made-up")
    return made


def write(gallery: LocalGallery, name: str, until: float, took: list[float]) -> None:
    """Add one item after the other; milliseconds of each."""
    draw, number = np.random.default_rng(1), 0
    while time.time() < until:
        number += 1
        vector = draw.normal(size=(1, _DIM)).astype(np.float32)
        start = time.perf_counter()
        gallery.add(EmbeddingSource.of_arrays(vector, [f"{name}-{number}"]))
        took.append(1000 * (time.perf_counter() - start))


def _writer(number: int, options: argparse.Namespace, ready: Any, go: Any, told: Any) -> None:
    slow_store(options.store_ms / 1000)
    gallery = begun(options.folder, f"replica{number}", f"{options.folder.name}-{number}", options.database)
    ready.release()
    go.wait()
    took: list[float] = []
    write(gallery, f"w{number}", time.time() + options.seconds, took)
    told.put(took)


def own_galleries(n_writers: int, options: argparse.Namespace) -> dict[str, Any]:
    """Changes of writers that each have a gallery of their own."""
    context = multiprocessing.get_context("spawn")
    ready, go, told = context.Semaphore(0), context.Event(), context.Queue()
    writers = [
        context.Process(target=_writer, args=(number, options, ready, go, told))
        for number in range(n_writers)
    ]
    for one in writers:
        one.start()
    for _ in writers:
        ready.acquire()
    go.set()
    found = [told.get() for _ in writers]
    for one in writers:
        one.join()
    rates = [len(took) / options.seconds for took in found]
    return {
        "writers": n_writers,
        "changes_per_second": round(sum(rates), 2),
        "slowest_writer_of_mean": round(min(rates) / (sum(rates) / n_writers), 3),
        "ms": percentiles([one for took in found for one in took]),
        "slowest_ms": round(max(one for took in found for one in took), 1),
    }


def one_gallery(n_threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """Changes of one gallery by threads of one process, as requests of a server are."""
    slow_store(options.store_ms / 1000)
    gallery = begun(options.folder, "together", "together", options.database)
    until, found = time.time() + options.seconds, [list[float]() for _ in range(n_threads)]
    threads = [
        threading.Thread(target=write, args=(gallery, f"t{number}", until, took))
        for number, took in enumerate(found)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    took = [one for part in found for one in part]
    return {
        "threads": n_threads,
        "changes_per_second": round(len(took) / options.seconds, 2),
        "ms": percentiles(took),
        "slowest_ms": round(max(took), 1),
    }


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--store-ms", type=float, default=30.0)
    options = parser.parse_args()
    root, found = options.folder, []
    for n_writers in options.writers:
        options.folder = root / f"{n_writers}-writers"
        found.append(own_galleries(n_writers, options))
        print(json.dumps(found[-1]), flush=True)
    options.folder = root / "one-gallery"
    together = one_gallery(options.threads, options)
    print(json.dumps(together))
    result = {"seconds": options.seconds, "store_ms": options.store_ms}
    save_result("replica_writers", {**result, "own_galleries": found, "one_gallery": together})


if __name__ == "__main__":
    main()

"""Search among vectors, side by side: Vicinal's line and what a user would take instead, in one run.

Every engine is searched with the least effort at which it finds 98 % of the ten nearest. They take turns,
single queries and batches of 32, so that what else the machine does falls on all of them; the ratio of a
round is to the fastest of that round. Each is opened and searched once more in a process of its own, for the
memory that it holds. An engine that cannot be built is named with the reason.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from benchmarks.common.cost_meters import Memory, in_fresh_process
from benchmarks.common.large_gallery import items_and_queries
from benchmarks.common.record import save_result
from benchmarks.peers.engines import ENGINES, Engine
from vicinal.calibration.arrays import FloatArray

K, MARK, N_CHOSEN_BY = 10, 0.98, 300


def recall(engine: Engine, queries: FloatArray, exact: np.ndarray, effort: int) -> float:
    """Share of the (q, 10) exact nearest that a search of this effort finds."""
    found = np.concatenate(
        [engine.search(queries[start : start + 32], K, effort) for start in range(0, len(queries), 32)]
    )
    return float(np.mean([len(set(row) & set(right)) / K for row, right in zip(found, exact, strict=True)]))


def cheapest_effort(engine: Engine, queries: FloatArray, exact: np.ndarray) -> tuple[int, float]:
    """The least effort that reaches the mark, or the greatest, and its recall."""
    for effort in engine.efforts:
        found = recall(engine, queries, exact, effort)
        if found >= MARK:
            break
    return effort, found


def turn(engine: Engine, queries: FloatArray, effort: int, batch: int) -> float:
    """Median milliseconds a query, over calls of one batch each."""
    engine.search(queries[:batch], K, effort)
    spent = []
    for start in range(0, len(queries) - batch + 1, batch):
        began = time.perf_counter()
        engine.search(queries[start : start + batch], K, effort)
        spent.append(1e3 * (time.perf_counter() - began) / batch)
    return statistics.median(spent)


def memory_of(name: str, folder: Path, queries: FloatArray, effort: int) -> dict[str, int]:
    """Most MiB of a process that opens an engine and searches: its own, and with pages of mapped files."""
    with Memory() as memory:
        engine = ENGINES[name](place_of(name, folder))
        for batch in (1, 32):
            turn(engine, queries, effort, batch)
    return {kind: round(size / 2**20) for kind, size in memory.as_json().items()}


def place_of(name: str, folder: Path) -> Path:
    """Where an engine's files are."""
    return folder / (ENGINES[name].builds or name)


def opened(items: FloatArray, wanted: list[str], folder: Path) -> tuple[dict[str, Engine], dict[str, Any]]:
    """Engines by name, and a row of each with what building took, or why it could not be built.

    What an earlier run left in the folder is opened, with the seconds that were noted then.
    """
    engines, rows = {}, {}
    for name in wanted:
        kind = ENGINES[name]
        place = place_of(name, folder)
        note = place.with_suffix(".json")
        try:
            if not note.exists():
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir(parents=True)
                began = time.perf_counter()
                kind.build(items, place)
                note.write_text(json.dumps({"build_seconds": round(time.perf_counter() - began, 1)}))
            engines[name] = kind(place)
        # Whatever a peer raises belongs in the results, and the others are measured all the same.
        except Exception as error:
            rows[name] = {"failed": f"{type(error).__name__}: {error}"}
        else:
            size = sum(path.stat().st_size for path in kind.files(place))
            rows[name] = {**json.loads(note.read_text()), "bytes_per_item": round(size / len(items))}
        print(name, rows[name], flush=True)
    return engines, rows


def able(rows: dict[str, Any]) -> list[str]:
    """Names of the engines that find enough: only these can be the fastest."""
    return [name for name, row in rows.items() if row.get("recall_at_10", 0.0) >= MARK - 0.005]


def main() -> None:
    """Build all engines, choose their efforts, let them take turns, and save the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=320, help="of each round")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--folder", type=Path, help="keeps what is built for the next run, of the same items")
    parser.add_argument("--only-build", action="store_true", help="stop there")
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    items, queries = items_and_queries(arguments.items, N_CHOSEN_BY + arguments.queries, arguments.dim)
    chosen_by, timed = queries[:N_CHOSEN_BY], queries[N_CHOSEN_BY:]
    with ExitStack() as stack:
        # ScaNN puts a relative path before itself.
        folder = (arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))).resolve()
        engines, rows = opened(items, arguments.engines, folder)
        if arguments.only_build:
            return
        exact = faiss.knn(queries, items, K, metric=faiss.METRIC_INNER_PRODUCT)[1]
        del items
        efforts = {}
        for name, engine in engines.items():
            efforts[name], _ = cheapest_effort(engine, chosen_by, exact[:N_CHOSEN_BY])
            found = recall(engine, timed, exact[N_CHOSEN_BY:], efforts[name])
            rows[name] |= {"effort": efforts[name], "recall_at_10": round(found, 4)}
            print(name, rows[name], flush=True)
        for batch in (1, 32):
            spent: dict[str, list[float]] = {name: [] for name in engines}
            for _ in range(arguments.rounds):
                for name, engine in engines.items():
                    spent[name].append(turn(engine, timed, efforts[name], batch))
            fastest = [min(spent[name][i] for name in able(rows)) for i in range(arguments.rounds)]
            for name, values in spent.items():
                ratios = [value / best for value, best in zip(values, fastest, strict=True)]
                rows[name][f"batch_{batch}"] = {
                    "milliseconds_per_query": [round(value, 4) for value in values],
                    "ratio_to_fastest": round(statistics.median(ratios), 2),
                }
                print(f"{name:24} batch {batch:2} {statistics.median(values):.3f} ms", flush=True)
        del engine
        engines.clear()
        for name, effort in efforts.items():
            # Milvus Lite locks its files until this process ends.
            try:
                rows[name]["memory_mib"] = in_fresh_process(memory_of, name, folder, timed, effort)
            except Exception as error:
                rows[name]["memory_mib"] = {"failed": f"{type(error).__name__}: {error}"}
            print(name, rows[name]["memory_mib"], flush=True)
    result = {
        "items": arguments.items,
        "dim": arguments.dim,
        "queries": arguments.queries,
        "engines": rows,
        "ratios": {
            f"fastest over {name}, batch {batch}": round(
                1.0 / rows[name][f"batch_{batch}"]["ratio_to_fastest"], 3
            )
            for name in efforts
            if name.startswith("Vicinal")
            for batch in (1, 32)
        },
    }
    if not arguments.no_result:
        print(save_result(f"peers_vector_search_{arguments.items}", result))


if __name__ == "__main__":
    main()

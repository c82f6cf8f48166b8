"""Recall of the exact neighbors by an engine, as measured when its table is built; also by filters.

`--address` is that of the engine, which gets a table of its own that goes again. The vectors are drawn as for
`index_recall.py`, or come from a file (`--embeddings`). A filter leaves a share of the items by a number in
their metadata. Recall does not depend on the machine; times do, and are those of one query after the other.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.common.large_gallery import items_and_queries
from benchmarks.common.record import percentiles, save_result
from vicinal.indexer.engines import Engines, EngineSource
from vicinal.indexer.filters import Filter
from vicinal.indexer.graph.vector_index import nearest_rows

SHARES = (100, 50, 20, 5)


def measured(source: EngineSource, items: np.ndarray, queries: np.ndarray, percent: int) -> dict:
    """Recall of the ten and the hundred nearest among a share of (n, d) items, and times of queries."""
    among = np.arange(len(items)) % 100 < percent
    filter = None if percent == 100 else Filter.of(f"metadata.part < {percent}")
    rows = np.flatnonzero(among)
    exact = rows[nearest_rows(queries, items[rows], 100)[1]]
    found = {}
    for n in (10, 100):
        shares, times = [], []
        for query, near in zip(queries, exact, strict=True):
            begun = time.perf_counter()
            got = source.search(query[None], n, None if filter is None else among, filter)[0]
            times.append(1e3 * (time.perf_counter() - begun))
            shares.append(len(set(got.tolist()) & set(near[:n].tolist())) / n)
        found[f"recall_at_{n}"] = round(float(np.mean(shares)), 4)
        found[f"milliseconds_at_{n}"] = percentiles(times)
    return {"percent": percent, **found}


def main() -> None:
    """Build a table, measure it, and save the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="postgres")
    parser.add_argument("--address", required=True)
    parser.add_argument("--items", type=int, nargs="+", default=[20_000, 100_000])
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--embeddings", type=Path, help="a .npy file to take items and queries from")
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    engines, rows = Engines({arguments.engine: arguments.address}), []
    with engines.asking(arguments.engine) as engine:
        versions = engine.describe()
    for n_items in arguments.items:
        if arguments.embeddings:
            vectors = np.random.default_rng(0).permutation(np.load(arguments.embeddings))
            items, queries = vectors[arguments.queries :][:n_items], vectors[: arguments.queries]
        else:
            items, queries = items_and_queries(n_items, arguments.queries, arguments.dim)
        n, name = len(items), "vicinal_benchmark"
        table = {
            "id": [f"item {i}" for i in range(n)],
            "label": [f"label {i % 50}" for i in range(n)],
            "uri": [""] * n,
            "metadata": [f'{{"part": {i % 100}}}' for i in range(n)],
        }
        begun = time.perf_counter()
        source = EngineSource.build(engines, arguments.engine, name, items, pa.table(table))
        seconds = round(time.perf_counter() - begun, 1)
        with engines.asking(arguments.engine) as engine:
            n_bytes = engine.describe(name).n_bytes
        shares = [measured(source, items, queries, percent) for percent in SHARES]
        with engines.asking(arguments.engine) as engine:
            engine.drop(name)
        file, looked_at = source.file, source.candidates
        rows.append(
            {
                "items": n,
                "dim": items.shape[1],
                "build_seconds": seconds,
                "bytes": n_bytes,
                "looked_at": [looked_at.of_few, looked_at.of_many],
                "recall_when_built": [file.recall_of_few, file.recall_of_many],
                "shares": shares,
            }
        )
        print(rows[-1])
    engines.close()
    kind = "_photos" if arguments.embeddings else ""
    if not arguments.no_result:
        result = {"engine": versions.server, "extension": versions.extension, "rows": rows}
        save_result(f"engine_recall_{arguments.engine}{kind}", result)


if __name__ == "__main__":
    main()

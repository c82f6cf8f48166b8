"""Which Faiss index `auto` should pick: recall of the exact neighbors against time, by index and probes.

The vectors are synthetic: 5,000 clusters in a 64-dimensional subspace and isotropic noise, 100,000 x 512; or
embeddings of real photos from a file (`--embeddings`), some of which are the queries: these lie in tighter
groups, which codes tell apart less well. `r` after a code: of a vector only what is left without the center
of its list is quantized. What `auto` picks, and how many lists it looks into, is measured at smaller sizes
too: clusters of few items. Around the size up to which it picks a flat index, that and inverted lists are
measured beside each other.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import faiss
import numpy as np

from benchmarks.common.large_gallery import items_and_queries
from benchmarks.common.record import percentiles, save_result
from vicinal.indexer.graph.vector_index import FLAT_LIMIT, FaissIndex, choose_factory

FETCHED = 400


def measure(index, queries: np.ndarray, exact: np.ndarray, n_probed: int | None, fetched: int) -> dict:
    """Recall of the exact neighbors, and time, of single queries.

    Args:
        index: A Faiss index of the items.
        queries: (q, d) float32 unit vectors.
        exact: (q, 100) positions of the exact neighbors, best first.
        n_probed: Cells that are searched; None for an index without cells.
        fetched: Neighbors that are asked for.
    """
    parameters = None if n_probed is None else faiss.SearchParametersIVF(nprobe=n_probed)
    times, found = [], []
    for query in queries:
        started = time.perf_counter()
        found.append(set(index.search(query[None], fetched, params=parameters)[1][0]))
        times.append(1e3 * (time.perf_counter() - started))
    recall = {
        f"recall_at_{k}": round(
            float(np.mean([len(one & set(row[:k])) / k for one, row in zip(found, exact, strict=True)])), 4
        )
        for k in (10, 100)
    }
    return {"n_probed": n_probed, "fetched": fetched, **recall, "milliseconds": percentiles(times)}


def row_of(items: np.ndarray, queries: np.ndarray, factory: str = "auto") -> dict:
    """What the service would build over (n, d) items, and find."""
    exact = faiss.knn(queries, items, 100, metric=faiss.METRIC_INNER_PRODUCT)[1]
    built = FaissIndex.build(items, factory)
    found = measure(built.as_faiss, queries, exact, built.n_probed or None, FETCHED)
    row = {"items": len(items), "index": built.spec, **found}
    print(row)
    return row


def inverted_lists(n_items: int, dim: int) -> tuple[int, str]:
    """How many lists `auto` gives a gallery above the limit, and its whole factory string."""
    spec = choose_factory(max(n_items, FLAT_LIMIT + 1), dim)
    return int(spec.partition(",")[0].removeprefix("IVF")), spec


def main() -> None:
    """Measure each index with each number of probes, and save the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--no-result", action="store_true", help="print only")
    parser.add_argument("--embeddings", type=Path, help="a .npy file to take items and queries from")
    arguments = parser.parse_args()
    if arguments.embeddings:
        vectors = np.random.default_rng(0).permutation(np.load(arguments.embeddings))
        items, queries = vectors[arguments.queries :], vectors[: arguments.queries]
        arguments.items, arguments.dim = items.shape
    else:
        items, queries = items_and_queries(arguments.items, arguments.queries, arguments.dim)
    exact = faiss.knn(queries, items, 100, metric=faiss.METRIC_INNER_PRODUCT)[1]
    rows = []
    half, quarter = arguments.dim // 2, arguments.dim // 4
    lists, _ = inverted_lists(arguments.items, arguments.dim)
    specs = ["Flat", "HNSW32", f"IVF{lists},SQ8"]
    specs += [f"IVF{lists},PQ{codes}x4fs{kind}" for codes in (quarter, half) for kind in ("", "r")]
    specs += [f"IVF{n},PQ{quarter}x4fsr" for n in (lists // 2, 2 * lists)]
    for spec in specs:
        started = time.perf_counter()
        index = faiss.index_factory(arguments.dim, spec, faiss.METRIC_INNER_PRODUCT)
        index.train(items)
        index.add(items)
        seconds = round(time.perf_counter() - started, 1)
        for n_probed in (32, 64, 128) if spec.startswith("IVF") else (None,):
            row = {
                "index": spec,
                "build_seconds": seconds,
                **measure(index, queries, exact, n_probed, FETCHED),
            }
            rows.append(row)
            print(row)
    sizes = sorted({min(n, arguments.items) for n in (12_000, 25_000, 50_000, arguments.items)})
    by_size = [row_of(items[:n], queries) for n in sizes]
    around = sorted({min(n, arguments.items) for n in (FLAT_LIMIT // 2, FLAT_LIMIT, 2 * FLAT_LIMIT)})
    around_limit = [
        row_of(items[:n], queries, spec)
        for n in around
        for spec in ("Flat", inverted_lists(n, arguments.dim)[1])
    ]
    flat, auto = rows[0]["milliseconds"]["p50"], by_size[-1]["milliseconds"]["p50"]
    result = {
        "items": arguments.items,
        "dim": arguments.dim,
        "rows": rows,
        "auto": by_size,
        "around_limit": around_limit,
        "ratios": {"flat over what auto picks": round(flat / auto, 3)},
    }
    if not arguments.no_result:
        print(save_result("index_recall_photos" if arguments.embeddings else "index_recall", result))


if __name__ == "__main__":
    main()

"""Which Faiss index `auto` should pick: recall of the exact neighbors against time, by index and probes.

The vectors are synthetic: 5,000 clusters in a 64-dimensional subspace and isotropic noise, 100,000 x 512; or
embeddings of real photos from a file (`--embeddings`), some of which are the queries: these lie in tighter
groups, which codes tell apart less well. `r` after a code: of a vector only what is left without the center
of its list is quantized. What `auto` picks, how many lists it looks into and how many candidates it fetches,
is measured at smaller sizes too: clusters of few items. Around the size up to which it picks a flat index,
and up to which codes are fine, all that it picks from is measured side by side.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import faiss
import numpy as np

from benchmarks.common.large_gallery import items_and_queries
from benchmarks.common.record import percentiles, save_result
from vicinal.indexer.graph.vector_index import FLAT_LIMIT, FaissIndex, automatic_factories

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
    few, many = (
        measure(built.as_faiss, queries, exact, built.n_probed or None, built.n_fetched(n)) for n in (10, 100)
    )
    row = {"items": len(items), "index": built.spec, "ten": few, "hundred": many}
    print(row)
    return row


def factories(n_items: int, dim: int) -> list[str]:
    """What `auto` picks from for a gallery above the limit, with fine and with coarse codes."""
    lists, one_list = automatic_factories(max(n_items, FLAT_LIMIT + 1), dim)
    n_lists = lists.partition(",")[0]
    return [*dict.fromkeys([f"{n_lists},PQ{dim // per_code}x4fsr" for per_code in (2, 4)]), one_list]


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
    largest = automatic_factories(max(arguments.items, FLAT_LIMIT + 1), arguments.dim)[0]
    lists = int(largest.partition(",")[0].removeprefix("IVF"))
    specs = ["Flat", f"IVF1,PQ{half}x4fsr", f"IVF{lists},SQ8"]
    specs += [f"IVF{lists},PQ{codes}x4fs{kind}" for codes in (quarter, half) for kind in ("", "r")]
    specs += [f"IVF{n},PQ{quarter}x4fsr" for n in (lists // 2, 2 * lists)]
    for spec in specs:
        started = time.perf_counter()
        index = faiss.index_factory(arguments.dim, spec, faiss.METRIC_INNER_PRODUCT)
        index.train(items)
        index.add(items)
        seconds = round(time.perf_counter() - started, 1)
        for n_probed in (32, 64, 128) if spec.startswith("IVF") and "IVF1," not in spec else (None,):
            row = {
                "index": spec,
                "build_seconds": seconds,
                **measure(index, queries, exact, n_probed, FETCHED),
            }
            rows.append(row)
            print(row)
    sizes = sorted({min(n, arguments.items) for n in (12_000, 25_000, 50_000, arguments.items)})
    by_size = [row_of(items[:n], queries) for n in sizes]
    around = sorted({min(n, arguments.items) for n in (FLAT_LIMIT // 2, FLAT_LIMIT, 2 * FLAT_LIMIT, 50_000)})
    side_by_side = [
        row_of(items[:n], queries, spec) for n in around for spec in ("Flat", *factories(n, arguments.dim))
    ]
    flat, auto = rows[0]["milliseconds"]["p50"], by_size[-1]["hundred"]["milliseconds"]["p50"]
    result = {
        "items": arguments.items,
        "dim": arguments.dim,
        "rows": rows,
        "auto": by_size,
        "side_by_side": side_by_side,
        "ratios": {"flat over what auto picks": round(flat / auto, 3)},
    }
    if not arguments.no_result:
        print(save_result("index_recall_photos" if arguments.embeddings else "index_recall", result))


if __name__ == "__main__":
    main()

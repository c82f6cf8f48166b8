"""Share of a calibration that the products of queries with all items take: what a GPU could make shorter.

    python -m benchmarks.speed.block_scores --items 10000 50000

They are float64 products, block by block (`service/search/item_spaces.py`). The galleries are those of
`calibration_memory`, without and with re-ranking.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common.large_gallery import labelled_vectors
from benchmarks.common.record import save_result
from benchmarks.speed.calibration_memory import write
from vicinal.calibration import Target
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.measuring import measurement
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.search.item_spaces import exact_products
from vicinal.service.search.pipeline import Pipeline, Rerank

_PER_LABEL = 10


class _Products:
    """Makes the products, and takes the time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, queries: FloatArray, items: FloatArray) -> Any:
        started = time.perf_counter()
        found = exact_products(queries, items)
        self.seconds += time.perf_counter() - started
        return found


def measured(snapshot: Snapshot, pipeline: Pipeline, n_queries: int) -> dict[str, Any]:
    """Seconds of a calibration, and those of its products."""
    products, made = _Products(), measurement.block_products
    measurement.block_products = lambda *_given: products
    try:
        started = time.perf_counter()
        calibrator = Calibrator(snapshot, pipeline, most_queries=n_queries)
        calibrator.measure(LabelledQueries.leave_one_out(snapshot), Target.parse("fpir=5%"))
        spent = time.perf_counter() - started
    finally:
        measurement.block_products = made
    return {
        "items": len(snapshot),
        "rerank": pipeline.rerank.method,
        "seconds": round(spent, 2),
        "seconds_of_products": round(products.seconds, 2),
        "share": round(products.seconds / spent, 4),
    }


def main() -> None:
    """Measure, and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, nargs="+", default=[10_000, 50_000])
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    runs = []
    for n_items in arguments.items:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "1"
            embeddings, labels = labelled_vectors(n_items, arguments.dim, per_label=_PER_LABEL)
            write(path, embeddings, labels, build_neighbor_graph(embeddings))
            for rerank in (Rerank(), Rerank(method="contextual")):
                pipeline = Pipeline(rerank=rerank)
                runs.append(measured(Snapshot.open(path), pipeline, arguments.queries))
                print(runs[-1], flush=True)
    setting = {"dim": arguments.dim, "queries": arguments.queries, "per_label": _PER_LABEL}
    if not arguments.no_result:
        print(save_result("block_scores", {**setting, "runs": runs}))


if __name__ == "__main__":
    main()

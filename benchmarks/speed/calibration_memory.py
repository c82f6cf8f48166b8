"""Memory and time of a calibration of 100,000 items, every negative pair counted.

Synthetic embeddings: normal noise around normal centers, so that classes overlap. The snapshot is written
first; what is measured is a fresh process that opens it, calibrates and ends. The neighbor lists come from an
approximate index, which makes them fast: some rates would differ a little with exact ones, and no cost.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.common.cost_meters import in_fresh_process, peak_of
from benchmarks.common.large_gallery import labelled_vectors
from benchmarks.common.record import save_result
from vicinal.calibration import Target
from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS, NeighborGraph
from vicinal.indexer.graph.vector_index import import_faiss
from vicinal.indexer.views.snapshot import Snapshot, SnapshotRows, write_snapshot
from vicinal.models.similarity import exact_similarities
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.search.pipeline import Pipeline, Rerank

TARGETS = ("far=0.001",)


def approximate_graph(embeddings: np.ndarray) -> NeighborGraph:
    """Nearest other items by an inverted file, most similar first."""
    faiss = import_faiss()
    index = faiss.index_factory(embeddings.shape[1], "IVF512,Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(embeddings[:20_000])
    index.add(embeddings)
    index.nprobe = 8
    rows = np.arange(len(embeddings))
    _, found = index.search(embeddings, N_NEIGHBORS + 1)
    similarities = np.empty(found.shape, np.float32)
    for start in range(0, len(rows), 4096):
        part = slice(start, start + 4096)
        similarities[part] = exact_similarities(embeddings[part], embeddings[found[part]])
    similarities[(found == rows[:, None]) | (found < 0)] = -np.inf
    order = np.lexsort((found, -similarities), axis=1)[:, :N_NEIGHBORS]
    similarities = np.take_along_axis(similarities, order, axis=1)
    ids = np.where(np.isfinite(similarities), np.take_along_axis(found, order, axis=1), -1)
    return NeighborGraph(ids.astype(np.int32), similarities)


def write(path: Path, embeddings: np.ndarray, labels: np.ndarray, graph: NeighborGraph) -> None:
    """Write the snapshot of a synthetic gallery.

    Args:
        path: Its folder, which does not exist yet.
        embeddings: (n, d) float32 unit vectors.
        labels: (n,) numbers of their labels.
        graph: Their neighbor lists.
    """
    n_items = len(embeddings)
    items = pa.table(
        {
            "id": [f"item {i}" for i in range(n_items)],
            "label": [f"label {label}" for label in labels],
            "uri": [f"{i}.png" for i in range(n_items)],
            "metadata": ["{}"] * n_items,
        }
    )
    write_snapshot(
        path,
        SnapshotRows(items, np.arange(n_items), embeddings, graph),
        index="auto",
        fields={
            "version": 1,
            "revision": 1,
            "bundle": "synthetic",
            "bundle_name": "synthetic",
            "next_number": n_items,
        },
    )


def calibrate(path: Path, n_queries: int, target: str) -> dict:
    """Calibrate in this process, and say what it took."""
    snapshot, found = Snapshot.open(path), []

    def run() -> None:
        calibrator = Calibrator(
            snapshot, Pipeline(rerank=Rerank(method="contextual")), most_queries=n_queries
        )
        found.append(calibrator.measure(LabelledQueries.leave_one_out(snapshot), Target.parse(target)))

    started, busy = time.perf_counter(), time.process_time()
    peak = peak_of(run)
    record = found[0].record
    return {
        "target": target,
        "threshold": record.threshold,
        "rates": record.rates.model_dump(),
        "opis": {space: one.model_dump() for space, one in record.evidence.opis.items()},
        "peak_resident_mebibytes": round(peak.highest / 2**20, 1),
        "mebibytes_before": round(peak.before / 2**20, 1),
        "wall_seconds": round(time.perf_counter() - started, 1),
        "processor_seconds": round(time.process_time() - busy, 1),
    }


def main() -> None:
    """Measure each target in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--per-label", type=int, default=10)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    setting = {name: getattr(arguments, name) for name in ("items", "dim", "per_label", "queries")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "1"
        embeddings, labels = labelled_vectors(arguments.items, arguments.dim, per_label=arguments.per_label)
        write(path, embeddings, labels, approximate_graph(embeddings))
        runs = []
        for target in TARGETS:
            runs.append(in_fresh_process(calibrate, path, arguments.queries, target))
            print(runs[-1], flush=True)
    if not arguments.no_result:
        print(save_result("calibration_memory", {**setting, "runs": runs}))


if __name__ == "__main__":
    main()

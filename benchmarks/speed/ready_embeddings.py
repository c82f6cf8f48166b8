"""How long a large file of ready embeddings takes to become a version that is searched, and what it finds.

    python -m benchmarks.speed.ready_embeddings --items 1000000 --folder build/ready

The embeddings are made up and drawn by a seed: groups of labels, labels of very different size, a spectrum
that falls off, and a mean that all share, as embeddings of photos have. The job runs in a process of its own.
Afterwards the neighbor lists and the searches of some items are compared with those among all items.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.common.cost_meters import Memory, in_fresh_process
from benchmarks.common.record import percentiles, save_result
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import nearest_others
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.indexer.storage.item_table import as_fixed_lists
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.bundle import ModelBundle, space_manifest
from vicinal.models.embedder import SpaceEmbedder
from vicinal.service.search.scorer import N_DECIDED_CANDIDATES

SPACE = "made-up"
_BLOCK = 50_000
_GROUPS = 200
_PER_LABEL = 12
# What a search fetches from an index that is not exact, and scores exactly.
_FETCHED = 4 * N_DECIDED_CANDIDATES


def write_embeddings(path: Path, n: int, dim: int, *, seed: int = 0) -> None:
    """Write a Parquet file with the columns `id`, `label` and `embedding`, block by block."""
    rng = np.random.default_rng(seed)
    spectrum = (1.0 + np.arange(dim)) ** -0.4
    mean = rng.normal(size=dim) * spectrum
    groups = rng.normal(size=(_GROUPS, dim)) * spectrum
    n_labels = max(1, n // _PER_LABEL)
    group_of = rng.integers(0, _GROUPS, n_labels)
    centers = (mean + groups[group_of] + 0.8 * rng.normal(size=(n_labels, dim)) * spectrum).astype(np.float32)
    shares = rng.lognormal(0.0, 1.0, n_labels)
    kind = pa.list_(pa.float32(), dim)
    schema = pa.schema({"id": pa.string(), "label": pa.string(), "embedding": kind})
    with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=["label"]) as writer:
        for first in range(0, n, _BLOCK):
            drawn = rng.choice(n_labels, min(_BLOCK, n - first), p=shares / shares.sum())
            noise = rng.normal(size=(len(drawn), dim)).astype(np.float32)
            vectors = centers[drawn] + 0.6 * noise * spectrum.astype(np.float32)
            ids = [f"item {first + i}" for i in range(len(drawn))]
            labels = [f"label {label}" for label in drawn]
            writer.write_table(pa.table([pa.array(ids), pa.array(labels), as_fixed_lists(vectors)], schema))


def index(source: Path, folder: Path) -> dict[str, Any]:
    """Index a file, and say how long the stages took and how much memory the process held at most."""
    gallery = Gallery(folder / "large")
    opened = time.perf_counter()
    rows = EmbeddingSource.open(source)
    seconds = {"open": round(time.perf_counter() - opened, 2)}
    space = SpaceEmbedder(ModelBundle(gallery.space_path, space_manifest(SPACE, rows.dim)), gallery.name)
    started, busy = time.perf_counter(), time.process_time()
    with Memory() as memory:
        result = index_items(gallery, rows, space)
    seconds |= result.seconds
    return {
        "seconds": {**seconds, "all": round(seconds["open"] + time.perf_counter() - started, 2)},
        "processor_seconds": round(time.process_time() - busy, 1),
        "index": result.index,
        "peak_bytes": memory.as_json(),
        "labels": result.n_labels,
    }


def quality(folder: Path, n_probes: int) -> dict[str, Any]:
    """Shares of the true nearest items in stored neighbor lists and in searches of the index."""
    snapshot = Gallery(folder / "large").snapshot()
    rows = np.sort(np.random.default_rng(1).choice(len(snapshot), min(n_probes, len(snapshot)), False))
    everyone, started = np.asarray(snapshot.embeddings), time.perf_counter()
    true, _ = nearest_others(everyone, rows, snapshot.neighbor_ids.shape[1])
    exact_seconds = time.perf_counter() - started
    listed = np.asarray(snapshot.neighbor_ids[rows])
    found, milliseconds = _searched(snapshot, np.asarray(snapshot.embeddings[rows]))
    return {
        "probes": len(rows),
        "listed": {f"recall_at_{k}": _recall(true, listed, k) for k in (1, 10, 20, 32)},
        "candidates": {f"recall_at_{k}": _recall(true, found, k, among=_FETCHED) for k in (1, 10)},
        "milliseconds_a_search": percentiles(milliseconds),
        "exact_milliseconds_a_probe": round(1e3 * exact_seconds / len(rows), 3),
    }


def _searched(snapshot: Snapshot, queries: FloatArray) -> tuple[np.ndarray, list[float]]:
    found, milliseconds = [], []
    for query in queries:
        started = time.perf_counter()
        found.append(snapshot.index.search(query[None], _FETCHED)[0])
        milliseconds.append(1e3 * (time.perf_counter() - started))
    return np.stack(found), milliseconds


def _recall(true: np.ndarray, found: np.ndarray, k: int, *, among: int | None = None) -> float:
    hits = (true[:, :k, None] == found[:, None, : among or k]).any(axis=2)
    return round(float(hits.mean()), 5)


def ratios_of(runs: list[dict[str, Any]]) -> dict[str, float]:
    """What comparing all pairs would take, by how long the probes took, against what was done instead."""
    ratios = {}
    for run in runs:
        n, milliseconds = run["items"], run["exact_milliseconds_a_probe"]
        lists = 1e-3 * n * milliseconds / max(run["seconds"]["neighbors"], 1e-3)
        ratios[f"all pairs over neighbor lists, {n:,} items"] = round(lists, 3)
        search = milliseconds / run["milliseconds_a_search"]["p50"]
        ratios[f"all items over the index, {n:,} items"] = round(search, 3)
    return ratios


def main() -> None:
    """Write the file, index it, compare and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--probes", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path("build/ready"), help="three files as large as it")
    parser.add_argument("--note", default="", help="what else the machine did")
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    runs = []
    for n_items in arguments.items:
        shutil.rmtree(arguments.folder, ignore_errors=True)
        arguments.folder.mkdir(parents=True)
        try:
            source = arguments.folder / "embeddings.parquet"
            write_embeddings(source, n_items, arguments.dim)
            run = in_fresh_process(index, source, arguments.folder)
            run |= in_fresh_process(quality, arguments.folder, arguments.probes)
        finally:
            shutil.rmtree(arguments.folder, ignore_errors=True)
        runs.append({"items": n_items, "dim": arguments.dim, **run})
        print(runs[-1])
    if not arguments.no_result:
        result = {"note": arguments.note, "runs": runs, "ratios": ratios_of(runs)}
        print(save_result("ready_embeddings", result))


if __name__ == "__main__":
    main()

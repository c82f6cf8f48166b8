"""What an item, a dimension and a search cost: what the unit costs of `vicinal plan` are fitted to.

    python -m benchmarks.speed.unit_costs --sizes 10000 100000 1000000 --dims 128 256 512

Galleries of made-up clustered embeddings (`ready_embeddings.py`) go the way of a user's, each in processes
of its own with one thread: an index job from a Parquet file, a refinement, searches, a start of the service.
Counted are seconds of the processor, which hardly see what else the machine does, and bytes by file. A run is
saved as soon as it is there; those that are there are not measured again. `fitted_unit_costs.py` makes unit
costs of them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.cost_meters import Memory, in_fresh_process
from benchmarks.common.large_gallery import write_refiner
from benchmarks.common.record import RESULTS, save_result
from benchmarks.speed.cost_by_size import _batches, _queries
from benchmarks.speed.ready_embeddings import SPACE, write_embeddings
from benchmarks.speed.start_up import NAME, time_serve
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.indexer.views.refined_snapshot import write_refined
from vicinal.models.bundle import ModelBundle, default_bundle_path, space_manifest
from vicinal.models.embedder import SpaceEmbedder
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.service.search.item_spaces import open_refiner
from vicinal.service.search.pipeline import Pipeline, Refine, Rerank
from vicinal.service.search.scorer import Scorer
from vicinal.service.settings import Settings

BATCHES = (1, 32)
_LIMIT = 10


class Laps:
    """Seconds of the processor and of the clock between the first reports of stages."""

    def __init__(self) -> None:
        self._began: dict[str, tuple[float, float]] = {}
        self._enter("embed")

    def __call__(self, stage: str, done: int, total: int, _note: str = "", /) -> None:
        """See `OnProgress`."""
        # Neighbor lists are reported from their first cell on: what came before is theirs, too.
        if stage == "embed" and done >= total:
            self._began["neighbors"] = (time.process_time(), time.perf_counter())
        elif stage != "neighbors":
            self._enter(stage)

    def _enter(self, stage: str) -> None:
        self._began.setdefault(stage, (time.process_time(), time.perf_counter()))

    def ended(self) -> dict[str, dict[str, float]]:
        """Both of every stage."""
        marks = [*self._began.items(), ("", (time.process_time(), time.perf_counter()))]
        return {
            name: {"cpu": round(end[0] - start[0], 3), "wall": round(end[1] - start[1], 3)}
            for (name, start), (_, end) in pairwise(marks)
        }


def build(source: Path, folder: Path) -> dict[str, Any]:
    """Index a file: seconds by stage, the index, and the most memory of the process."""
    gallery = Gallery(folder / NAME)
    rows = EmbeddingSource.open(source)
    space = SpaceEmbedder(ModelBundle(gallery.space_path, space_manifest(SPACE, rows.dim)), gallery.name)
    with Memory() as memory:
        laps = Laps()
        result = index_items(gallery, rows, space, on_progress=laps)
        seconds = laps.ended()
    return {"seconds": seconds, "index": result.index, "memory": memory.as_json()}


def refinement(gallery: Path, bundle: Path) -> dict[str, Any]:
    """Refine all items: seconds of the items, of their lists and index, and the most memory."""
    refiner, snapshot = ContextRefiner(ModelBundle.open(bundle)), Gallery(gallery).snapshot()
    refined = [0.0]

    def note(stage: str, done: int, total: int, _note: str = "", /) -> None:
        if stage == "refine" and done == total:
            refined[0] = time.process_time()

    began = time.process_time()
    with Memory() as memory:
        write_refined(snapshot, refiner, refiner.n_steps, on_progress=note)
    return {
        "seconds": {
            "items": {"cpu": round(refined[0] - began, 3)},
            "lists and index": {"cpu": round(time.process_time() - refined[0], 3)},
        },
        "memory": memory.as_json(),
    }


def searches(gallery: Path, bundle: Path, n_queries: int) -> dict[str, Any]:
    """Milliseconds of the processor for a query, plain and with all there is, alone and in batches of 32."""
    refiner = ContextRefiner(ModelBundle.open(bundle))
    with Memory() as memory:
        snapshot = GalleryReader(Gallery(gallery)).view().snapshot
        refine = Refine(sides="both", steps=refiner.n_steps, refiner=refiner.fingerprint)
        pipelines = {
            "plain": Pipeline(refine=Refine(), rerank=Rerank(method="off")),
            "re-ranked": Pipeline(refine=Refine(), rerank=Rerank(method="contextual")),
            "refined and re-ranked": Pipeline(refine=refine, rerank=Rerank(method="contextual")),
        }
        queries = _queries(snapshot.embeddings, n_queries)
        found = {
            name: _spent(Scorer(snapshot, pipeline, open_refiner(pipeline, refiner, NAME, snapshot)), queries)
            for name, pipeline in pipelines.items()
        }
    index = snapshot._built_index
    return {
        "milliseconds": found,
        "probed": index.n_probed,
        "candidates": [index.candidates.of_few, index.candidates.of_many],
        "memory": memory.as_json(),
    }


def _spent(scorer: Scorer, queries: np.ndarray) -> dict[str, list[float]]:
    """Milliseconds a query of every batch after the first, which loads pages, by the size of batches."""
    spent: dict[str, list[float]] = {}
    for batch in BATCHES:
        for turn, part in enumerate(_batches(queries, batch)):
            began = time.process_time()
            scorer.score(part, n_candidates=_LIMIT)
            if turn:
                taken = 1e3 * (time.process_time() - began) / batch
                spent.setdefault(f"of {batch}", []).append(round(taken, 4))
    return spent


def measured(folder: Path, n_items: int, dim: int, n_queries: int, *, is_refined: bool) -> dict[str, Any]:
    """All costs of a gallery of n items."""
    settings = Settings(data_dir=folder, bundle=default_bundle_path())
    source = folder / "embeddings.parquet"
    write_embeddings(source, n_items, dim)
    run: dict[str, Any] = {"items": n_items, "dim": dim}
    run["build"] = in_fresh_process(build, source, settings.galleries_path)
    run["bytes"] = {"source": source.stat().st_size}
    source.unlink()
    gallery = settings.galleries_path / NAME
    write_refiner(ModelBundle(folder / "refiner", space_manifest(SPACE, dim)))
    run["bytes"] |= _bytes(gallery)
    run["serve"] = time_serve(settings, dim)
    if is_refined:
        run["refinement"] = in_fresh_process(refinement, gallery, folder / "refiner")
        run["bytes refined"] = _bytes(next(gallery.glob("versions/*/refined-*")))
        run["searches"] = in_fresh_process(searches, gallery, folder / "refiner", n_queries)
    return run


def _bytes(folder: Path) -> dict[str, int]:
    """Bytes by file; those of the table and of small files together."""
    found: dict[str, int] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            is_of_version = path.suffix in (".npy", ".index", ".arrow")
            name = path.name if is_of_version else "table" if "items.lance" in path.parts else "others"
            found[name] = found.get(name, 0) + path.stat().st_size
    return dict(sorted(found.items()))


def measure(arguments: argparse.Namespace) -> None:
    """Measure what is not there yet, and save after every run."""
    os.environ["OMP_NUM_THREADS"] = "1"
    kept = RESULTS / f"{arguments.result}.json"
    runs = json.loads(kept.read_text(encoding="utf-8"))["runs"] if kept.exists() else []
    for n_items in arguments.sizes:
        for dim in arguments.dims:
            if any((run["items"], run["dim"]) == (n_items, dim) for run in runs):
                continue
            began = time.perf_counter()
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                run = measured(Path(folder), n_items, dim, arguments.queries, is_refined=not arguments.plain)
            runs.append({**run, "wall": round(time.perf_counter() - began, 1)})
            runs.sort(key=lambda one: (one["items"], one["dim"]))
            print(n_items, dim, runs[-1]["wall"], run["build"], flush=True)
            save_result(arguments.result, {"note": arguments.note, "threads": 1, "runs": runs})


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--dims", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--queries", type=int, default=192, help="of each way to search; at least 64")
    parser.add_argument("--plain", action="store_true", help="no refinement, and no searches")
    parser.add_argument("--folder", type=Path, help="where galleries are made, for a while")
    parser.add_argument("--result", default="unit_costs", help="name of the raw result")
    parser.add_argument("--note", default="", help="what else the machine did")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()

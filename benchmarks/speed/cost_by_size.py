"""What a larger gallery costs: every stage at every size, and the exponent that its cost grows with.

    python -m benchmarks.speed.cost_by_size --sizes 1000 10000 100000 1000000

Galleries of made-up embeddings (`ready_embeddings.py`) go the way of a user's: an index job, a refinement by
a refiner of the bundled form with random weights, searches, a calibration, a start of the service.

    build        seconds of an index job from a Parquet file: staging; neighbor lists; index and publishing
    refinement   seconds of refining all items; of their neighbor lists and index
    search       milliseconds a query, alone and in batches of 32, from ready embeddings: the index alone,
                 plain, re-ranked, with both sides refined, and both; all ways take turns
    calibration  seconds, leave-one-out and re-ranked, of 2,000 sampled queries (the default), and of every
                 item of galleries of up to `--all-queries` items
    start        seconds to open the gallery; from the start of `vicinal serve` to its first answer
    memory       most that the process of the stage held, in MiB: its own, without pages of mapped files
    disk         MiB of the gallery, its refined items among them

Every stage of every size has a process of its own. An exponent is the slope of log cost over log n, fitted by
least squares over the sizes that it names; a calibration of 2,000 queries counts from 2,000 items on.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.cost_meters import Memory, in_fresh_process
from benchmarks.common.large_gallery import write_refiner
from benchmarks.common.record import save_result
from benchmarks.speed.ready_embeddings import SPACE, index, write_embeddings
from benchmarks.speed.start_up import NAME, time_serve
from vicinal.calibration import Target
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views.refined_snapshot import write_refined
from vicinal.models.bundle import ModelBundle, default_bundle_path, space_manifest
from vicinal.models.similarity import normalize
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.search.item_spaces import open_refiner
from vicinal.service.search.pipeline import Pipeline, Refine, Rerank
from vicinal.service.search.scorer import N_DECIDED_CANDIDATES, Scorer
from vicinal.service.settings import Settings

SIZES = (1_000, 10_000, 100_000, 1_000_000)
BATCHES = (1, 32)
N_SAMPLED = 2000
N_STARTS = 3
_LIMIT = 10

Costs = dict[str, float]
Way = Callable[[FloatArray], object]


def measured(folder: Path, n_items: int, dim: int, n_queries: int, all_queries: int) -> dict[str, Any]:
    """Costs of a gallery of n items by name, and what its index is."""
    settings = Settings(data_dir=folder, bundle=default_bundle_path())
    source = folder / "embeddings.parquet"
    write_embeddings(source, n_items, dim)
    built = in_fresh_process(index, source, settings.galleries_path)
    source.unlink()
    seconds = built["seconds"]
    costs: Costs = {
        "build, staging, s": seconds["embed"],
        "build, neighbor lists, s": seconds["neighbors"],
        "build, index and publishing, s": seconds["publish"],
        "build, all, s": seconds["all"],
        "build, MiB": _mebibytes(built["peak_bytes"]["anonymous"]),
    }
    gallery = settings.galleries_path / NAME
    write_refiner(ModelBundle(folder / "refiner", space_manifest(SPACE, dim)))
    costs |= in_fresh_process(refinement, gallery, folder / "refiner")
    costs |= in_fresh_process(searches, gallery, folder / "refiner", n_queries)
    samples = {f"{N_SAMPLED:,} queries": N_SAMPLED} if n_items >= N_SAMPLED else {}
    samples |= {"every item": n_items} if n_items <= all_queries else {}
    for name, n in samples.items():
        costs |= in_fresh_process(calibration, gallery, n, name)
    starts = [time_serve(settings, dim) for _ in range(N_STARTS)]
    costs["start, first answer, s"] = statistics.median(one["first answer"] for one in starts)
    costs["start, MiB"] = statistics.median(one["anonymous"] for one in starts)
    size = sum(path.stat().st_size for path in gallery.rglob("*") if path.is_file())
    costs["disk, MiB"] = _mebibytes(size)
    return {"items": n_items, "index": built["index"], "costs": costs}


def refinement(gallery: Path, bundle: Path) -> Costs:
    """Seconds and memory of refining all items of a gallery."""
    refiner, snapshot = ContextRefiner(ModelBundle.open(bundle)), Gallery(gallery).snapshot()
    ends: list[float] = []

    def note(stage: str, done: int, total: int) -> None:
        if stage == "refine" and done == total:
            ends.append(time.perf_counter())

    started = time.perf_counter()
    with Memory() as memory:
        write_refined(snapshot, refiner, refiner.n_steps, on_progress=note)
    refined = ends[-1]
    return {
        "refinement, items, s": round(refined - started, 4),
        "refinement, lists and index, s": round(time.perf_counter() - refined, 4),
        "refinement, MiB": _mebibytes(memory.anonymous),
    }


def searches(gallery: Path, bundle: Path, n_queries: int) -> Costs:
    """Seconds of opening a gallery; milliseconds a query of every way to search it; memory of all of it."""
    refiner = ContextRefiner(ModelBundle.open(bundle))
    with Memory() as memory:
        started = time.perf_counter()
        view = GalleryReader(Gallery(gallery)).view()
        snapshot = view.snapshot
        opened = time.perf_counter() - started
        refine = Refine(sides="both", steps=refiner.n_steps, refiner=refiner.fingerprint)
        off = Rerank(method="off")
        pipelines = {
            "plain": Pipeline(refine=Refine(), rerank=off),
            "re-ranked": Pipeline(refine=Refine(), rerank=Rerank(method="contextual")),
            "refined": Pipeline(refine=refine, rerank=off),
            "refined and re-ranked": Pipeline(refine=refine, rerank=Rerank(method="contextual")),
        }
        ways: dict[str, Way] = {"index": lambda queries: view.nearest(queries, N_DECIDED_CANDIDATES)}
        for name, pipeline in pipelines.items():
            scorer = Scorer(snapshot, pipeline, open_refiner(pipeline, refiner, NAME, snapshot))
            ways[name] = partial(scorer.score, n_candidates=_LIMIT)
        spent = _in_turns(ways, _queries(snapshot.embeddings, n_queries))
    return {
        "start, opening, s": round(opened, 4),
        **{
            f"search, {name}, {'alone' if batch == 1 else f'of {batch}'}, ms": round(
                statistics.median(values) / batch, 4
            )
            for (name, batch), values in spent.items()
        },
        "search, MiB": _mebibytes(memory.anonymous),
    }


def calibration(gallery: Path, n_queries: int, name: str) -> Costs:
    """Seconds and memory of a calibration, leave-one-out, of at most so many queries."""
    snapshot = Gallery(gallery).snapshot()
    started = time.perf_counter()
    with Memory() as memory:
        calibrator = Calibrator(
            snapshot, Pipeline(rerank=Rerank(method="contextual")), most_queries=n_queries
        )
        calibrator.measure(calibrator.leave_one_out(), Target.parse("far=0.001"))
    return {
        f"calibration, {name}, s": round(time.perf_counter() - started, 3),
        f"calibration, {name}, MiB": _mebibytes(memory.anonymous),
    }


def exponents(runs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Slope of log cost over log n, with the sizes behind it, of every cost that two sizes have.

    Args:
        runs: Each with `items` and `costs`.
    """
    fitted = {}
    for name in dict.fromkeys(name for run in runs for name in run["costs"]):
        points = [(run["items"], run["costs"][name]) for run in runs if run["costs"].get(name, 0.0) > 0.0]
        if len(points) > 1:
            n, costs = np.log(np.array(points)).T
            fitted[name] = {
                "exponent": round(float(np.polyfit(n, costs, 1)[0]), 3),
                "sizes": [size for size, _ in points],
            }
    return fitted


def ratios_of(runs: list[dict[str, Any]]) -> dict[str, float]:
    """A plain search over one that does more, and one alone over one of many."""
    ratios = {}
    for run in runs:
        costs, at = run["costs"], f"{run['items']:,} items"
        for name in ("re-ranked", "refined", "refined and re-ranked"):
            share = costs["search, plain, of 32, ms"] / costs[f"search, {name}, of 32, ms"]
            ratios[f"plain over {name}, of 32, {at}"] = round(share, 4)
        ratios[f"index over refined and re-ranked, of 32, {at}"] = round(
            costs["search, index, of 32, ms"] / costs["search, refined and re-ranked, of 32, ms"], 4
        )
        ratios[f"alone over of 32, plain, {at}"] = round(
            costs["search, plain, alone, ms"] / costs["search, plain, of 32, ms"], 4
        )
    return ratios


def _queries(embeddings: FloatArray, n: int) -> FloatArray:
    """(n, d) unit vectors near items: each an item and noise of half its length."""
    rng = np.random.default_rng(1)
    items = np.asarray(embeddings[np.sort(rng.choice(len(embeddings), n))])
    noise = rng.normal(size=items.shape) / np.sqrt(items.shape[1])
    return normalize(rng.permutation(items) + 0.5 * noise)


def _in_turns(ways: dict[str, Way], queries: FloatArray) -> dict[tuple[str, int], list[float]]:
    """Milliseconds of each call by way and batch; the first turn, which loads pages, does not count."""
    spent: dict[tuple[str, int], list[float]] = {}
    for batch in BATCHES:
        for turn, part in enumerate(_batches(queries, batch)):
            for name, way in ways.items():
                began = time.perf_counter()
                way(part)
                if turn:
                    spent.setdefault((name, batch), []).append(1e3 * (time.perf_counter() - began))
    return spent


def _batches(queries: FloatArray, size: int) -> Iterator[FloatArray]:
    for start, end in pairwise(range(0, len(queries) + 1, size)):
        yield queries[start:end]


def _mebibytes(size: int) -> float:
    return round(size / 2**20, 1)


def main() -> None:
    """Measure every size, fit the exponents, and save both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--queries", type=int, default=320, help="of each way to search; at least 64")
    parser.add_argument("--all-queries", type=int, default=10_000, help="largest calibration of every item")
    parser.add_argument("--folder", type=Path, help="where galleries are made, for a while")
    parser.add_argument("--note", default="", help="what else the machine did")
    parser.add_argument("--result", default="cost_by_size", help="name of the raw result")
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    if arguments.queries < 2 * max(BATCHES):
        parser.error(f"--queries is {arguments.queries}: at least {2 * max(BATCHES)} make two batches")
    runs: list[dict[str, Any]] = []
    for n_items in sorted(arguments.sizes):
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            started = time.perf_counter()
            run = measured(Path(folder), n_items, arguments.dim, arguments.queries, arguments.all_queries)
            runs.append({**run, "seconds": round(time.perf_counter() - started, 1)})
        print(f"{n_items:,} items, {run['index']}, in {runs[-1]['seconds']} s", flush=True)
        for name, cost in run["costs"].items():
            print(f"    {name:44} {cost:12.3f}", flush=True)
        result = {
            "note": arguments.note,
            "dim": arguments.dim,
            "queries": arguments.queries,
            "runs": runs,
            "exponents": exponents(runs),
            "ratios": ratios_of(runs),
        }
        # A size can take hours: what is there is kept if the next one does not end.
        if not arguments.no_result:
            print(save_result(arguments.result, result), flush=True)
    for name, one in exponents(runs).items():
        print(f"{name:48} n^{one['exponent']:.2f}  over {', '.join(f'{n:,}' for n in one['sizes'])}")


if __name__ == "__main__":
    main()

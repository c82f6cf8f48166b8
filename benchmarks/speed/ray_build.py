"""What a build on Ray takes beside one by this process on as many cores, stage by stage and by size.

    python -m benchmarks.speed.ray_build --photos build/drawn --folder build/ray

The cluster has three nodes on this machine: this one, which computes nothing, and two with half of the cores
each. Drawn photos are embedded, compared all with all, and refined; ready embeddings are compared cell by
cell. What both make is compared too. Each build has a process of its own; processor seconds are those of all
processes of the build, which hardly see what else the machine does. `growth` is the exponent of a stage's
processor seconds between two sizes, and `extrapolated` carries the last of them on.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.common.cost_meters import in_fresh_process
from benchmarks.common.record import save_result
from benchmarks.speed.ready_embeddings import SPACE, write_embeddings
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import NeighborGraph
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import SourceItem
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.indexer.views.refined_snapshot import RefinedSnapshot, RefinementPlan
from vicinal.models.bundle import ModelBundle, default_bundle_path, space_manifest
from vicinal.models.demo_catalog import make_catalog, render_view
from vicinal.models.embedder import Embedder, SpaceEmbedder
from vicinal.models.runtime import usable_processors
from vicinal.refine.context_refiner import ContextRefiner

_PRODUCTS, _DRAWN = 1000, 24
_STORE_BYTES = 2**31
_SECONDS_BETWEEN_LOOKS = 1.0
_EXTRAPOLATED = {"photos": 1_000_000, "ready": 10_000_000}


def draw(folder: Path, n: int) -> list[SourceItem]:
    """Photos of 224 x 224 pixels of a thousand products, view by view; what is there already stays. After
    some views, which take long to draw, others are parts of these.
    """
    catalog = make_catalog(0, _PRODUCTS)
    items = []
    for number in range(n):
        view, product = number // _PRODUCTS, catalog[number % _PRODUCTS]
        path = folder / product.id / f"{view}.jpg"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            drawn = path.with_name(f"{view % _DRAWN}.jpg")
            picture = part_of(drawn, view // _DRAWN) if view >= _DRAWN else render_view(product, view)
            picture.save(path, "JPEG", quality=90)
        items.append(SourceItem(f"{product.id}/{view}", path, product.id))
    return items


def part_of(path: Path, number: int) -> Image.Image:
    """Part of a photo, another for each number, at its size."""
    picture = Image.open(path)
    width, height = picture.size
    left, top = 4 * number, 3 * number
    return picture.resize(picture.size, box=(left, top, width - left // 2, height - top // 2))


class ProcessorSeconds:
    """Processor time of this process and of all that it started, also of those that ended, while the context
    lasts; a process that lives shorter than between two looks is not seen.
    """

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._watched, daemon=True)

    def __enter__(self) -> ProcessorSeconds:
        self._look()
        self._before = sum(self._seen.values())
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()

    def lap(self) -> float:
        """Seconds since the last lap."""
        self._look()
        now = sum(self._seen.values())
        self._before, before = now, self._before
        return round(now - before, 2)

    def _watched(self) -> None:
        while not self._over.wait(_SECONDS_BETWEEN_LOOKS):
            self._look()

    def _look(self) -> None:
        parents, ticks = {}, {}
        for file in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = file.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(file.parent.name)] = int(fields[1])
            ticks[int(file.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        for pid, seconds in ticks.items():
            above = pid
            while above in parents and above != os.getpid() and above not in self._seen:
                above = parents[above]
            if above == os.getpid() or above in self._seen:
                self._seen[pid] = seconds


@contextmanager
def nodes(gallery: Gallery, *, on_ray: bool) -> Iterator[None]:
    """A cluster for a gallery's build, or none."""
    if not on_ray:
        yield
        return
    # As the process that it is compared with; Ray lets others go first.
    os.environ.update({"RAY_worker_niceness": "0"})
    from ray.cluster_utils import Cluster

    from vicinal.indexer.jobs.ray_cluster import ray_cluster

    cores = usable_processors()
    room = {"object_store_memory": _STORE_BYTES}
    cluster = Cluster(
        initialize_head=True, head_node_args={**room, "num_cpus": 0, "include_dashboard": False}
    )
    for n_cpus in (cores // 2, cores - cores // 2):
        cluster.add_node(num_cpus=n_cpus, **room)
    cluster.wait_for_nodes()
    try:
        with ray_cluster(cluster.address, "cpu") as gallery.cluster:
            yield
    finally:
        gallery.cluster = None
        cluster.shutdown()


def build(kind: str, source: Path, n: int, folder: Path, on_ray: bool) -> dict[str, Any]:
    """Seconds and processor seconds of the stages of a build of `photos` or of `ready` embeddings."""
    gallery = Gallery(folder / ("ray" if on_ray else "here") / "large")
    started, busy, wall = time.perf_counter(), dict[str, float](), dict[str, float]()
    stage = "open"

    def lap(following: str) -> None:
        nonlocal stage, started
        now = time.perf_counter()
        wall[stage], busy[stage] = round(now - started, 2), meter.lap()
        started, stage = now, following

    def found(*arguments: Any, **more: Any) -> NeighborGraph:
        lap("neighbors")
        graph = find(*arguments, **more)
        lap("publish")
        return graph

    with ProcessorSeconds() as meter, nodes(gallery, on_ray=on_ray):
        items: list[SourceItem] | EmbeddingSource
        if kind == "photos":
            items = draw(source, n)
            bundle = ModelBundle.open(default_bundle_path())
            embedder = Embedder(bundle, device="cpu")
        else:
            items = EmbeddingSource.open(source)
            manifest = space_manifest(SPACE, items.dim)
            embedder = SpaceEmbedder(ModelBundle(gallery.space_path, manifest), gallery.name)
        find = gallery.neighbors
        vars(gallery)["neighbors"] = found
        lap("embed")
        index_items(gallery, items, embedder)
        if kind == "photos":
            lap("refine")
            refinement(gallery, embedder.bundle).apply(gallery.snapshot(), cluster=gallery.cluster)
        lap("end")
    return {"seconds": wall, "processor_seconds": busy}


def refinement(gallery: Gallery, bundle: ModelBundle) -> RefinementPlan:
    """All steps of the bundle's refiner."""
    del gallery
    refiner = ContextRefiner(bundle)
    return RefinementPlan(refiner, refiner.n_steps)


def compared(kind: str, folder: Path) -> dict[str, Any]:
    """How far both galleries are the same."""
    here, there = (Gallery(folder / name / "large").snapshot() for name in ("here", "ray"))
    pairs = [(here.embeddings, there.embeddings, here.neighbor_ids, there.neighbor_ids)]
    if kind == "photos":
        plan = refinement(Gallery(folder / "here" / "large"), ModelBundle.open(default_bundle_path()))
        key = plan.refiner.fingerprint, plan.n_steps
        refined = [RefinedSnapshot.open(one, *key) for one in (here, there)]
        graphs = [np.load(one.path / "neighbor_ids.npy", mmap_mode="r") for one in refined if one]
        pairs += [(*(one.embeddings for one in refined if one), *graphs)]
    return {
        "same_ids": here.item_table["id"] == there.item_table["id"],
        "largest_difference": [float(np.abs(one[0] - one[1]).max()) for one in pairs],
        "share_of_same_lists": [float((one[2] == one[3]).all(axis=1).mean()) for one in pairs],
        "share_of_same_neighbors": [float((one[2] == one[3]).mean()) for one in pairs],
    }


def growth_of(runs: list[dict[str, Any]], engine: str) -> dict[str, Any]:
    """Exponents of the stages between the two largest sizes, and seconds that they lead to."""
    kind, (small, large) = runs[-1]["kind"], runs[-2:]
    told: dict[str, Any] = {"between": [small["items"], large["items"]], "exponent": {}}
    target = _EXTRAPOLATED[kind]
    told["extrapolated"] = {"items": target, "processor_seconds": {}}
    for stage, seconds in large[engine]["processor_seconds"].items():
        before = small[engine]["processor_seconds"].get(stage, 0)
        if min(before, seconds) > 0.5:
            exponent = math.log(seconds / before) / math.log(large["items"] / small["items"])
            told["exponent"][stage] = round(exponent, 2)
            further = seconds * (target / large["items"]) ** exponent
            told["extrapolated"]["processor_seconds"][stage] = round(further, 1)
    return told


def main() -> None:
    """Build every size on both, compare, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--photos", type=Path, default=Path("build/drawn"), help="drawn ones are kept there")
    parser.add_argument("--folder", type=Path, default=Path("build/ray"))
    parser.add_argument("--n-photos", type=int, nargs="*", default=[1000, 4000, 20_000])
    parser.add_argument("--n-ready", type=int, nargs="*", default=[250_000, 1_000_000])
    parser.add_argument("--dim", type=int, default=128, help="length of the ready embeddings")
    parser.add_argument("--note", default="", help="what else the machine did")
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    runs: list[dict[str, Any]] = []
    # In turns, the small ones first: what is saved in between is of use whenever it is stopped.
    turns = zip_longest(arguments.n_photos, arguments.n_ready)
    sizes = [one for turn in turns for one in zip(_EXTRAPOLATED, turn, strict=True) if one[1]]
    for kind, n in sizes:
        shutil.rmtree(arguments.folder, ignore_errors=True)
        arguments.folder.mkdir(parents=True)
        source = arguments.photos
        if kind == "photos":
            draw(source, n)
        else:
            source = arguments.folder / "ready.parquet"
            write_embeddings(source, n, arguments.dim)
        run: dict[str, Any] = {"kind": kind, "items": n, "load_before": os.getloadavg()[0]}
        for engine in ("here", "ray"):
            run[engine] = in_fresh_process(build, kind, source, n, arguments.folder, engine == "ray")
        run["compared"] = in_fresh_process(compared, kind, arguments.folder)
        run["load_after"] = os.getloadavg()[0]
        runs.append(run)
        print(run, flush=True)
        if not arguments.no_result:
            # After each, since the largest take hours on a small machine.
            given = {"note": arguments.note, "cores": usable_processors(), "dim": arguments.dim}
            save_result(
                "ray_build", {**given, "runs": runs, "growth": grown(runs), "ratios": ratios_of(runs)}
            )
    shutil.rmtree(arguments.folder, ignore_errors=True)


def grown(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """`growth_of` each kind that was built in two sizes."""
    by_kind = {kind: [run for run in runs if run["kind"] == kind] for kind in _EXTRAPOLATED}
    return {
        f"{kind}, {engine}": growth_of(some, engine)
        for kind, some in by_kind.items()
        for engine in ("here", "ray")
        if len(some) > 1
    }


def ratios_of(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Processor seconds on Ray over those here."""
    return {
        f"{stage} on Ray over here, {run['items']:,} {run['kind']}": round(
            run["ray"]["processor_seconds"][stage] / max(seconds, 0.01), 3
        )
        for run in runs
        for stage, seconds in run["here"]["processor_seconds"].items()
        if stage in ("embed", "neighbors", "publish", "refine")
    }


if __name__ == "__main__":
    main()

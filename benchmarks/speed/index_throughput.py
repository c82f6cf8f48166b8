"""Whether decoding and thumbnails overlap with the network while a gallery of photos is indexed.

Three rates over the same photos in one run: preparing alone, embedding alone, and the index job. With two
threads of work on two cores the job should take little longer than the slower of the two.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.common.record import save_result
from benchmarks.quality.protocol_data import extract_part
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.jobs.preparation import prepare_item
from vicinal.indexer.sources import SourceItem, read_source
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder

N_PHOTOS = 2000


def photos(data: Path, folder: Path) -> list[SourceItem]:
    """2,000 different photos of the grocery set, all roles."""
    items = []
    for split in ("calibration", "test"):
        part = extract_part(data / "grocery", split, folder / split)
        items += read_source(part.gallery) + read_source(part.queries)
    return items[:N_PHOTOS]


def rate(n: int, started: float) -> float:
    """Photos a second since `started`, a reading of `time.perf_counter`."""
    return round(n / (time.perf_counter() - started), 1)


def measure(items: list[SourceItem], embedder: Embedder, folder: Path, workers: int) -> dict[str, float]:
    """Photos a second: prepared alone, embedded alone, and in the index job.

    Args:
        items: The photos.
        embedder: Embedder of the bundle.
        folder: Where the gallery is written.
        workers: Threads that prepare photos.
    """
    started = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        prepared = list(pool.map(lambda item: prepare_item(item, embedder), items))
    rates = {"prepare_alone": rate(len(items), started)}
    started = time.perf_counter()
    embedder.infer([one.tensor for one in prepared])
    rates["embed_alone"] = rate(len(items), started)
    del prepared
    result = index_items(Gallery(folder / "gallery"), items, embedder, workers=workers)
    rates["index_job"] = round(len(items) / result.seconds["embed"], 1)
    rates["one_after_the_other"] = round(1 / (1 / rates["prepare_alone"] + 1 / rates["embed_alone"]), 1)
    rates["share_of_slower"] = round(
        rates["index_job"] / min(rates["prepare_alone"], rates["embed_alone"]), 3
    )
    return rates


def main() -> None:
    """Measure three rounds over the same photos, and save them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the grocery set")
    parser.add_argument("--bundle", type=Path, default=default_bundle_path())
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="threads of ONNX Runtime")
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    embedder = Embedder(ModelBundle.open(arguments.bundle), device="cpu", threads=arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        items = photos(arguments.data, Path(folder))
        rounds = [
            measure(items, embedder, Path(folder) / f"round-{turn}", arguments.workers) for turn in range(3)
        ]
    for one in rounds:
        print(one)
    circumstances = {
        "photos": len(items),
        "bundle": embedder.bundle.name,
        "workers": arguments.workers,
        "threads": arguments.threads,
    }
    share = float(np.median([one["share_of_slower"] for one in rounds]))
    result = {**circumstances, "images_per_second": rounds, "ratios": {"job over the slower part": share}}
    if not arguments.no_result:
        print(save_result("index_throughput", result))


if __name__ == "__main__":
    main()

"""What an index job takes beside decoding and embedding its photos, and whether these overlap.

Three rates over the same photos in one run: preparing alone, embedding alone, and the index job. With two
threads of work on two cores the job should take little longer than the slower of the two. Beside them the
processor time of the whole job, from files to a version that is searched, over that of reading, decoding and
embedding the same photos and nothing else. `--side 1600` makes the photos as large as those of a shop.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.common.record import save_result
from benchmarks.quality.protocol_data import extract_part
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.jobs.preparation import prepare_item
from vicinal.indexer.sources import SourceItem, read_file, read_source
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.decoding import DecodeLimits
from vicinal.models.embedder import Embedder

N_PHOTOS = 2000
# Photos that are decoded, then embedded together, where nothing else is done with them.
_AT_ONCE = 64


def photos(data: Path, folder: Path) -> list[SourceItem]:
    """2,000 different photos of the grocery set, all roles."""
    items = []
    for split in ("calibration", "test"):
        part = extract_part(data / "grocery", split, folder / split)
        items += read_source(part.gallery) + read_source(part.queries)
    return items[:N_PHOTOS]


def enlarged(items: list[SourceItem], side: int, folder: Path, limits: DecodeLimits) -> list[SourceItem]:
    """The same photos as files whose longer side has so many pixels."""
    folder.mkdir()
    larger = []
    for number, item in enumerate(items):
        path = folder / f"{number:05d}.jpg"
        with Image.open(io.BytesIO(read_file(item.path, limits))) as photo:
            photo = photo.convert("RGB")
            scale = side / max(photo.size)
            size = (round(scale * photo.width), round(scale * photo.height))
            photo.resize(size, Image.Resampling.BICUBIC).save(path, quality=90)
        larger.append(replace(item, path=path))
    return larger


def rate(n: int, started: float) -> float:
    """Photos a second since `started`, a reading of `time.perf_counter`."""
    return round(n / (time.perf_counter() - started), 1)


def milliseconds(n: int, started: float) -> float:
    """Milliseconds of the processor a photo since `started`, a reading of `time.process_time`."""
    return round(1e3 * (time.process_time() - started) / n, 3)


def measure(items: list[SourceItem], embedder: Embedder, folder: Path, workers: int) -> dict[str, float]:
    """Photos a second: prepared alone, embedded alone, and in the index job; milliseconds of the processor.

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
    started = time.process_time()
    for start in range(0, len(items), _AT_ONCE):
        tensors = []
        for item in items[start : start + _AT_ONCE]:
            with embedder.decoding(read_file(item.path, embedder.limits)) as image:
                tensors.append(embedder.prepare(image))
        embedder.infer(tensors)
    rates["alone_processor_ms"] = milliseconds(len(items), started)
    started = time.process_time()
    result = index_items(Gallery(folder / "gallery"), items, embedder, workers=workers)
    rates["job_processor_ms"] = milliseconds(len(items), started)
    rates["job_over_alone"] = round(rates["job_processor_ms"] / rates["alone_processor_ms"], 3)
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
    parser.add_argument("--side", type=int, help="pixels of the photos' longer side; as they are without it")
    parser.add_argument("--result", default="index_throughput", help="name of the raw result")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    embedder = Embedder(ModelBundle.open(arguments.bundle), device="cpu", threads=arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        items = photos(arguments.data, Path(folder))
        if arguments.side is not None:
            items = enlarged(items, arguments.side, Path(folder) / "enlarged", embedder.limits)
        rounds = [
            measure(items, embedder, Path(folder) / f"round-{turn}", arguments.workers)
            for turn in range(arguments.rounds)
        ]
    for one in rounds:
        print(one)
    circumstances = {
        "photos": len(items),
        "bundle": embedder.bundle.name,
        "workers": arguments.workers,
        "threads": arguments.threads,
    }
    ratios = {
        name: float(np.median([one[key] for one in rounds]))
        for name, key in (
            ("job over the slower part", "share_of_slower"),
            ("processor time of the job over decoding and embedding alone", "job_over_alone"),
        )
    }
    if not arguments.no_result:
        print(save_result(arguments.result, {**circumstances, "images_per_second": rounds, "ratios": ratios}))


if __name__ == "__main__":
    main()

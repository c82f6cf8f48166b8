"""Searches at a steady rate while a re-index makes a new version and versions are swapped under them.

A client sends ready embeddings over loopback at fixed times, whether or not the answer before has come, and
counts the time from when a search was due. Three phases: `before` nothing else happens; `during` a job embeds
a folder of images anew, makes and activates a version, and then the old and the new version are activated in
turn; `after` nothing else again. The new version has other pictures under the same ids, so that afterwards
every similarity of an answer tells which version it came from; it must be the version that the answer names.

Ways of running the job: `server`: in the server's process; `worker`: `vicinal worker` beside it; `one
thread`: that with one thread each for network and products; `nice`: that at the lowest priority.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

from benchmarks.common.record import percentiles, save_result
from benchmarks.common.server_process import running_server
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder

NAME = "swapped"
SEARCH = f"/v1/galleries/{NAME}/search"
N_LABELS = 20
TOLERANCE = 1e-5
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "VICINAL_THREADS": "1"}
WAYS = ("server", "worker", "one thread", "nice")


@dataclass
class Load:
    """Searches at a steady rate.

    Attributes:
        client: Client of the server.
        queries: (q, d) embeddings, sent in turn.
        rate: Searches a second.
        spent: Milliseconds from when a search was due to its answer, by phase.
        answers: Version and (query, id, similarity) of every match, by answer.
        failures: What was not answered with 200.
        phase: Where the present searches are counted.
    """

    client: httpx.Client
    queries: FloatArray
    rate: float
    spent: dict[str, list[float]] = field(default_factory=dict)
    answers: list[tuple[int, list[tuple[int, str, float]]]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    phase: str = "warm up"

    def run(self, stop: threading.Event) -> None:
        """Send searches until told to stop."""
        start = time.perf_counter()
        with ThreadPoolExecutor(16) as pool:
            for number in range(1_000_000):
                due = start + number / self.rate
                if stop.wait(max(0.0, due - time.perf_counter())):
                    return
                pool.submit(self._search, number % len(self.queries), due, self.phase)

    def _search(self, number: int, due: float, phase: str) -> None:
        body = {"embedding": self.queries[number].tolist(), "threshold": 0.0, "limit": 10}
        try:
            answer = self.client.post(SEARCH, json=body).raise_for_status().json()
        except httpx.HTTPError as error:
            self.failures.append(f"{phase}: {error!r}")
            return
        self.spent.setdefault(phase, []).append(1e3 * (time.perf_counter() - due))
        matches = [(number, match["id"], match["initial_similarity"]) for match in answer["matches"]]
        self.answers.append((answer["version"], matches))


def draw(folder: Path, n: int, seed: int) -> None:
    """Write n drawn photos of 256 x 256 pixels, in one folder a label."""
    rng = np.random.default_rng(seed)
    for number in range(n):
        path = folder / f"label {number % N_LABELS}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((256, 256), Image.Resampling.BICUBIC).save(path)


def n_wrong(gallery: Gallery, load: Load) -> int:
    """Answers with a similarity that is not the one of the version that they name."""
    vectors: dict[int, dict[str, FloatArray]] = {}
    wrong = 0
    for version, matches in load.answers:
        if version not in vectors:
            built = gallery.snapshot(version)
            ids = built.item_table["id"].to_pylist()
            vectors[version] = dict(zip(ids, np.asarray(built.embeddings), strict=True))
        own = vectors[version]
        wrong += any(abs(own[name] @ load.queries[q] - cosine) > TOLERANCE for q, name, cosine in matches)
    return wrong


@contextmanager
def worker(data_dir: Path, bundle: Path, way: str) -> Iterator[None]:
    """Run a worker while the context lasts, as the way says; none for `server`, which works itself."""
    if way == "server":
        yield
        return
    command = [
        sys.executable,
        "-m",
        "vicinal",
        "worker",
        "--data-dir",
        str(data_dir),
        "--bundle",
        str(bundle),
    ]
    variables = {**os.environ, **environment(data_dir), **(ONE_THREAD if way != "worker" else {})}
    lowered = ["nice", "-n", "19"] if way == "nice" else []
    with subprocess.Popen([*lowered, *command], env=variables) as process:
        try:
            yield
        finally:
            process.terminate()


def environment(data_dir: Path) -> dict[str, str]:
    """Variables of the server and of the worker; nothing is refined, so that answers show plain cosines."""
    sources = {"VICINAL_SOURCES_DIR": str(data_dir.parent), "VICINAL_REFINE": "off"}
    return {**sources, "VICINAL_JOB_HEARTBEAT_SECONDS": "5"}


def swap(client: httpx.Client, turns: int) -> list[int]:
    """Re-index, and activate the old and the new version in turn; the versions."""
    old = client.get(f"/v1/galleries/{NAME}").raise_for_status().json()["version"]
    body = {"source": "new", "prefix": "", "on_conflict": "replace", "activate": "manual"}
    job = client.post(f"/v1/admin/galleries/{NAME}/reindex", json=body).raise_for_status().json()
    while job["state"] in ("queued", "running"):
        time.sleep(0.5)
        job = client.get(f"/v1/jobs/{job['id']}").raise_for_status().json()
    if job["state"] != "succeeded":
        raise RuntimeError(f"the job {job['state']}: {job['problem']}")
    new = job["result"]["version"]
    for version in (new, *[old, new] * turns):
        client.post(f"/v1/galleries/{NAME}/versions/{version}/activate").raise_for_status()
        time.sleep(1.0)
    return [old, new]


def measure(folder: Path, way: str, arguments: argparse.Namespace) -> dict[str, object]:
    """Swap versions under load in one way: times by phase, failures, and answers of a wrong version."""
    data_dir, bundle = folder / f"data {way}", default_bundle_path()
    gallery = Gallery(data_dir / "galleries" / NAME)
    index_items(gallery, read_source(folder / "old"), Embedder(ModelBundle.open(bundle), device="cpu"))
    queries = np.asarray(gallery.snapshot().embeddings)[:: max(1, arguments.items // 64)].copy()
    variables = {**environment(data_dir), "VICINAL_RUN_JOBS": str(way == "server").lower()}
    with (
        running_server(data_dir, bundle, variables) as (url, _),
        worker(data_dir, bundle, way),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        load, stop = Load(client, queries, arguments.rate), threading.Event()
        sender = threading.Thread(target=load.run, args=(stop,))
        sender.start()
        time.sleep(arguments.warm_up)
        load.phase = "before"
        time.sleep(arguments.seconds)
        load.phase, started = "during", time.perf_counter()
        versions = swap(client, turns=arguments.turns)
        swapped = round(time.perf_counter() - started, 1)
        load.phase = "after"
        time.sleep(arguments.seconds / 2)
        stop.set()
        sender.join()
    tails = {phase: percentiles(spent) for phase, spent in load.spent.items()}
    return {
        "seconds_during": swapped,
        "versions": versions,
        "answers": len(load.answers),
        "answers_by_version": {v: sum(one == v for one, _ in load.answers) for v in versions},
        "failed": load.failures,
        "wrong_version": n_wrong(gallery, load),
        "milliseconds": tails,
        "p99_ratio": round(tails["during"]["p99"] / tails["before"]["p99"], 2),
        "p50_before_over_during": round(tails["before"]["p50"] / tails["during"]["p50"], 3),
        "raw_milliseconds": {phase: [round(v, 2) for v in spent] for phase, spent in load.spent.items()},
    }


def main() -> None:
    """Measure each way on the same photos, and save raw times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=600)
    parser.add_argument("--rate", type=float, default=10.0, help="searches a second")
    parser.add_argument("--seconds", type=float, default=40.0, help="length of the phase before")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--turns", type=int, default=3, help="activations of the old and the new version")
    parser.add_argument("--warm-up", type=float, default=5.0, help="seconds that do not count")
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw(folder / "old", arguments.items, seed=0)
        draw(folder / "new", arguments.items, seed=1)
        ways = {way: measure(folder, way, arguments) for way in arguments.ways}
    for way, row in ways.items():
        shown = {key: row[key] for key in ("milliseconds", "p99_ratio", "wrong_version", "seconds_during")}
        print(f"{way:12} {len(row['failed'])} failed, {shown}")
    result = {
        "items": arguments.items,
        "rate": arguments.rate,
        "load_average": os.getloadavg(),
        "ways": ways,
        # A few answers decide the 99th percentile, which differs from run to run by more than that.
        "ratios": {
            f"median before over during, {way}": row["p50_before_over_during"] for way, row in ways.items()
        },
    }
    if not arguments.no_result:
        print(save_result("swap_under_load", result))


if __name__ == "__main__":
    main()

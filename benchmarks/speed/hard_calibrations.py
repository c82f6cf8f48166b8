"""Calibrations that took far longer than their size lets expect, beside an older state of the project.

    python -m benchmarks.speed.hard_calibrations --against CHECKOUT --rounds 3

Made-up embeddings: of a model that tells nothing apart (all cosines near .99), of one dominant label, and
long ones that are all equally far from each other; beside them usual ones. Both states take turns, each
calibration in a process of its own. The older one has the same packages and its own `src`. A digest of the
record, its scores, curves and points tells whether both found the same, bit for bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from benchmarks.common.large_gallery import labelled_vectors
from benchmarks.common.record import save_result
from benchmarks.speed.calibration_memory import write
from vicinal.calibration import Target
from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.similarity import normalize
from vicinal.service.measuring.calibrator import Calibration, Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.search.pipeline import Pipeline, Rerank


def weak_model(n: int = 1203, dim: int = 256) -> tuple[FloatArray, Ints]:
    """(n, dim) unit rows whose cosines are all near .99, rounded, in labels of 4 to 10."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(n), rng.integers(4, 11, n))[:n]
    common, centers, noise = (
        rng.normal(size=(rows, dim)) / np.sqrt(dim) for rows in (1, int(labels[-1]) + 1, n)
    )
    return normalize(np.round(common + 0.06 * centers[labels] + 0.08 * noise, 3)), labels


def dominant_label(n: int = 1600, n_pairs: int = 60, dim: int = 256) -> tuple[FloatArray, Ints]:
    """(n + 2 n_pairs, dim) unit rows of one label and of pairs."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.zeros(n, np.int64), 1 + np.arange(2 * n_pairs) // 2])
    centers = rng.normal(size=(n_pairs + 1, dim))
    return normalize(centers[labels] + 1.1 * rng.normal(size=(len(labels), dim))), labels


def long_embeddings() -> tuple[FloatArray, Ints]:
    """(200, 4096) unit rows in labels of five."""
    return labelled_vectors(200, 4096, per_label=5)


def usual() -> tuple[FloatArray, Ints]:
    """(2000, 256) unit rows in labels of five."""
    return labelled_vectors(2000, 256, per_label=5)


GALLERIES = {"weak": weak_model, "dominant": dominant_label, "long": long_embeddings, "usual": usual}
# Gallery, re-ranking and most queries. Of the weak model's the older state would take ten minutes with all of
# them: what both take for some is compared, and what the present one takes for all stands beside it.
CASES = (
    "long contextual 2000",
    "dominant off 2000",
    "usual off 2000",
    "usual contextual 2000",
    "weak off 2000",
    "weak contextual 100",
)
ALONE = ("weak contextual 2000",)


def calibrate(path: Path, method: str, n_queries: int) -> dict[str, Any]:
    """Calibrate in this process, and say what it took and found."""
    snapshot, pipeline = Snapshot.open(path), Pipeline(rerank=Rerank.model_validate({"method": method}))
    started, busy = time.perf_counter(), time.process_time()
    calibrator = Calibrator(snapshot, pipeline, most_queries=n_queries)
    found = calibrator.measure(LabelledQueries.leave_one_out(snapshot), Target.parse("fpir=5%"))
    return {
        "wall_seconds": round(time.perf_counter() - started, 2),
        "processor_seconds": round(time.process_time() - busy, 2),
        "threshold": found.record.threshold,
        "digest": _digest(found),
    }


def _digest(found: Calibration) -> str:
    record = found.record.model_dump(mode="json", exclude={"id", "created_at"})
    parts = [record, *(vars(part) for part in (found.scores, found.curves, found.points))]
    digest = hashlib.sha256()
    for text in _texts(parts):
        digest.update(text)
    return digest.hexdigest()


def _texts(value: Any) -> Iterator[bytes]:
    """All that a nested value holds."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        yield value.tobytes()
    elif isinstance(value, BaseModel):
        yield value.model_dump_json().encode()
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _texts(vars(value))
    elif isinstance(value, dict):
        for name, one in sorted(value.items(), key=lambda pair: str(pair[0])):
            yield str(name).encode()
            yield from _texts(one)
    elif isinstance(value, (list, tuple, np.ndarray)):
        for one in value:
            yield from _texts(one)
    else:
        yield repr(value).encode()


def _in_checkout(checkout: Path, path: Path, method: str, n_queries: int) -> dict[str, Any]:
    """The same in a process that imports another checkout."""
    command = [sys.executable, "-P", __file__, "--gallery", str(path), method, str(n_queries)]
    paths = [checkout / "src", checkout / "client" / "src", Path(__file__).parents[2]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure every case, in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="checkout of an older state")
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--alone", nargs="*", default=ALONE, help="cases of the present state only")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--result", default="hard_calibrations", help="name of the raw result")
    parser.add_argument("--gallery", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    if arguments.gallery:
        path, method, n_queries = arguments.gallery
        print(json.dumps(calibrate(Path(path), method, int(n_queries))))
        return
    states = {"after": Path(__file__).parents[2]}
    if arguments.against is not None:
        states = {"before": arguments.against, **states}
    cases: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in (*arguments.cases, *arguments.alone):
            name, method, n_queries = case.split()
            path = Path(folder) / name
            if not path.exists():
                embeddings, labels = GALLERIES[name]()
                write(path, embeddings, labels, build_neighbor_graph(embeddings))
            compared = ["after"] if case in arguments.alone else [*states]
            runs: dict[str, list[dict[str, Any]]] = {state: [] for state in compared}
            for _ in range(arguments.rounds):
                for state in runs:
                    runs[state].append(_in_checkout(states[state], path, method, int(n_queries)))
                    print(case, state, runs[state][-1], flush=True)
            digests = {one["digest"] for found in runs.values() for one in found}
            medians = {
                state: statistics.median(one["processor_seconds"] for one in found)
                for state, found in runs.items()
            }
            cases[case] = {"processor_seconds": medians, "are_equal": len(digests) == 1, "runs": runs}
            print(case, medians, "equal" if len(digests) == 1 else "NOT EQUAL", flush=True)
    if not arguments.no_result:
        print(save_result(arguments.result, {"rounds": arguments.rounds, "cases": cases}))


if __name__ == "__main__":
    main()

"""Whether the re-ranking that a calibration takes is right for photos of another day.

Galleries of some labels are drawn as in `another_day`, of the groceries, the dogs and the characters. A
calibration tries re-ranking on each gallery alone, as it does where nobody chose how to re-rank. Then photos
of the same labels from another day, and of other labels, are searched for: FNIR where FPIR is 5 % on them.
No test class is used, and nothing is refined. Characters have no days: half of each label's pictures are
searched for.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.common.record import save_result
from benchmarks.quality.another_day import Photos, galleries, snapshot_of
from vicinal.calibration import Target
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.rerank_trial import try_reranks
from vicinal.service.measuring.visits import Visits
from vicinal.service.search.pipeline import Pipeline, Rerank
from vicinal.service.search.scorer import Scorer

TARGET = Target(rate="fpir", value=0.05)
WAYS = {"off": Rerank(), **{f"k {k}": Rerank(k=k) for k in (4, 8, 16)}}
_SETS = ("grocery", "dogfacenet", "omniglot")

# Embeddings and labels of the items, of photos of another day, and embeddings of those of other labels.
Drawn = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def of_photos(name: str, photos: Photos, n: int, seed: int) -> Iterator[Drawn]:
    """Galleries of real photos."""
    drawn = halves(photos, n, seed) if name == "omniglot" else galleries(name, photos, n, seed)
    for items, later, absent in drawn:
        rows, labels = photos.embeddings, photos.labels
        yield rows[items], labels[items], rows[later], labels[later], rows[absent]


def halves(photos: Photos, n: int, seed: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Up to ten pictures of some labels, the rest of theirs, and pictures of other labels."""
    rng = np.random.default_rng(seed)
    labels = np.unique(photos.labels)
    for _ in range(n):
        drawn = rng.permutation(labels)
        known = drawn[: rng.integers(len(labels) // 6, len(labels) // 2)]
        absent = np.isin(photos.labels, drawn[len(labels) // 2 :]) & (rng.random(len(photos.labels)) < 0.2)
        places = [rng.permutation(np.flatnonzero(photos.labels == label)) for label in known]
        size = rng.choice([4, 6, 10])
        items, later = (
            np.concatenate(part) for part in zip(*((p[:size], p[10:]) for p in places), strict=True)
        )
        yield items, later, np.flatnonzero(absent)


def measure(snapshot: Snapshot, later: np.ndarray, labels: np.ndarray, absent: np.ndarray) -> dict:
    """What a trial takes, and what each way to re-rank shows on another day."""
    unknown = Visits("auto", np.full(len(snapshot), None, dtype=object), are_told=False)
    calibrator = Calibrator(snapshot, Pipeline(), visits=unknown)
    started = time.perf_counter()
    trial = try_reranks(calibrator, calibrator.leave_one_out(), TARGET)
    seconds = time.perf_counter() - started
    assert trial is not None
    chosen = next(name for name, way in WAYS.items() if way == trial.chosen)
    shown = {}
    for name, way in WAYS.items():
        scorer = Scorer(snapshot, Pipeline(rerank=way))
        found = scorer.score(later, min(len(snapshot), 100))
        is_mate = (snapshot.labels[found.positions] == labels[:, None]) & (found.positions >= 0)
        best = np.where(is_mate, found.scores, -np.inf).max(axis=1)
        strangers = np.sort(scorer.score(absent, 1).scores[:, 0])[::-1]
        shown[name] = float((best <= strangers[int(TARGET.value * len(strangers))]).mean())
    n_labels = len(set(snapshot.labels))
    return {
        "chosen": chosen,
        "seconds": seconds,
        "n_items": len(snapshot),
        "n_labels": n_labels,
        "shown": shown,
    }


def main() -> None:
    """Measure all sets, print means, and save every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--galleries", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    embedder = Embedder(ModelBundle.open(default_bundle_path()), device="cpu", threads=1)
    rows: list[dict] = []
    for name in _SETS:
        # The refiner of the bundled model has learned from the training part of the characters.
        splits = ("calibration",) if name == "omniglot" else ("train", "calibration")
        photos = Photos(arguments.data / name, embedder, splits)
        drawn = of_photos(name, photos, arguments.galleries, arguments.seed)
        for items, own, later, labels, absent in drawn:
            with tempfile.TemporaryDirectory() as folder:
                found = measure(snapshot_of(Path(folder) / "1", items, own), later, labels, absent)
            rows.append({"set": name, **found})
        show([row for row in rows if row["set"] == name])
    print(
        save_result("rerank_trial", {"galleries": arguments.galleries, "seed": arguments.seed, "rows": rows})
    )


def show(rows: list[dict]) -> None:
    """Print what was taken, and the mean of each way."""
    taken = {name: sum(row["chosen"] == name for row in rows) for name in WAYS}
    print(f"{rows[0]['set']}: taken {taken}, {np.mean([row['seconds'] for row in rows]):.1f} s")
    for name in [*WAYS, "taken"]:
        each = [row["shown"][row["chosen"] if name == "taken" else name] for row in rows]
        print(f"  {name}: FNIR {np.mean(each):.3f}", flush=True)


if __name__ == "__main__":
    main()

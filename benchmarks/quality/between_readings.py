"""Which threshold between the two readings of a leave-one-out calibration, on photos of another day.

Galleries of some of the calibration classes of each image set are drawn at random and calibrated by leaving
one out, as `vicinal calibrate` does where nothing tells which photos were taken together. Then photos of
another occasion of the same labels, and of labels that the gallery lacks, are searched for. Compared are

- `strict`: the threshold at which both readings hold the target; `apart`: that of the one that accepts more;
- `mean`: the one at which the mean of both rates holds it;
- `bundle`: the model's own; `clipped`: that, as far as it lies between `apart` and `strict`;
- `in force`: what a calibration takes (`service.measuring.evidence.ThresholdChoice`);
- `right`: the one that holds the target on the searched photos themselves, which nobody can know.

No test class is used: `protocol_search.py --leave-one-out` tries what was chosen here on those.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common.record import save_result
from benchmarks.quality.another_day import snapshot_of
from vicinal.calibration import Target
from vicinal.calibration.targets import lowest_threshold
from vicinal.indexer.views.refined_snapshot import write_refined
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.evidence import Apart
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.records.record import promised_range
from vicinal.service.measuring.visits import Visits, look_alikes
from vicinal.service.search.item_spaces import open_refiner
from vicinal.service.search.pipeline import Pipeline, service_pipeline, starting_threshold
from vicinal.training.datasets.layouts.protocol import ProtocolConfig

SETS = ("grocery", "dogfacenet", "omniglot")
TARGET = Target(rate="fpir", value=0.05)
_ROLES = ("gallery", "query", "absent", "unused")
_BATCH = 64


@dataclass(frozen=True)
class Photos:
    """Photos of calibration classes: (n, d) embeddings, labels, and whether each is of a later occasion."""

    embeddings: np.ndarray
    labels: np.ndarray
    is_later: np.ndarray

    @classmethod
    def read(cls, root: Path, embedder: Embedder) -> Photos:
        """Embed them. Of the groceries the official test half is another visit to the shop; of the others the
        queries are what the protocol keeps apart from the gallery.
        """
        embedded, labels, is_later = [], [], []
        for role in _ROLES:
            part = ProtocolConfig(kind="protocol", root=root, split="calibration", roles=(role,))
            rows = part.rows()
            with part.open() as read:
                for start in range(0, len(rows), _BATCH):
                    images = [embedder.decode(read(row)) for row in rows[start : start + _BATCH]]
                    embedded.append(
                        embedder.finish(embedder.infer([embedder.prepare(one) for one in images]))
                    )
            labels += [row.label for row in rows]
            by_path = root.name == "grocery"
            is_later += [row.path.startswith("test/") if by_path else role != "gallery" for row in rows]
        return cls(np.concatenate(embedded), np.array(labels, dtype=object), np.array(is_later))

    def galleries(self, n: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Positions of items, of later photos of their labels, and of later photos of other labels."""
        rng, possible = np.random.default_rng(seed), np.unique(self.labels[~self.is_later])
        for _ in range(n):
            least = len(possible) // 2 if len(possible) < 30 else len(possible) // 3
            known = rng.permutation(possible)[: rng.integers(least, 9 * len(possible) // 10)]
            is_known = np.isin(self.labels, known)
            yield tuple(
                np.flatnonzero(chosen)
                for chosen in (is_known & ~self.is_later, is_known & self.is_later, ~is_known & self.is_later)
            )


def try_gallery(
    snapshot: Snapshot, queries: LabelledQueries, bundle: ModelBundle, pipeline: Pipeline
) -> dict:
    """Rates by the way a threshold is chosen, and what the calibration promises of its own."""
    refiner = ContextRefiner(bundle)
    write_refined(snapshot, refiner, pipeline.refine.steps)
    unknown = Visits("auto", np.full(len(snapshot), None, dtype=object), are_told=False)
    starting = starting_threshold(bundle, pipeline)
    refinement = open_refiner(pipeline, refiner, "drawn", snapshot)
    calibrator = Calibrator(snapshot, pipeline, visits=unknown, refinement=refinement, starting=starting)
    items = calibrator.leave_one_out()
    measured = calibrator.score(items, lambda *_: None)
    record = calibrator.calibration(items, measured, TARGET).record
    apart = lowest_threshold(Apart.of(measured, look_alikes(snapshot, unknown)).strangers, TARGET.value)
    trials = calibrator.score(queries, lambda *_: None).trials
    known, strangers = trials.best_mate_scores, trials.best_scores_without_mate
    chosen, band = record.evidence.chosen, record.evidence.unsure
    thresholds = {
        "strict": chosen.strict,
        "apart": apart,
        "mean": chosen.mean,
        "bundle": starting,
        "clipped": min(max(starting, apart), chosen.strict),
        "in force": record.threshold,
        "right": lowest_threshold(strangers, TARGET.value),
    }
    lowest = record.threshold if band is None else band.lowest
    shown = {
        "fnir": float((known < record.threshold).mean()),
        "fpir": float((strangers >= record.threshold).mean()),
    }
    promised = {name: promised_range(record, name) for name in shown}
    return {
        "labels": len(set(snapshot.labels)),
        "by": chosen.by,
        "rates": {
            name: [one, float((known < one).mean()), float((strangers >= one).mean())]
            for name, one in thresholds.items()
        },
        "promised": {name: [one.low, one.rate, one.high] for name, one in promised.items()},
        "held": {name: promised[name].low <= rate <= promised[name].high for name, rate in shown.items()},
        "unsure": [float(((one >= lowest) & (one < record.threshold)).mean()) for one in (known, strangers)],
    }


def main() -> None:
    """Try all sets, print means, and save every gallery."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--galleries", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    bundle = ModelBundle.open(default_bundle_path())
    embedder, pipeline = Embedder(bundle, device="cpu", threads=1), service_pipeline(Pipeline(), bundle)
    rows = []
    for name in SETS:
        photos = Photos.read(arguments.data / name, embedder)
        for items, later, absent in photos.galleries(arguments.galleries, arguments.seed):
            asked = np.concatenate([later, absent])
            queries = LabelledQueries(photos.embeddings[asked], photos.labels[asked])
            with tempfile.TemporaryDirectory() as folder:
                snapshot = snapshot_of(
                    Path(folder) / "1", photos.embeddings[items], photos.labels[items], bundle.fingerprint
                )
                rows.append({"set": name, **try_gallery(snapshot, queries, bundle, pipeline)})
        own = [row for row in rows if row["set"] == name]
        held = {rate: np.mean([row["held"][rate] for row in own]) for rate in ("fnir", "fpir")}
        print(name, {by: sum(row["by"] == by for row in own) for by in ("strict", "mean", "bundle")}, held)
        print("  unsure", np.mean([row["unsure"] for row in own], axis=0).round(3))
        for way in own[0]["rates"]:
            figures = np.array([row["rates"][way] for row in own])
            finds = np.mean([row["rates"][way][1] <= row["rates"]["bundle"][1] for row in own])
            print(f"  {way}: {figures.mean(axis=0).round(3)}, finds what the bundle's own does: {finds:.2f}")
    chosen = {"galleries": arguments.galleries, "seed": arguments.seed, "target": str(TARGET)}
    print(
        save_result(
            "between_readings", {**chosen, "bundle": bundle.name, "pipeline": pipeline.key, "rows": rows}
        )
    )


if __name__ == "__main__":
    main()

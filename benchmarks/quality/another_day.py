"""Whether the range that a calibration promises holds what photos of another day show, on many galleries.

Galleries of some labels of an image set are drawn at random, and calibrated by leaving one out, as `vicinal
calibrate` does where nothing tells which photos were taken together. Then photos of the same labels from
another day, and of other labels, are searched for. No test class is used. Other days are: of the groceries
the official test half, another visit to the shop; of the dogs pictures that are not linked to one of the
gallery by thumbnails that correlate above 0.8. The bundled model has learned from the groceries' training
part; `--bundle` names another.

What is far above a label's typical pair was chosen here: `_FAR_ABOVE` of `service.measuring.visits`. The
share of galleries whose FNIR lies in the range, and the mean of both ends, are printed for several values.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.common.record import save_result
from vicinal.calibration import Target
from vicinal.indexer.duplicates.signatures import SIGNATURE_SIDE
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.hygiene import correlations
from vicinal.indexer.views.snapshot import Snapshot, SnapshotRows, write_snapshot
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder
from vicinal.service.measuring import visits
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.records.record import promised_range
from vicinal.service.search.pipeline import Pipeline, Rerank
from vicinal.service.search.scorer import Scorer
from vicinal.training.datasets.layouts.protocol import ProtocolConfig

TRIED = (1.0, 1.25, 1.5, 2.0)
_OFF = Pipeline(rerank=Rerank(method="off"))
_TARGET = Target(rate="fpir", value=0.05)
_LINKED = 0.8
_ROLES = {"train": ("train",), "calibration": ("gallery", "query", "absent", "unused")}
_BATCH = 64


class Photos:
    """All photos of an image set but those of test classes: (n, d) embeddings, labels, pictures, paths."""

    def __init__(
        self, root: Path, embedder: Embedder, splits: tuple[str, ...] = ("train", "calibration")
    ) -> None:
        parts = [
            ProtocolConfig(kind="protocol", root=root, split=split, roles=_ROLES[split]) for split in splits
        ]
        rows, embedded, pictures = [], [], []
        for part in parts:
            listed = part.rows()
            with part.open() as read:
                for start in range(0, len(listed), _BATCH):
                    images = [embedder.decode(read(row)) for row in listed[start : start + _BATCH]]
                    embedded.append(
                        embedder.finish(embedder.infer([embedder.prepare(one) for one in images]))
                    )
                    side = (SIGNATURE_SIDE, SIGNATURE_SIDE)
                    pictures += [np.asarray(one.resize(side)).reshape(-1) for one in images]
            rows += listed
        self.embeddings = np.concatenate(embedded)
        self.labels = np.array([row.label for row in rows], dtype=object)
        self.pictures = np.stack(pictures)
        self.is_later = np.array([row.path.startswith("test/") for row in rows])


def galleries(name: str, photos: Photos, n: int, seed: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Positions of the items, of the photos of another day, and of photos of other labels."""
    rng = np.random.default_rng(seed)
    labels = np.unique(photos.labels)
    for _ in range(n):
        drawn = rng.permutation(labels)
        known = drawn[: rng.integers(len(labels) // 6, len(labels) // 2)]
        absent = np.isin(photos.labels, drawn[len(labels) // 2 :])
        is_known = np.isin(photos.labels, known)
        if name == "grocery":
            later = photos.is_later
        else:
            later = np.zeros(len(photos.labels), dtype=bool)
            for label in known:
                places = np.flatnonzero(photos.labels == label)
                later[places] = _other_shots(correlations(photos.pictures[places]) > _LINKED, rng)
            absent &= rng.random(len(absent)) < 0.3
        yield (
            np.flatnonzero(is_known & ~later),
            np.flatnonzero(is_known & later),
            np.flatnonzero(absent & (later if name == "grocery" else True)),
        )


def _other_shots(is_linked: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Half of the linked groups of a label's pictures."""
    parts = visits._Parts(len(is_linked))
    parts.join(np.arange(len(is_linked)), is_linked)
    groups = rng.permutation(np.unique(parts.roots))
    return np.isin(parts.roots, groups[: len(groups) // 2])


def snapshot_of(folder: Path, rows: np.ndarray, labels: np.ndarray, bundle: str = "drawn") -> Snapshot:
    """A gallery of some photos, by their embeddings and labels."""
    ids = [str(i) for i in range(len(rows))]
    table = pa.table({"id": ids, "label": labels, "uri": ids, "metadata": ["{}"] * len(ids)})
    return write_snapshot(
        folder,
        SnapshotRows(table, np.arange(len(ids)), rows, build_neighbor_graph(rows)),
        index="auto",
        fields={
            "version": 1,
            "revision": 1,
            "bundle": bundle,
            "bundle_name": "drawn",
            "next_number": len(ids),
        },
    )


def measure(snapshot: Snapshot, photos: Photos, later: np.ndarray, absent: np.ndarray) -> list[dict]:
    """Promise and truth of one gallery, by what counts as far above a label's typical pair."""
    unknown = visits.Visits("auto", np.full(len(snapshot), None, dtype=object), are_told=False)
    calibrator = Calibrator(snapshot, _OFF, visits=unknown)
    queries = calibrator.leave_one_out()
    measured = calibrator.score(queries, lambda *_: None)
    scorer, found = Scorer(snapshot, _OFF), []
    known = scorer.score(photos.embeddings[later], len(snapshot))
    is_mate = snapshot.labels[known.positions] == photos.labels[later][:, None]
    best = np.where(is_mate, known.scores, -np.inf).max(axis=1)
    strangers = scorer.score(photos.embeddings[absent], 1).scores[:, 0]
    for far_above in TRIED:
        visits._FAR_ABOVE = far_above
        record = calibrator.calibration(queries, measured, _TARGET).record
        row: dict = {"far_above": far_above, "n_labels": len(set(snapshot.labels))}
        for rate, shown in (
            ("fnir", float((best < record.threshold).mean())),
            ("fpir", float((strangers >= record.threshold).mean())),
        ):
            promised = promised_range(record, rate)
            row[rate] = {"shown": shown, "rate": promised.rate, "low": promised.low, "high": promised.high}
        found.append(row)
    return found


def main() -> None:
    """Measure both sets, print how often promises held, and save every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--bundle", type=Path, default=default_bundle_path())
    parser.add_argument("--suffix", default="", help="added to the name of the raw results")
    parser.add_argument("--galleries", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    embedder = Embedder(ModelBundle.open(arguments.bundle), device="cpu", threads=1)
    rows = []
    for name in ("grocery", "dogfacenet"):
        photos = Photos(arguments.data / name, embedder)
        drawn = galleries(name, photos, arguments.galleries, arguments.seed)
        for items, later, absent in drawn:
            with tempfile.TemporaryDirectory() as folder:
                snapshot = snapshot_of(Path(folder) / "1", photos.embeddings[items], photos.labels[items])
                found = measure(snapshot, photos, later, absent)
            rows += [{"set": name, **row} for row in found]
        for far_above in TRIED:
            own = [row for row in rows if row["set"] == name and row["far_above"] == far_above]
            for rate in ("fnir", "fpir"):
                ends = np.array([[row[rate][key] for key in ("low", "shown", "high", "rate")] for row in own])
                holds = (ends[:, 0] <= ends[:, 1]) & (ends[:, 1] <= ends[:, 2])
                means = " ".join(f"{mean:.3f}" for mean in ends.mean(axis=0))
                print(f"{name}, {far_above}: {rate} held {holds.mean():.2f}; low, shown, high, rate {means}")
    chosen = {"galleries": arguments.galleries, "seed": arguments.seed, "bundle": embedder.bundle.name}
    print(save_result(f"another_day{arguments.suffix}", {**chosen, "rows": rows}))


if __name__ == "__main__":
    main()

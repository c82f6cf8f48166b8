"""How many labels, and how many photos of each, does a gallery's own metric take?

Galleries are drawn from the calibration and test parts of each image set: so many labels, so many photos of
each. Their photos of another day are searched for by label, by the nearest photo and by the metric that these
labels teach (`calibration.lda`); strangers are all photos of another day of the labels that were not drawn.
Measured is the FNIR at an FPIR of exactly 5 %, the mean over the draws, and in how many of them it fell.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from benchmarks.common.record import save_result
from benchmarks.quality.protocol_embeddings import PartEmbeddings
from vicinal.calibration.arrays import Floats, Ints
from vicinal.calibration.lda import LabelMetric, label_sums
from vicinal.calibration.rates.paired_bootstrap import Searches
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder
from vicinal.service.measuring.label_folds import LabelFolds
from vicinal.service.search.label_scores import LabelScores

SHAPES = {
    "grocery": [(labels, photos) for labels in (3, 5, 10, 20) for photos in (2, 5, 20)],
    "dogfacenet": [(labels, photos) for labels in (5, 20, 100, 300) for photos in (2, 3)],
    "omniglot": [(labels, photos) for labels in (5, 20, 100, 400) for photos in (2, 5, 10)],
}
FPIR = 0.05


@dataclass(frozen=True)
class Photos:
    """Photos of a set: (n, d) embeddings, (n,) names of labels, and which of them galleries may hold."""

    embeddings: Floats
    labels: np.ndarray
    is_item: np.ndarray

    @classmethod
    def of(cls, root: Path, embedder: Embedder) -> Photos:
        """The photos of the calibration and test parts."""
        parts = [PartEmbeddings.of(root, split, embedder, None) for split in ("calibration", "test")]
        return cls(
            np.concatenate([one.embeddings for one in parts]),
            np.concatenate([one.labels for one in parts]).astype(str),
            np.concatenate([one.roles for one in parts]) == "gallery",
        )


def draw(photos: Photos, n_labels: int, per_label: int, rng: np.random.Generator) -> dict[str, float] | None:
    """FNIR of both in one drawn gallery; None where the set has too few labels for it."""
    names, counts = np.unique(photos.labels[photos.is_item], return_counts=True)
    known = rng.permutation(names[counts >= per_label])[:n_labels]
    others = np.setdiff1d(np.unique(photos.labels), known)
    if len(known) < n_labels or not len(others):
        return None
    items = np.concatenate(
        [
            rng.choice(np.flatnonzero(photos.is_item & (photos.labels == name)), per_label, replace=False)
            for name in known
        ]
    )
    codes = np.repeat(np.arange(n_labels), per_label)
    queries = np.flatnonzero(~photos.is_item)
    own = np.array([{name: i for i, name in enumerate(known)}.get(one, -1) for one in photos.labels[queries]])
    cosines = (photos.embeddings[queries] @ photos.embeddings[items].T).reshape(len(queries), n_labels, -1)
    scores = {"cosine": cosines.max(axis=2), "lda": metric_scores(photos, items, codes, queries)}
    return {name: fnir(one, own) for name, one in scores.items()}


def metric_scores(photos: Photos, items: Ints, codes: Ints, queries: Ints) -> Floats:
    """(Q, C) score of each label, by the metric that a calibration would make."""
    n_labels = int(codes.max()) + 1
    embeddings = photos.embeddings[items]
    view = SimpleNamespace(
        n_positions=len(items),
        vectors=embeddings.__getitem__,
        is_dead=lambda positions: np.zeros(len(positions), bool),
    )
    sums = label_sums(iter([(embeddings, codes)]), n_labels, embeddings.shape[1])

    def label_scores(metric: LabelMetric) -> LabelScores:
        return LabelScores(metric, cast("Any", view), codes, *sums)

    groups = SimpleNamespace(
        view=view, codes=codes, names=[*range(n_labels)], sums=sums, label_scores=label_scores
    )
    metric = LabelFolds(cast("Any", groups)).whole
    projected = metric.projected(photos.embeddings[queries])
    rows, labels = np.divmod(np.arange(len(queries) * n_labels), n_labels)
    return metric.all_labels(*sums).scores(projected, rows, labels).reshape(len(queries), n_labels)


def fnir(scores: Floats, own: Ints) -> float:
    """FNIR at an FPIR of exactly 5 %, of (Q, C) scores with the number of each query's label, -1 for none."""
    has_mate = own >= 0
    mates, none = scores[has_mate, own[has_mate]], np.zeros(int(has_mate.sum()), np.int64)
    others = scores[~has_mate].max(axis=1)
    found = Searches(mates, none, others, np.zeros(len(others), np.int64))
    return float(found.error_when_held("fpir", FPIR)(np.ones((1, 1)))[0])


def main() -> None:
    """Draw galleries of every shape, and save what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with one protocol folder a set")
    parser.add_argument("--sets", nargs="+", default=list(SHAPES))
    parser.add_argument("--draws", type=int, default=12)
    arguments = parser.parse_args()
    embedder, found = Embedder(ModelBundle.open(default_bundle_path())), []
    for name in arguments.sets:
        photos = Photos.of(arguments.data / name, embedder)
        for n_labels, per_label in SHAPES[name]:
            rng = np.random.default_rng(0)
            drawn = [draw(photos, n_labels, per_label, rng) for _ in range(arguments.draws)]
            raw = [one for one in drawn if one is not None]
            if not raw:
                continue
            row = {"set": name, "labels": n_labels, "photos": per_label, "draws": raw}
            found.append(row)
            means = {metric: round(float(np.mean([one[metric] for one in raw])), 3) for metric in raw[0]}
            fell = sum(one["lda"] < one["cosine"] for one in raw)
            print(f"{name}: {n_labels} labels of {per_label}: {means}, fell in {fell} of {len(raw)}")
    print(save_result("label_metric_sizes", {"fpir": FPIR, "galleries": found}))


if __name__ == "__main__":
    main()

"""Measures a bundle on Revisited Oxford or Paris, whose ground truth belongs to single queries.

    python recipes/revisited.py roxford5k bundles/mine

The folder has `gnd_<its name>.pkl` and `jpg`, see http://cmp.felk.cvut.cz/revisitop/ and Radenović et al.,
"Revisiting Oxford and Paris", CVPR 2018.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.errors import EvaluationError
from vicinal.models.similarity import normalize
from vicinal.training.evaluation.ranking import item_ranks

BATCH = 64
# A pickle is a program: a ground truth needs no more than arrays.
ADMITTED = {
    ("_codecs", "encode"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    *((f"numpy.{core}.multiarray", one) for core in ("core", "_core") for one in ("_reconstruct", "scalar")),
}


class GroundTruth(pickle.Unpickler):
    """Reads containers, numbers, strings and arrays alone."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse whatever else the file names."""
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which a ground truth does not need")
        return super().find_class(module, name)


def measured(root: Path, bundle: Path) -> dict[str, float]:
    """Figures by difficulty."""
    with (root / f"gnd_{root.name}.pkl").open("rb") as file:
        # Python 2 wrote it.
        content = GroundTruth(file, encoding="latin1").load()
    embedder = Embedder(ModelBundle.open(bundle))
    boxes = [one["bbx"] for one in content["gnd"]]
    queries = _embedded(embedder, root, content["qimlist"], boxes)
    gallery = _embedded(embedder, root, content["imlist"], [None] * len(content["imlist"]))
    figures = {}
    for difficulty, relevant, junk in (
        ("easy", ("easy",), ("junk", "hard")),
        ("medium", ("easy", "hard"), ("junk",)),
        ("hard", ("hard",), ("junk", "easy")),
    ):
        judged = [(_positions(one, relevant), _positions(one, junk)) for one in content["gnd"]]
        found = judged_metrics(queries, gallery, judged=judged)
        figures[f"{difficulty} mAP"] = found.mean_average_precision
        figures |= {f"{difficulty} mP@{k}": value for k, value in found.precision.items()}
    return figures


@dataclass(frozen=True)
class JudgedMetrics:
    """Means over the queries that have a relevant image at this difficulty, and how many have and have none.

    `mean_average_precision` is of `trapezoidal_average_precision`, `precision` by k of `precision_at`: what
    the authors call mP@k.
    """

    mean_average_precision: float
    precision: dict[int, float]
    n_queries: int
    n_without_relevant: int


def judged_metrics(
    queries: ArrayLike,
    gallery: ArrayLike,
    *,
    judged: Iterable[tuple[ArrayLike, ArrayLike]],
    ks: Sequence[int] = (1, 5, 10),
) -> JudgedMetrics:
    """Rank the gallery (m, d) for each query (n, d) and average, ties broken by gallery position.

    The protocol of Oxford and Paris: Philbin et al., "Object retrieval with large vocabularies and fast
    spatial matching", CVPR 2007, and Radenović et al., "Revisiting Oxford and Paris", CVPR 2018, section 3.3.
    Every query has relevant images, and junk that is taken out of the ranking before anything is counted.

    `judged` holds for each query the gallery positions of its relevant images and of its junk. For the
    revisited sets that is easy | junk + hard, easy + hard | junk, and hard | junk + easy; for the old ones
    good + ok | junk. Refused with EvaluationError when no query has a relevant image, or there are not as
    many judgments as queries; with EmbeddingError when an embedding is zero or not finite.
    """
    unit, items = normalize(queries), normalize(gallery)
    pairs = [(_checked(relevant, len(items)), _checked(junk, len(items))) for relevant, junk in judged]
    if len(pairs) != len(unit):
        raise EvaluationError(f"{len(unit)} queries, but judgments for {len(pairs)}")
    wanted, left_out = [one for one, _ in pairs], [junk for _, junk in pairs]
    rows = [
        [trapezoidal_average_precision(ranks), *(precision_at(ranks, k) for k in ks)]
        for ranks in item_ranks(unit, items, wanted, left_out)
        if len(ranks)
    ]
    if not rows:
        raise EvaluationError("no query has a relevant image: there is nothing to measure")
    mean_average_precision, *precisions = np.mean(rows, axis=0).tolist()
    return JudgedMetrics(
        mean_average_precision=mean_average_precision,
        precision=dict(zip(ks, precisions, strict=True)),
        n_queries=len(rows),
        n_without_relevant=len(pairs) - len(rows),
    )


def trapezoidal_average_precision(ranks: np.ndarray) -> float:
    """Area under precision over recall by the trapezoidal rule, which is not the mean of the precisions.

    The precision before and after each relevant image is averaged. Ranks of all R relevant images, at least
    one, rise from 0, junk not counted.
    """
    found = np.arange(len(ranks))
    # Before the first rank nothing was retrieved, and the precision counts as 1.
    before = np.divide(found, ranks, out=np.ones(len(ranks)), where=ranks > 0)
    return float(((before + (found + 1) / (ranks + 1)) / 2).mean())


def precision_at(ranks: np.ndarray, k: int) -> float:
    """Share of relevant images among the first k, or up to the last relevant one where that comes earlier."""
    depth = min(int(ranks[-1]) + 1, k)
    return int(np.searchsorted(ranks, depth)) / depth


def _checked(values: ArrayLike, n_items: int) -> np.ndarray:
    positions = np.unique(np.asarray(values, dtype=np.int64))
    if len(positions) and not 0 <= positions[0] <= positions[-1] < n_items:
        raise EvaluationError(f"a judgment names a gallery position beyond the {n_items} images")
    return positions


def _positions(truth: dict[str, Any], names: tuple[str, ...]) -> np.ndarray:
    return np.concatenate([np.asarray(truth[name], np.intp).ravel() for name in names])


def _embedded(embedder: Embedder, root: Path, names: list[str], boxes: list[Any]) -> np.ndarray:
    def images() -> Iterator[Image.Image]:
        for name, box in zip(names, boxes, strict=True):
            with Image.open(root / "jpg" / f"{name}.jpg") as image:
                whole = image.convert("RGB")
            yield whole if box is None else whole.crop(tuple(round(edge) for edge in box))

    drawn = images()
    batches = (range(start, min(start + BATCH, len(names))) for start in range(0, len(names), BATCH))
    return np.concatenate([embedder.embed([next(drawn) for _ in batch]) for batch in batches])


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured(*map(Path, sys.argv[1:3])), indent=2) + "\n")

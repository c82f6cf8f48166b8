"""Measures a bundle on Revisited Oxford or Paris, whose ground truth belongs to single queries.

    python recipes/revisited.py roxford5k bundles/mine

The folder has `gnd_<its name>.pkl` and `jpg`, see http://cmp.felk.cvut.cz/revisitop/ and Radenović et al.,
"Revisiting Oxford and Paris", CVPR 2018.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.training.evaluation import judged_metrics

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

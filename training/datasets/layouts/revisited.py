"""Revisited Oxford and Paris: landmark retrieval with ground truth by query.

Radenović et al., "Revisiting Oxford and Paris: Large-Scale Image Retrieval Benchmarking", CVPR 2018.
`gnd_<name>.pkl` is a pickled dictionary: `imlist` and `qimlist` name images in `jpg/`, and `gnd` has one
entry a query with `easy`, `hard` and `junk`, positions in `imlist`, and `bbx`, the part of the query that
counts.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from vicinal.calibration.arrays import Indices
from vicinal.models.errors import DatasetError
from vicinal.training.datasets.files import Box, ImageFolder, LabelledFile

# What a pickle of containers, numbers, strings and arrays refers to; numpy moved its module in version 2.
_ADMITTED = {
    ("_codecs", "encode"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    *(
        (f"numpy.{core}.multiarray", name)
        for core in ("core", "_core")
        for name in ("_reconstruct", "scalar")
    ),
}


@dataclass(frozen=True)
class GroundTruth:
    """Gallery images that show the landmark of one query, as positions in the gallery.

    `easy` ones show it clearly, `hard` ones from another side, small or partly hidden; `junk` cannot be told,
    and is taken out of the ranking.
    """

    easy: Indices
    hard: Indices
    junk: Indices

    def judged(self, difficulty: Literal["easy", "medium", "hard"]) -> tuple[Indices, Indices]:
        """Relevant images and those to take out of the ranking, by the authors' protocols (section 3)."""
        match difficulty:
            case "easy":
                return self.easy, np.concatenate([self.junk, self.hard])
            case "medium":
                return np.concatenate([self.easy, self.hard]), self.junk
            case "hard":
                return self.hard, np.concatenate([self.junk, self.easy])


@dataclass(frozen=True)
class JudgedImages:
    """Files, the queries first, each with its box and a label of its own, and the queries' ground truth."""

    files: tuple[LabelledFile, ...]
    ground_truth: tuple[GroundTruth, ...]


class RevisitedConfig(ImageFolder):
    """Revisited Oxford or Paris: the folder with `gnd_<kind>.pkl` and `jpg`.

    Its ground truth belongs to single queries, not to classes: it can be measured on, not trained on.
    """

    origin: ClassVar[str] = "Revisited Oxford and Paris from http://cmp.felk.cvut.cz/revisitop/"
    kind: Literal["roxford5k", "rparis6k"]

    def judged(self) -> JudgedImages:
        """Read the ground truth; a pickle of more than numbers, strings and arrays raises DatasetError."""
        path = self.find(f"gnd_{self.kind}.pkl")
        content = _unpickle(path)
        try:
            gallery = [_row(name, "gallery") for name in content["imlist"]]
            entries = list(zip(content["qimlist"], content["gnd"], strict=True))
            queries = [_row(name, "query", entry["bbx"]) for name, entry in entries]
            truth = tuple(
                GroundTruth(*(_positions(entry[one], len(gallery)) for one in ("easy", "hard", "junk")))
                for _, entry in entries
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(f"'{path}' is no ground truth of {self.kind}: {error!r}") from error
        return JudgedImages((*queries, *gallery), truth)


class _PlainUnpickler(pickle.Unpickler):
    """A pickle is a program: this one may build containers, numbers, strings and arrays, no more."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which a ground truth does not need")
        return super().find_class(module, name)


def _unpickle(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as stream:
            # The files were written by Python 2: its text must become text, and its arrays keep their bytes.
            return _PlainUnpickler(stream, encoding="latin1").load()
    except Exception as error:  # a damaged pickle may raise anything
        raise DatasetError(f"'{path}' was not loaded: {error}") from error


def _row(name: str, role: str, corners: Iterable[float] = ()) -> LabelledFile:
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is no name of an image")
    box: Box | None = None
    if role == "query":
        left, top, right, bottom = (float(corner) for corner in corners)
        box = left, top, right, bottom
    return LabelledFile(f"jpg/{name}.jpg", name, role, box=box)


def _positions(values: Any, n_gallery: int) -> Indices:
    positions = np.asarray(values, dtype=np.float64).ravel()
    if ((positions < 0) | (positions >= n_gallery) | (positions % 1 != 0)).any():
        raise ValueError(f"a position is not among the {n_gallery} gallery images")
    return positions.astype(np.intp)

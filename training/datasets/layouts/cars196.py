"""Cars-196: 16,185 photos of 196 models of cars.

Krause et al., "3D Object Representations for Fine-Grained Categorization", 2013. The authors ship two
layouts: `car_ims/` with `cars_annos.mat`; and `cars_train/`, `cars_test/` with `devkit/cars_train_annos.mat`,
`devkit/cars_meta.mat` and, in the folder or in `devkit/`, `cars_test_annos_withlabels.mat`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from vicinal.models.errors import DatasetError, MissingPackageError
from vicinal.training.datasets.files import BoxedFolder, LabelledFile

_LAST_TRAINING_CLASS = 98
_JOINT = "cars_annos.mat"
_TEST = "cars_test_annos_withlabels.mat"
_CORNERS = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")


class Cars196Config(BoxedFolder):
    """Cars-196: `car_ims` with `cars_annos.mat`, or `cars_train` and `cars_test` with `devkit`."""

    origin: ClassVar[str] = "Cars-196 from https://ai.stanford.edu/~jkrause/cars/car_dataset.html"
    kind: Literal["cars196"]

    def rows(self) -> list[LabelledFile]:
        """Images of one part, in the order of the annotations; labels are such as `Acura TL Sedan 2012`."""
        if (self.root / _JOINT).is_file():
            meta = self.root / _JOINT
            folders = {meta: ""}
        else:
            train = self.find("devkit/cars_train_annos.mat", _JOINT)
            folders = {train: "cars_train", self.find(_TEST, f"devkit/{_TEST}"): "cars_test"}
            meta = self.find("devkit/cars_meta.mat")
        tables = {path: _load(path) for path in {meta: "", **folders}}
        names = _class_names(tables[meta], meta)
        by_class, wants_test = self.split_by == "class", self.split == "test"
        return [
            replace(car, label=_name(names, car), role=self.split, box=car.box if self.crop else None)
            for path, folder in folders.items()
            for car in _cars(tables[path], path, folder)
            if wants_test == (int(car.label) > _LAST_TRAINING_CLASS if by_class else car.role == "test")
        ]


def _name(names: list[str], car: LabelledFile) -> str:
    if not 1 <= int(car.label) <= len(names):
        raise DatasetError(f"Cars-196 image '{car.path}' has class {car.label} of {len(names)}")
    return names[int(car.label) - 1]


def _load(path: Path) -> Mapping[str, Any]:
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise MissingPackageError("scipy", "train", "reading the annotations of Cars-196") from error
    try:
        return loadmat(path, squeeze_me=True)
    except Exception as error:  # scipy raises classes of many kinds for a damaged file
        raise DatasetError(f"'{path}' is no MATLAB file that can be read: {error}") from error


def _class_names(tables: Mapping[str, Any], path: Path) -> list[str]:
    if "class_names" not in tables:
        raise DatasetError(f"'{path}' has no 'class_names'")
    return [str(name) for name in np.atleast_1d(tables["class_names"])]


def _cars(tables: Mapping[str, Any], path: Path, folder: str) -> Iterator[LabelledFile]:
    """All images of one file, labelled by the number of their class, with the authors' role."""
    entries = np.atleast_1d(tables.get("annotations", np.empty(0)))
    for field in ("class", *_CORNERS, *(("fname",) if folder else ("relative_im_path", "test"))):
        if field not in (entries.dtype.names or ()):
            raise DatasetError(f"'{path}' has no 'annotations' with the field '{field}'")
    for number, entry in enumerate(entries, start=1):
        name = entry["fname"] if folder else entry["relative_im_path"]
        try:
            x1, y1, x2, y2 = (float(entry[corner]) for corner in _CORNERS)
            label = str(int(entry["class"]))
        except (TypeError, ValueError) as error:
            where = f"'{path}' annotation {number}"
            raise DatasetError(f"{where}: class and corners of '{name}' are no numbers") from error
        is_test = folder == "cars_test" if folder else bool(entry["test"])
        # MATLAB counts pixels from 1, and the last corner belongs to the box.
        yield LabelledFile(
            f"{folder}/{name}".lstrip("/"),
            label,
            "test" if is_test else "train",
            box=(x1 - 1, y1 - 1, x2, y2),
        )

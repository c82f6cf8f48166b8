"""Cars-196: 16,185 photos of 196 models of cars.

Krause et al., "3D Object Representations for Fine-Grained Categorization", 2013. The authors ship two
layouts: `car_ims/` with `cars_annos.mat`; and `cars_train/`, `cars_test/` with `devkit/cars_train_annos.mat`,
`devkit/cars_meta.mat` and, in the folder or in `devkit/`, `cars_test_annos_withlabels.mat`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from vicinal.models.errors import DatasetError, MissingPackageError
from vicinal.training.datasets.files import Box, BoxedFolder, LabelledFile

_LAST_TRAINING_CLASS = 98
_JOINT = "cars_annos.mat"
_CORNERS = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")


@dataclass(frozen=True)
class _Car:
    path: str
    class_id: int
    is_test: bool
    box: Box


class Cars196Config(BoxedFolder):
    """Cars-196: `car_ims` with `cars_annos.mat`, or `cars_train` and `cars_test` with `devkit`."""

    origin: ClassVar[str] = "Cars-196 from https://ai.stanford.edu/~jkrause/cars/car_dataset.html"
    kind: Literal["cars196"]

    def rows(self) -> list[LabelledFile]:
        """Images of one part, in the order of the annotations; labels are such as `Acura TL Sedan 2012`."""
        names, cars = self._joint() if (self.root / _JOINT).is_file() else self._parted()
        return [
            LabelledFile(car.path, _name(names, car), self.split, box=car.box if self.crop else None)
            for car in cars
            if self._is_test(car) == (self.split == "test")
        ]

    def _is_test(self, car: _Car) -> bool:
        return car.class_id > _LAST_TRAINING_CLASS if self.split_by == "class" else car.is_test

    def _joint(self) -> tuple[list[str], list[_Car]]:
        path = self.root / _JOINT
        tables = _load(path)
        return _class_names(tables, path), [
            _car(entry, f"'{path}' annotation {number}", "", bool(entry["test"]))
            for number, entry in _annotations(tables, path, "relative_im_path", "test")
        ]

    def _parted(self) -> tuple[list[str], list[_Car]]:
        train = self.find("devkit/cars_train_annos.mat", _JOINT)
        test_name = "cars_test_annos_withlabels.mat"
        test = self.find(test_name, f"devkit/{test_name}")
        meta = self.find("devkit/cars_meta.mat")
        cars = [
            _car(entry, f"'{path}' annotation {number}", folder, folder == "cars_test")
            for path, folder in ((train, "cars_train"), (test, "cars_test"))
            for number, entry in _annotations(_load(path), path, "fname")
        ]
        return _class_names(_load(meta), meta), cars


def _name(names: list[str], car: _Car) -> str:
    if not 1 <= car.class_id <= len(names):
        raise DatasetError(f"Cars-196 image '{car.path}' has class {car.class_id} of {len(names)}")
    return names[car.class_id - 1]


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


def _annotations(tables: Mapping[str, Any], path: Path, *fields: str) -> Iterator[tuple[int, Any]]:
    entries = np.atleast_1d(tables.get("annotations", np.empty(0)))
    for field in ("class", *_CORNERS, *fields):
        if field not in (entries.dtype.names or ()):
            raise DatasetError(f"'{path}' has no 'annotations' with the field '{field}'")
    return enumerate(entries, start=1)


def _car(entry: Any, where: str, folder: str, is_test: bool) -> _Car:
    name = entry["fname"] if folder else entry["relative_im_path"]
    try:
        x1, y1, x2, y2 = (float(entry[corner]) for corner in _CORNERS)
        # MATLAB counts pixels from 1, and the last corner belongs to the box.
        return _Car(f"{folder}/{name}".lstrip("/"), int(entry["class"]), is_test, (x1 - 1, y1 - 1, x2, y2))
    except (TypeError, ValueError) as error:
        raise DatasetError(f"{where}: class and corners of '{name}' are no numbers") from error

"""CUB-200-2011: 11,788 photos of 200 species of birds.

Wah et al., "The Caltech-UCSD Birds-200-2011 Dataset", 2011. The folder holds `images/`, and `images.txt`,
`image_class_labels.txt`, `classes.txt`, `train_test_split.txt` and `bounding_boxes.txt`, all by number.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from vicinal.training.datasets.files import Box, BoxedFolder, LabelledFile
from vicinal.training.datasets.layouts.annotations import Line, read_lines

_LAST_TRAINING_CLASS = 100


class Cub200Config(BoxedFolder):
    """CUB-200-2011, 200 species of birds: the folder with `images.txt`."""

    origin: ClassVar[str] = "CUB-200-2011 from https://www.vision.caltech.edu/datasets/cub_200_2011/"
    kind: Literal["cub200"]

    def rows(self) -> list[LabelledFile]:
        """Images of one part, in the order of `images.txt`; labels are like `001.Black_footed_Albatross`."""
        images = self._table("images.txt", "image_id", "path")
        classes = self._table("image_class_labels.txt", "image_id", "class_id")
        names = self._table("classes.txt", "class_id", "name")
        by_class = self.split_by == "class"
        marks = classes if by_class else self._table("train_test_split.txt", "image_id", "is_training_image")
        corners = ("x", "y", "width", "height")
        boxes = self._table("bounding_boxes.txt", "image_id", *corners) if self.crop else None
        rows = []
        for line in images.lines.values():
            mark = marks.of(line, "image_id")
            trained = _in_training_class(mark) if by_class else mark.integer("is_training_image") == 1
            if trained == (self.split == "train"):
                name = names.of(classes.of(line, "image_id"), "class_id")["name"]
                box = _corners(boxes.of(line, "image_id")) if boxes else None
                rows.append(LabelledFile(f"images/{line['path']}", name, self.split, box=box))
        return rows

    def _table(self, name: str, *columns: str) -> _Table:
        return _Table(self.find(name), columns)


class _Table:
    """Lines of one file by the number in their first column."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self.name = path.name
        self.lines = {line.integer(columns[0]): line for line in read_lines(path, columns)}

    def of(self, asking: Line, column: str) -> Line:
        number = asking.integer(column)
        if number not in self.lines:
            raise asking.error(f"{column} {number} is not in '{self.name}'")
        return self.lines[number]


def _in_training_class(line: Line) -> bool:
    return line.integer("class_id") <= _LAST_TRAINING_CLASS


def _corners(line: Line) -> Box:
    left, top, width, height = (line.decimal(column) for column in ("x", "y", "width", "height"))
    return left, top, left + width, top + height

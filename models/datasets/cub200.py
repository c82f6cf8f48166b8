"""CUB-200-2011: 11,788 photos of 200 species of birds.

Wah et al., "The Caltech-UCSD Birds-200-2011 Dataset", 2011. The folder holds `images/`, and `images.txt`,
`image_class_labels.txt`, `classes.txt`, `train_test_split.txt` and `bounding_boxes.txt`, all by number.
"""

from __future__ import annotations

from collections.abc import Callable

from vicinal.models.configs.datasets import Cub200Config
from vicinal.models.datasets.annotations import Line, find_file, read_lines
from vicinal.models.datasets.files import Box, LabelledFile

__all__ = ["read_cub200"]

_LAST_TRAINING_CLASS = 100


def read_cub200(config: Cub200Config) -> list[LabelledFile]:
    """Images of one part, in the order of `images.txt`; labels are such as `001.Black_footed_Albatross`.

    Raises:
        DatasetError: A file is missing, a line is malformed, or an image lacks a line in one of the files.
    """
    images = _Table(config, "images.txt", "image_id", "path")
    classes = _Table(config, "image_class_labels.txt", "image_id", "class_id")
    names = _Table(config, "classes.txt", "class_id", "name")
    is_training = _training_rule(config, classes)
    box_of = _box_rule(config)
    rows = []
    for line in images.lines.values():
        if is_training(line) == (config.split == "train"):
            name = names.of(classes.of(line, "image_id"), "class_id")["name"]
            rows.append(LabelledFile(f"images/{line['path']}", name, config.split, box=box_of(line)))
    return rows


class _Table:
    """Lines of one file by the number in their first column."""

    def __init__(self, config: Cub200Config, name: str, *columns: str) -> None:
        self.name = name
        self.lines = {line.integer(columns[0]): line for line in read_lines(find_file(config, name), columns)}

    def of(self, asking: Line, column: str) -> Line:
        number = asking.integer(column)
        if number not in self.lines:
            raise asking.error(f"{column} {number} is not in '{self.name}'")
        return self.lines[number]


def _training_rule(config: Cub200Config, classes: _Table) -> Callable[[Line], bool]:
    if config.split_by == "class":
        return lambda line: classes.of(line, "image_id").integer("class_id") <= _LAST_TRAINING_CLASS
    marks = _Table(config, "train_test_split.txt", "image_id", "is_training_image")
    return lambda line: marks.of(line, "image_id").integer("is_training_image") == 1


def _box_rule(config: Cub200Config) -> Callable[[Line], Box | None]:
    if not config.crop:
        return lambda _: None
    boxes = _Table(config, "bounding_boxes.txt", "image_id", "x", "y", "width", "height")
    return lambda line: _corners(boxes.of(line, "image_id"))


def _corners(line: Line) -> Box:
    left, top, width, height = (line.decimal(column) for column in ("x", "y", "width", "height"))
    return left, top, left + width, top + height

"""PKU VehicleID: 221,763 photos of 26,267 vehicles by road cameras.

Liu et al., "Deep Relative Distance Learning: Tell the Difference Between Similar Vehicles", CVPR 2016.
Lists in `train_test_split/` name an image and a vehicle a line; the photo is `image/<image>.jpg`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vicinal.models.configs.datasets import VehicleIdConfig
from vicinal.models.datasets.annotations import find_file, read_lines
from vicinal.models.datasets.files import LabelledFile

__all__ = ["read_vehicle_id"]


def read_vehicle_id(config: VehicleIdConfig) -> list[LabelledFile]:
    """Images of the training list or of one test list, in file order; labels are vehicle ids.

    Raises:
        DatasetError: The list is missing or a line is malformed.
    """
    name = "train_list.txt" if config.split == "train" else f"test_list_{config.test_size}.txt"
    path = find_file(config, f"train_test_split/{name}")
    rows = [
        LabelledFile(f"image/{line['image']}.jpg", str(line.integer("vehicle")), config.split)
        for line in read_lines(path, ("image", "vehicle"))
    ]
    if config.split == "train" or config.gallery_seed is None:
        return rows
    return _with_gallery(rows, config.gallery_seed)


def _with_gallery(rows: list[LabelledFile], seed: int) -> list[LabelledFile]:
    """One image a vehicle, drawn at random, is the gallery; the others are queries."""
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    chosen = {rows[position].label: position for position in order}
    gallery = set(chosen.values())
    return [
        replace(row, role="gallery" if position in gallery else "query") for position, row in enumerate(rows)
    ]

"""PKU VehicleID: 221,763 photos of 26,267 vehicles by road cameras.

Liu et al., "Deep Relative Distance Learning: Tell the Difference Between Similar Vehicles", CVPR 2016.
Lists in `train_test_split/` name an image and a vehicle a line; the photo is `image/<image>.jpg`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from vicinal.training.datasets.files import LabelledFile, PartedFolder
from vicinal.training.datasets.layouts.annotations import read_lines


class VehicleIdConfig(PartedFolder):
    """PKU VehicleID: the folder with `image` and `train_test_split`.

    Attributes:
        test_size: Vehicles of the test list; the papers' small, medium and large are 800, 1600 and 2400.
        gallery_seed: None gives test images no part, so that they are searched among themselves; a number
            draws one image a vehicle for the gallery, as the authors do, and makes the others queries.
    """

    origin: ClassVar[str] = "PKU VehicleID from https://www.pkuml.org/resources/pku-vehicleid.html"
    kind: Literal["vehicle_id"]
    test_size: Literal[800, 1600, 2400, 3200, 6000, 13164] = 800
    gallery_seed: int | None = Field(None, ge=0)

    def rows(self) -> list[LabelledFile]:
        """Images of the training list or of one test list, in file order; labels are vehicle ids."""
        name = "train_list.txt" if self.split == "train" else f"test_list_{self.test_size}.txt"
        lines = read_lines(self.find(f"train_test_split/{name}"), ("image", "vehicle"))
        rows = [
            LabelledFile(f"image/{line['image']}.jpg", str(line.integer("vehicle")), self.split)
            for line in lines
        ]
        if self.split == "train" or self.gallery_seed is None:
            return rows
        return _with_gallery(rows, self.gallery_seed)


def _with_gallery(rows: list[LabelledFile], seed: int) -> list[LabelledFile]:
    """Make one image a vehicle, drawn at random, the gallery, and the others queries."""
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    chosen = {rows[position].label: position for position in order}
    gallery = set(chosen.values())
    return [
        replace(row, role="gallery" if position in gallery else "query") for position, row in enumerate(rows)
    ]

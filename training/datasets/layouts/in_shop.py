"""DeepFashion In-shop Clothes Retrieval: 52,712 photos of 7,982 articles of clothing.

Liu et al., "DeepFashion: Powering Robust Clothes Recognition and Retrieval with Rich Annotations", CVPR 2016.
`Eval/list_eval_partition.txt` lists paths that begin with `img/`, a folder that the authors ship in `Img/`.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import ClassVar, Literal

from vicinal.training.datasets.files import LabelledFile, PartedFolder
from vicinal.training.datasets.layouts.annotations import Line, read_lines

_COLUMNS = ("image_name", "item_id", "evaluation_status")
_ROLES = {"train": ("train",), "test": ("query", "gallery")}


class InShopConfig(PartedFolder):
    """DeepFashion In-shop Clothes Retrieval: the folder with `Eval/list_eval_partition.txt`.

    `test` has the authors' roles `query` and `gallery`.
    """

    origin: ClassVar[str] = (
        "DeepFashion In-shop Clothes Retrieval from "
        "https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html"
    )
    kind: Literal["in_shop"]

    def rows(self) -> list[LabelledFile]:
        """Images of one part, in file order; labels are item ids, super-labels such as `WOMEN/Dresses`."""
        path = self.find("Eval/list_eval_partition.txt", "list_eval_partition.txt")
        folder = "" if (self.root / "img").is_dir() else "Img/"
        # The number of images stands at the top.
        rows = [_row(line, folder) for line in read_lines(path, _COLUMNS, skip=1)]
        return [row for row in rows if row.role in _ROLES[self.split]]


def _row(line: Line, folder: str) -> LabelledFile:
    role, parts = line["evaluation_status"], PurePosixPath(line["image_name"]).parts
    if role not in ("train", "query", "gallery"):
        raise line.error(f"evaluation_status '{role}', expected train, query or gallery")
    if len(parts) != 5:
        raise line.error(
            f"image_name '{line['image_name']}', expected img/<gender>/<category>/<item>/<image>"
        )
    return LabelledFile(folder + line["image_name"], line["item_id"], role, super_label="/".join(parts[1:3]))

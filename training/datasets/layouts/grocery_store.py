"""Grocery Store: photos of 81 groceries in shops, with coarse labels above the fine ones.

Klasson, Zhang and Kjellström, "A Hierarchical Grocery Store Image Dataset with Visual and Semantic Labels",
WACV 2019. `train.txt`, `val.txt` and `test.txt` have lines `path, fine id, coarse id`; `classes.csv` names
the ids.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from vicinal.training.datasets.files import ImageFolder, LabelledFile
from vicinal.training.datasets.layouts.annotations import Line, read_csv, read_lines

_FINE = ("Class ID (int)", "Class Name (str)")
_COARSE = ("Coarse Class ID (int)", "Coarse Class Name (str)")


class GroceryStoreConfig(ImageFolder):
    """Grocery Store: the folder with `train.txt` and `classes.csv`, or the repository around it.

    The authors split by image: every part has every class. Images of one part are often of one visit to a
    shop, which makes searching a part among itself easy; search `train` with `test` instead.
    """

    origin: ClassVar[str] = "Grocery Store from https://github.com/marcusklasson/GroceryStoreDataset"
    kind: Literal["grocery_store"]
    split: Literal["train", "val", "test"] = "train"

    def rows(self) -> list[LabelledFile]:
        """Images of one part, in file order; labels are fine names, super-labels coarse ones."""
        listing = self.find(f"{self.split}.txt", f"dataset/{self.split}.txt")
        folder = listing.parent.relative_to(self.root)
        classes = list(read_csv(self.find("classes.csv", "dataset/classes.csv"), _FINE + _COARSE))
        fine, coarse = (
            {line.integer(number): line[name] for line in classes} for number, name in (_FINE, _COARSE)
        )
        return [
            LabelledFile(
                (folder / line["path"]).as_posix(),
                label=_name(fine, line, "fine id"),
                role="train" if self.split == "train" else "test",
                super_label=_name(coarse, line, "coarse id"),
            )
            for line in read_lines(listing, ("path", "fine id", "coarse id"), separator=",")
        ]


def _name(names: dict[int, str], line: Line, column: str) -> str:
    if line.integer(column) not in names:
        raise line.error(f"{column} {line[column]} is not in classes.csv")
    return names[line.integer(column)]

"""Grocery Store: photos of 81 groceries in shops, with coarse labels above the fine ones.

Klasson, Zhang and Kjellström, "A Hierarchical Grocery Store Image Dataset with Visual and Semantic Labels",
WACV 2019. `train.txt`, `val.txt` and `test.txt` have lines `path, fine id, coarse id`; `classes.csv` names
the ids.
"""

from __future__ import annotations

from vicinal.models.configs.datasets import GroceryStoreConfig
from vicinal.models.datasets.annotations import Line, find_file, read_csv, read_lines
from vicinal.models.datasets.files import LabelledFile

__all__ = ["read_grocery_store"]

_FINE = ("Class ID (int)", "Class Name (str)")
_COARSE = ("Coarse Class ID (int)", "Coarse Class Name (str)")


def read_grocery_store(config: GroceryStoreConfig) -> list[LabelledFile]:
    """Images of one part, in file order; labels are fine names, super-labels coarse ones.

    Raises:
        DatasetError: A file is missing, a line is malformed, or an id has no name.
    """
    listing = find_file(config, f"{config.split}.txt", f"dataset/{config.split}.txt")
    folder = listing.parent.relative_to(config.root)
    classes = list(read_csv(find_file(config, "classes.csv", "dataset/classes.csv"), _FINE + _COARSE))
    fine, coarse = (
        {line.integer(number): line[name] for line in classes} for number, name in (_FINE, _COARSE)
    )
    return [
        LabelledFile(
            (folder / line["path"]).as_posix(),
            label=_name(fine, line, "fine id"),
            role="train" if config.split == "train" else "test",
            super_label=_name(coarse, line, "coarse id"),
        )
        for line in read_lines(listing, ("path", "fine id", "coarse id"), separator=",")
    ]


def _name(names: dict[int, str], line: Line, column: str) -> str:
    if line.integer(column) not in names:
        raise line.error(f"{column} {line[column]} is not in classes.csv")
    return names[line.integer(column)]

"""Stanford Online Products: 120,053 photos of 22,634 products for sale, in 12 categories.

Song et al., "Deep Metric Learning via Lifted Structured Feature Embedding", CVPR 2016. The folder holds
`Ebay_train.txt`, `Ebay_test.txt` and one subfolder a category.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from vicinal.training.datasets.files import LabelledFile, PartedFolder
from vicinal.training.datasets.layouts.annotations import read_lines

_COLUMNS = ("image_id", "class_id", "super_class_id", "path")


class StanfordOnlineProductsConfig(PartedFolder):
    """Stanford Online Products: the folder with `Ebay_train.txt`."""

    origin: ClassVar[str] = "Stanford Online Products from https://cvgl.stanford.edu/projects/lifted_struct/"
    kind: Literal["sop"]

    def rows(self) -> list[LabelledFile]:
        """Images of one part, in file order; labels are class ids, super-labels those of the categories."""
        return [
            LabelledFile(
                line["path"],
                label=str(line.integer("class_id")),
                role=self.split,
                super_label=str(line.integer("super_class_id")),
            )
            for line in read_lines(self.find(f"Ebay_{self.split}.txt"), _COLUMNS)
        ]

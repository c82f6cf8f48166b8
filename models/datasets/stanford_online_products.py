"""Stanford Online Products: 120,053 photos of 22,634 products for sale, in 12 categories.

Song et al., "Deep Metric Learning via Lifted Structured Feature Embedding", CVPR 2016. The folder holds
`Ebay_train.txt`, `Ebay_test.txt` and one subfolder a category.
"""

from __future__ import annotations

from vicinal.models.configs.datasets import StanfordOnlineProductsConfig
from vicinal.models.datasets.annotations import find_file, read_lines
from vicinal.models.datasets.files import LabelledFile

__all__ = ["read_stanford_online_products"]

_COLUMNS = ("image_id", "class_id", "super_class_id", "path")


def read_stanford_online_products(config: StanfordOnlineProductsConfig) -> list[LabelledFile]:
    """Images of one part, in file order; labels are class ids, super-labels the ids of the 12 categories.

    Raises:
        DatasetError: The file is missing or a line is malformed.
    """
    path = find_file(config, f"Ebay_{config.split}.txt")
    return [
        LabelledFile(
            line["path"],
            label=str(line.integer("class_id")),
            role=config.split,
            super_label=str(line.integer("super_class_id")),
        )
        for line in read_lines(path, _COLUMNS)
    ]

"""iNaturalist 2018: 461,939 photos of 8,142 species in the wild, split by species.

Van Horn et al., "The iNaturalist Species Classification and Detection Dataset", CVPR 2018; the split by
species is that of Brown et al., "Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval", ECCV
2020: text files with one path a line, such as `train_val2018/Aves/2761/<name>.jpg`.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from vicinal.models.configs.datasets import INaturalist2018Config
from vicinal.models.datasets.annotations import Line, find_file, read_lines
from vicinal.models.datasets.files import LabelledFile

__all__ = ["read_inaturalist2018"]


def read_inaturalist2018(config: INaturalist2018Config) -> list[LabelledFile]:
    """Images of one part, in file order; labels are such as `Aves/2761`, super-labels such as `Aves`.

    Raises:
        DatasetError: The list is missing or a line is malformed.
    """
    name = f"Inaturalist_{config.split}_set1.txt"
    path = find_file(config, f"Inat_dataset_splits/{name}", name)
    return [_row(line, config.split) for line in read_lines(path, ("path",))]


def _row(line: Line, role: str) -> LabelledFile:
    parts = PurePosixPath(line["path"]).parts
    if len(parts) < 3:
        raise line.error(f"'{line['path']}', expected train_val2018/<super category>/<species>/<image>")
    group, species = parts[-3:-1]
    return LabelledFile(line["path"], f"{group}/{species}", role, super_label=group)

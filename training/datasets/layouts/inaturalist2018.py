"""iNaturalist 2018: 461,939 photos of 8,142 species in the wild, split by species.

Van Horn et al., "The iNaturalist Species Classification and Detection Dataset", CVPR 2018; the split by
species is that of Brown et al., "Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval", ECCV
2020: text files with one path a line, such as `train_val2018/Aves/2761/<name>.jpg`.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import ClassVar, Literal

from vicinal.training.datasets.files import LabelledFile, PartedFolder
from vicinal.training.datasets.layouts.annotations import Line, read_lines


class INaturalist2018Config(PartedFolder):
    """iNaturalist 2018: the folder with `train_val2018` and, for its split by class, the lists
    in `Inat_dataset_splits`.
    """

    origin: ClassVar[str] = (
        "iNaturalist 2018 from https://github.com/visipedia/inat_comp/tree/master/2018, "
        "its split by class from https://www.robots.ox.ac.uk/~vgg/research/smooth-ap/"
    )
    kind: Literal["inaturalist2018"]

    def rows(self) -> list[LabelledFile]:
        """Images of one part, in file order; labels are such as `Aves/2761`, super-labels such as `Aves`."""
        name = f"Inaturalist_{self.split}_set1.txt"
        path = self.find(f"Inat_dataset_splits/{name}", name)
        return [_row(line, self.split) for line in read_lines(path, ("path",))]


def _row(line: Line, role: str) -> LabelledFile:
    parts = PurePosixPath(line["path"]).parts
    if len(parts) < 3:
        raise line.error(f"'{line['path']}', expected train_val2018/<super category>/<species>/<image>")
    group, species = parts[-3:-1]
    return LabelledFile(line["path"], f"{group}/{species}", role, super_label=group)

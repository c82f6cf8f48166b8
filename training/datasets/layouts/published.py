"""Published data sets that text files or folders list, each with the paper of its authors."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from vicinal.models.errors import DatasetError
from vicinal.training.datasets.files import Box, BoxedFolder, ImageFolder, LabelledFile, PartedFolder
from vicinal.training.datasets.layouts.annotations import Line, read_csv, read_lines

_LAST_TRAINING_CLASS = 100  # of CUB-200-2011


class StanfordOnlineProductsConfig(PartedFolder):
    """Stanford Online Products: the folder with `Ebay_train.txt`.

    120,053 photos of 22,634 products for sale, in 12 categories. Song et al., "Deep Metric Learning via
    Lifted Structured Feature Embedding", CVPR 2016.
    """

    origin: ClassVar[str] = "Stanford Online Products from https://cvgl.stanford.edu/projects/lifted_struct/"
    kind: Literal["sop"]

    def rows(self) -> list[LabelledFile]:
        """Images of one part, in file order; labels are class ids, super-labels those of the categories."""
        columns = ("image_id", "class_id", "super_class_id", "path")
        return [
            LabelledFile(
                line["path"],
                label=str(line.integer("class_id")),
                role=self.split,
                super_label=str(line.integer("super_class_id")),
            )
            for line in read_lines(self.find(f"Ebay_{self.split}.txt"), columns)
        ]


class InShopConfig(PartedFolder):
    """DeepFashion In-shop Clothes Retrieval: the folder with `Eval/list_eval_partition.txt`.

    `test` has the authors' roles `query` and `gallery`. 52,712 photos of 7,982 articles of clothing. Liu et
    al., "DeepFashion: Powering Robust Clothes Recognition and Retrieval with Rich Annotations", CVPR 2016.
    Listed paths begin with `img/`, a folder that the authors ship in `Img/`.
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
        lines = read_lines(path, ("image_name", "item_id", "evaluation_status"), skip=1)
        rows = [self._row(line, folder) for line in lines]
        return [row for row in rows if (row.role == "train") == (self.split == "train")]

    def _row(self, line: Line, folder: str) -> LabelledFile:
        name, role = line["image_name"], line["evaluation_status"]
        if role not in ("train", "query", "gallery"):
            raise line.error(f"evaluation_status '{role}', expected train, query or gallery")
        parts = PurePosixPath(name).parts
        if len(parts) != 5:
            raise line.error(f"image_name '{name}', expected img/<gender>/<category>/<item>/<image>")
        return LabelledFile(folder + name, line["item_id"], role, super_label="/".join(parts[1:3]))


class INaturalist2018Config(PartedFolder):
    """iNaturalist 2018: the folder with `train_val2018` and, for its split by class, the lists
    in `Inat_dataset_splits`.

    461,939 photos of 8,142 species in the wild. Van Horn et al., "The iNaturalist Species Classification and
    Detection Dataset", CVPR 2018; the split by species is that of Brown et al., "Smooth-AP: Smoothing the
    Path Towards Large-Scale Image Retrieval", ECCV 2020.
    """

    origin: ClassVar[str] = (
        "iNaturalist 2018 from https://github.com/visipedia/inat_comp/tree/master/2018, "
        "its split by class from https://www.robots.ox.ac.uk/~vgg/research/smooth-ap/"
    )
    kind: Literal["inaturalist2018"]

    def rows(self) -> list[LabelledFile]:
        """Images of one part, in file order; labels are such as `Aves/2761`, super-labels such as `Aves`."""
        name, rows = f"Inaturalist_{self.split}_set1.txt", []
        for line in read_lines(self.find(f"Inat_dataset_splits/{name}", name), ("path",)):
            parts = PurePosixPath(line["path"]).parts
            if len(parts) < 3:
                expected = "train_val2018/<super category>/<species>/<image>"
                raise line.error(f"'{line['path']}', expected {expected}")
            label = "/".join(parts[-3:-1])
            rows.append(LabelledFile(line["path"], label, self.split, super_label=parts[-3]))
        return rows


class VehicleIdConfig(PartedFolder):
    """PKU VehicleID: the folder with `image` and `train_test_split`.

    221,763 photos of 26,267 vehicles by road cameras. Liu et al., "Deep Relative Distance Learning: Tell the
    Difference Between Similar Vehicles", CVPR 2016.

    Attributes:
        test_size: Vehicles of the test list; the papers' small, medium and large are 800, 1600 and 2400.
        gallery_seed: None gives test images no part, so that they are searched among themselves; a number
            draws one image a vehicle for the gallery, as the authors do, and makes the others queries.
        gallery_draws: Draws, with this seed and those after it, over which a measurement averages.
    """

    origin: ClassVar[str] = "PKU VehicleID from https://www.pkuml.org/resources/pku-vehicleid.html"
    kind: Literal["vehicle_id"]
    test_size: Literal[800, 1600, 2400, 3200, 6000, 13164] = 800
    gallery_seed: int | None = Field(None, ge=0)
    gallery_draws: int = Field(1, ge=1)

    def rows(self) -> list[LabelledFile]:
        """Images of the training list or of one test list, in file order; labels are vehicle ids."""
        name = "train_list.txt" if self.split == "train" else f"test_list_{self.test_size}.txt"
        rows = [
            LabelledFile(f"image/{line['image']}.jpg", str(line.integer("vehicle")), self.split)
            for line in read_lines(self.find(f"train_test_split/{name}"), ("image", "vehicle"))
        ]
        if self.split == "train" or self.gallery_seed is None:
            return rows
        order = np.random.default_rng(self.gallery_seed).permutation(len(rows)).tolist()
        gallery = {rows[place].label: place for place in order}
        return [
            replace(row, role="gallery" if gallery[row.label] == place else "query")
            for place, row in enumerate(rows)
        ]


class GroceryStoreConfig(ImageFolder):
    """Grocery Store: the folder with `train.txt` and `classes.csv`, or the repository around it.

    The authors split by image: every part has every class. Images of one part are often of one visit to a
    shop, which makes searching a part among itself easy; search `train` with `test` instead. Photos of 81
    groceries, with coarse labels above the fine ones. Klasson, Zhang and Kjellström, "A Hierarchical Grocery
    Store Image Dataset with Visual and Semantic Labels", WACV 2019.
    """

    origin: ClassVar[str] = "Grocery Store from https://github.com/marcusklasson/GroceryStoreDataset"
    kind: Literal["grocery_store"]
    split: Literal["train", "val", "test"] = "train"

    def rows(self) -> list[LabelledFile]:
        """Images of one part, in file order; labels are fine names, super-labels coarse ones."""
        listing = self.find(f"{self.split}.txt", f"dataset/{self.split}.txt")
        folder = listing.parent.relative_to(self.root)
        columns = [(f"{level}Class ID (int)", f"{level}Class Name (str)") for level in ("", "Coarse ")]
        classes = list(read_csv(self.find("classes.csv", "dataset/classes.csv"), [*columns[0], *columns[1]]))
        fine, coarse = ({line.integer(number): line[name] for line in classes} for number, name in columns)

        def named(names: dict[int, str], line: Line, column: str) -> str:
            if line.integer(column) not in names:
                raise line.error(f"{column} {line[column]} is not in classes.csv")
            return names[line.integer(column)]

        return [
            LabelledFile(
                (folder / line["path"]).as_posix(),
                label=named(fine, line, "fine id"),
                role="train" if self.split == "train" else "test",
                super_label=named(coarse, line, "coarse id"),
            )
            for line in read_lines(listing, ("path", "fine id", "coarse id"), separator=",")
        ]


class Cub200Config(BoxedFolder):
    """CUB-200-2011, 200 species of birds: the folder with `images.txt`.

    11,788 photos. Wah et al., "The Caltech-UCSD Birds-200-2011 Dataset", 2011. Five text files say by number
    what is in `images/`.
    """

    origin: ClassVar[str] = "CUB-200-2011 from https://www.vision.caltech.edu/datasets/cub_200_2011/"
    kind: Literal["cub200"]

    def rows(self) -> list[LabelledFile]:
        """Images of one part, in the order of `images.txt`; labels are like `001.Black_footed_Albatross`."""
        images = _Table(self.find("images.txt"), "image_id", "path")
        classes = _Table(self.find("image_class_labels.txt"), "image_id", "class_id")
        names = _Table(self.find("classes.txt"), "class_id", "name")
        by_class = self.split_by == "class"
        parts = (
            None if by_class else _Table(self.find("train_test_split.txt"), "image_id", "is_training_image")
        )
        corners = ("x", "y", "width", "height")
        boxes = _Table(self.find("bounding_boxes.txt"), "image_id", *corners) if self.crop else None
        rows = []
        for line in images.lines.values():
            if parts is None:
                trained = classes.of(line, "image_id").integer("class_id") <= _LAST_TRAINING_CLASS
            else:
                trained = parts.of(line, "image_id").integer("is_training_image") == 1
            if trained == (self.split == "train"):
                name = names.of(classes.of(line, "image_id"), "class_id")["name"]
                box: Box | None = None
                if boxes is not None:
                    x, y, width, height = (boxes.of(line, "image_id").decimal(one) for one in corners)
                    box = x, y, x + width, y + height
                rows.append(LabelledFile(f"images/{line['path']}", name, self.split, box=box))
        return rows


class _Table:
    """Lines of one file by the number in their first column."""

    def __init__(self, path: Path, *columns: str) -> None:
        self.name = path.name
        self.lines = {line.integer(columns[0]): line for line in read_lines(path, columns)}

    def of(self, asking: Line, column: str) -> Line:
        number = asking.integer(column)
        if number not in self.lines:
            raise asking.error(f"{column} {number} is not in '{self.name}'")
        return self.lines[number]


class OmniglotConfig(PartedFolder):
    """Omniglot: the folder with `images_background` and `images_evaluation`, unpacked or as zip archives.

    `train` is the background set, `test` the evaluation set: 1,623 characters of 50 alphabets, each drawn by
    20 people, as `<alphabet>/<character>/<image>.png`; the repository has them in its folder `python`. Lake,
    Salakhutdinov and Tenenbaum, "Human-level concept learning through probabilistic program induction",
    Science 350, 2015.
    """

    origin: ClassVar[str] = "Omniglot from https://github.com/brendenlake/omniglot"
    kind: Literal["omniglot"]

    def rows(self) -> list[LabelledFile]:
        """Images of one part, by name; labels are such as `Greek/character05`, super-labels alphabets.

        A folder is preferred to the archive that it was unpacked from.
        """
        part = "images_background" if self.split == "train" else "images_evaluation"
        for above in ("", "python/"):
            folder = self.root / above / part
            if folder.is_dir():
                return self._rows(path.relative_to(self.root).as_posix() for path in folder.glob("*/*/*.png"))
        archive = self.find(f"{part}.zip", f"python/{part}.zip")
        try:
            with zipfile.ZipFile(archive) as opened:
                names = opened.namelist()
        except (OSError, zipfile.BadZipFile) as error:
            raise DatasetError(f"archive '{archive}' cannot be read: {error}") from error
        # Archives packed on a Mac hold a second, hidden tree.
        drawn = (one for one in names if one.endswith(".png") and PurePosixPath(one).parts[:-3] == (part,))
        return self._rows(drawn, archive.relative_to(self.root).as_posix())

    def _rows(self, names: Iterable[str], archive: str = "") -> list[LabelledFile]:
        rows = []
        for name in sorted(names):
            alphabet, character = PurePosixPath(name).parts[-3:-1]
            rows.append(LabelledFile(name, f"{alphabet}/{character}", self.split, alphabet, archive))
        return rows

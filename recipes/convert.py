"""Converts a published data set, in its authors' folder, to a manifest that training and evaluation read.

    python recipes/convert.py cub200 CUB_200_2011
    vicinal evaluate bundles/mine --data manifest:CUB_200_2011 --split test

It writes `manifest.csv` into the folder, with the columns path, label, split, role and super_label. A new
data set is a function here that yields a `Row` for each image.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """Image of a data set.

    Attributes:
        path: Path below the folder.
        label: Class of the image.
        is_test: Whether its authors measure on it.
        super_label: Group of classes; empty where there is none.
        role: `query` or `gallery` where the authors tell them apart.
        box: Left, top, right and bottom of the part that is meant, in pixels.
    """

    path: str
    label: str
    is_test: bool
    super_label: str = ""
    role: str = ""
    box: tuple[float, float, float, float] | None = None


def cub200(root: Path, chosen: argparse.Namespace) -> Iterator[Row]:
    """Give CUB-200-2011: 200 birds (Wah et al., 2011), https://www.vision.caltech.edu/datasets/cub_200_2011/."""
    classes, names = _by_number(root / "image_class_labels.txt"), _by_number(root / "classes.txt")
    trained, boxes = _by_number(root / "train_test_split.txt"), _by_number(root / "bounding_boxes.txt")
    for number, (path,) in _by_number(root / "images.txt").items():
        ((label,), (x, y, width, height)) = classes[number], map(float, boxes[number])
        is_test = int(label) > 100 if chosen.split_by == "class" else trained[number] == ["0"]
        box = (x, y, x + width, y + height)
        yield Row(f"images/{path}", names[label][0], is_test, box=box)


def cars196(root: Path, chosen: argparse.Namespace) -> Iterator[Row]:
    """Give Cars-196 (Krause et al., 2013): `car_ims` with `cars_annos.mat`; needs `pip install scipy`."""
    from scipy.io import loadmat

    tables = loadmat(root / "cars_annos.mat", squeeze_me=True)
    for car in tables["annotations"]:
        label = int(car["class"])
        is_test = label > 98 if chosen.split_by == "class" else bool(car["test"])
        # MATLAB counts pixels from 1, and the last corner belongs to the box.
        x1, y1, x2, y2 = (float(car[f"bbox_{one}"]) for one in ("x1", "y1", "x2", "y2"))
        name = str(tables["class_names"][label - 1])
        yield Row(str(car["relative_im_path"]), name, is_test, box=(x1 - 1, y1 - 1, x2, y2))


def sop(root: Path, _: argparse.Namespace) -> Iterator[Row]:
    """Give Stanford Online Products (Song et al., CVPR 2016), https://cvgl.stanford.edu/projects/lifted_struct/."""
    for part in ("train", "test"):
        for _number, label, super_label, path in _lines(root / f"Ebay_{part}.txt", skip=1):
            yield Row(path, label, part == "test", super_label)


def in_shop(root: Path, _: argparse.Namespace) -> Iterator[Row]:
    """Give DeepFashion In-shop Clothes Retrieval (Liu et al., CVPR 2016): `Eval` and `Img/img`."""
    for path, label, role in _lines(root / "Eval/list_eval_partition.txt", skip=2):
        super_label = "/".join(path.split("/")[1:3])
        yield Row(f"Img/{path}", label, role != "train", super_label, role)


def inaturalist2018(root: Path, _: argparse.Namespace) -> Iterator[Row]:
    """Give iNaturalist 2018 (Van Horn et al., CVPR 2018), split by species (Brown et al., ECCV 2020)."""
    for part in ("train", "test"):
        for (path,) in _lines(root / f"Inat_dataset_splits/Inaturalist_{part}_set1.txt"):
            super_label, species = path.split("/")[-3:-1]
            yield Row(path, f"{super_label}/{species}", part == "test", super_label)


def vehicle_id(root: Path, chosen: argparse.Namespace) -> Iterator[Row]:
    """Give PKU VehicleID (Liu et al., CVPR 2016); one drawn image a vehicle is the gallery."""
    lists = root / "train_test_split"
    for number, label in _lines(lists / "train_list.txt"):
        yield Row(f"image/{number}.jpg", label, is_test=False)
    rows = list(_lines(lists / f"test_list_{chosen.test_size}.txt"))
    order = random.Random(chosen.seed).sample(rows, len(rows))
    gallery = {label: number for number, label in order}
    for number, label in rows:
        role = "gallery" if gallery[label] == number else "query"
        yield Row(f"image/{number}.jpg", label, is_test=True, role=role)


def omniglot(root: Path, _: argparse.Namespace) -> Iterator[Row]:
    """Give Omniglot (Lake et al., Science 2015): `images_background` and `images_evaluation`, unpacked."""
    for part in ("images_background", "images_evaluation"):
        for path in sorted((root / part).glob("*/*/*.png")):
            alphabet, character = path.parts[-3:-1]
            name = path.relative_to(root).as_posix()
            yield Row(name, f"{alphabet}/{character}", part == "images_evaluation", alphabet)


def grocery_store(root: Path, _: argparse.Namespace) -> Iterator[Row]:
    """Give Grocery Store (Klasson et al., WACV 2019): the folder `dataset`; both parts have every class."""
    with (root / "classes.csv").open(encoding="utf-8", newline="") as file:
        classes = {row["Class ID (int)"]: row for row in csv.DictReader(file)}
    for part in ("train", "test"):
        for path, number, _coarse in _lines(root / f"{part}.txt", separator=","):
            names = classes[number]
            yield Row(path, names["Class Name (str)"], part == "test", names["Coarse Class Name (str)"])


SETS = {
    one.__name__: one
    for one in (cub200, cars196, sop, in_shop, inaturalist2018, vehicle_id, omniglot, grocery_store)
}


def _lines(path: Path, skip: int = 0, separator: str | None = None) -> Iterator[list[str]]:
    for line in path.read_text(encoding="utf-8-sig").splitlines()[skip:]:
        if line.strip():
            yield [part.strip() for part in line.split(separator)]


def _by_number(path: Path) -> dict[str, list[str]]:
    return {number: rest for number, *rest in _lines(path)}


def _cut(root: Path, row: Row) -> str:
    """Path of the part of an image that its box names, which is kept in `cropped`."""
    from PIL import Image

    path = Path("cropped", row.path).with_suffix(".png")
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    with Image.open(root / row.path) as image:
        left, top, right, bottom = map(round, row.box or (0, 0, *image.size))
        # A box may reach over the edge; what lies outside would come out black.
        box = (max(left, 0), max(top, 0), min(right, image.width), min(bottom, image.height))
        image.crop(box).save(root / path)
    return path.as_posix()


def main(words: list[str] | None = None) -> None:
    """Write the manifest of a data set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("set", choices=SETS, help="the data set")
    parser.add_argument("root", type=Path, help="the folder that its archive unpacks to")
    parser.add_argument(
        "--split-by",
        choices=("class", "image"),
        default="class",
        help="of cub200 and cars196: the halves of the classes, or the authors' parts",
    )
    parser.add_argument("--crop", action="store_true", help="cut images to boxes, into `cropped`")
    parser.add_argument("--test-size", type=int, default=800, help="of vehicle_id: vehicles of the test list")
    parser.add_argument("--seed", type=int, default=0, help="of vehicle_id: the draw of the gallery")
    chosen = parser.parse_args(words)
    with (chosen.root / "manifest.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "label", "split", "role", "super_label"])
        for row in SETS[chosen.set](chosen.root, chosen):
            split = "test" if row.is_test else "train"
            path = _cut(chosen.root, row) if chosen.crop else row.path
            table.writerow([path, row.label, split, row.role or split, row.super_label])


if __name__ == "__main__":
    main()

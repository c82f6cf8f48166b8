"""Tiny data sets in their authors' layouts; an image's color follows from its path, so that tests know it."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import TypeAdapter

from vicinal.training.datasets.layouts import DatasetConfig

MakeSet = Callable[[str], Path]
Configure = Callable[..., DatasetConfig]


def _color_of(path: str) -> tuple[int, int, int]:
    """The color of the image at `path` inside its data set."""
    return tuple(zlib.crc32(path.encode()).to_bytes(4)[:3])


def _png(path: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (24, 20), _color_of(path)).save(stream, "PNG")
    return stream.getvalue()


def _write_images(root: Path, paths: Iterable[str]) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        # PNG under any name: JPEG would change the color.
        (root / path).write_bytes(_png(path))


def _write_lines(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _write_zip(path: Path, members: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for member in members:
            archive.writestr(member, _png(member))


def _cub200(root: Path) -> None:
    images = ["001.Albatross/a1.jpg", "100.Pelican/p1.jpg", "100.Pelican/p2.jpg", "101.Pewee/w1.jpg"]
    classes = [1, 100, 100, 101]
    _write_lines(root / "images.txt", *(f"{n} {path}" for n, path in enumerate(images, 1)))
    _write_lines(root / "image_class_labels.txt", *(f"{n} {label}" for n, label in enumerate(classes, 1)))
    _write_lines(root / "classes.txt", "1 001.Albatross", "100 100.Pelican", "101 101.Pewee")
    _write_lines(root / "train_test_split.txt", "1 1", "2 1", "3 0", "4 0")
    _write_lines(root / "bounding_boxes.txt", *(f"{n} 2.0 3.0 12.0 10.0" for n in (1, 2, 3, 4)))
    _write_images(root, (f"images/{path}" for path in images))


def _sop(root: Path) -> None:
    header = "image_id class_id super_class_id path"
    train = ["1 1 1 bicycle_final/b_0.JPG", "2 1 1 bicycle_final/b_1.JPG", "3 2 2 cabinet_final/c_0.JPG"]
    test = ["4 11319 1 bicycle_final/d_0.JPG"]
    _write_lines(root / "Ebay_train.txt", header, *train)
    _write_lines(root / "Ebay_test.txt", header, *test)
    _write_images(root, (line.split()[-1] for line in train + test))


def _in_shop(root: Path) -> None:
    rows = {
        "img/WOMEN/Dresses/id_00000002/02_1_front.jpg": ("id_00000002", "train"),
        "img/MEN/Denim/id_00000080/01_1_front.jpg": ("id_00000080", "train"),
        "img/WOMEN/Dresses/id_00000001/02_1_front.jpg": ("id_00000001", "query"),
        "img/WOMEN/Dresses/id_00000001/02_2_side.jpg": ("id_00000001", "gallery"),
    }
    lines = (f"{path:<70}{item} {status}" for path, (item, status) in rows.items())
    header = "image_name item_id evaluation_status"
    _write_lines(root / "Eval/list_eval_partition.txt", str(len(rows)), header, *lines)
    _write_images(root, (f"Img/{path}" for path in rows))


def _inaturalist2018(root: Path) -> None:
    train = ["train_val2018/Aves/2761/a.jpg", "train_val2018/Plantae/7477/b.jpg"]
    test = ["train_val2018/Aves/3001/c.jpg"]
    _write_lines(root / "Inat_dataset_splits/Inaturalist_train_set1.txt", *train)
    _write_lines(root / "Inat_dataset_splits/Inaturalist_test_set1.txt", *test)
    _write_images(root, train + test)


def _vehicle_id(root: Path) -> None:
    lists = root / "train_test_split"
    _write_lines(lists / "train_list.txt", "0000001 5", "0000002 5", "0000003 7")
    _write_lines(lists / "test_list_800.txt", "0000004 8", "0000005 8", "0000006 8", "0000007 9", "0000008 9")
    _write_lines(lists / "test_list_1600.txt", "0000004 8")
    _write_images(root, (f"image/{number:07d}.jpg" for number in range(1, 9)))


def _omniglot(root: Path) -> None:
    characters = ("Greek/character01", "Greek/character02", "Latin/character01")
    drawings = [f"{name}/0{index}_01.png" for index, name in enumerate(characters)]
    _write_images(root, (f"images_background/{path}" for path in drawings))
    _write_zip(
        root / "images_evaluation.zip", [f"images_evaluation/{drawings[0]}".replace("Greek", "Tengwar")]
    )


def _grocery_store(root: Path) -> None:
    columns = (
        "Class Name (str)",
        "Class ID (int)",
        "Coarse Class Name (str)",
        "Coarse Class ID (int)",
        "Path",
    )
    classes = ("Granny-Smith,0,Apple,0,/a.jpg", "Pink-Lady,1,Apple,0,/b.jpg", "Floory,2,Potato,7,/c.jpg")
    _write_lines(root / "classes.csv", ",".join(columns), *classes)
    for split in ("train", "val", "test"):
        paths = [f"{split}/Fruit/Apple/Pink-Lady/1.jpg", f"{split}/Vegetables/Potato/Floory/1.jpg"]
        _write_lines(root / f"{split}.txt", f"{paths[0]}, 1, 0", f"{paths[1]}, 2, 7")
        _write_images(root, paths)


_CARS = {1: "Acura TL", 98: "Dodge Ram", 99: "Eagle Talon"}


def _matlab_table(rows: list[dict[str, object]]) -> np.ndarray:
    table = np.empty((1, len(rows)), dtype=[(name, object) for name in rows[0]])
    for position, row in enumerate(rows):
        table[0, position] = tuple(row.values())
    return table


def _matlab_names() -> np.ndarray:
    names = np.empty((1, 196), dtype=object)
    names[0, :] = [_CARS.get(number, f"car {number}") for number in range(1, 197)]
    return names


_CAR_BOX = {"bbox_x1": 3, "bbox_y1": 4, "bbox_x2": 8, "bbox_y2": 7}


def _cars196(root: Path) -> None:
    io_module = pytest.importorskip("scipy.io")
    root.mkdir(parents=True)
    paths = [f"car_ims/00000{n}.jpg" for n in range(1, 5)]
    rows = [
        {"relative_im_path": path, **_CAR_BOX, "class": label, "test": is_test}
        for path, label, is_test in zip(paths, (1, 98, 98, 99), (0, 0, 1, 1), strict=True)
    ]
    tables = {"annotations": _matlab_table(rows), "class_names": _matlab_names()}
    io_module.savemat(root / "cars_annos.mat", tables)
    _write_images(root, paths)


def _cars196_devkit(root: Path) -> None:
    io_module = pytest.importorskip("scipy.io")
    (root / "devkit").mkdir(parents=True)
    io_module.savemat(root / "devkit/cars_meta.mat", {"class_names": _matlab_names()})
    for name, folder, labels in (
        ("devkit/cars_train_annos.mat", "cars_train", (1, 99)),
        ("cars_test_annos_withlabels.mat", "cars_test", (98,)),
    ):
        files = [f"0000{n}.jpg" for n in range(1, len(labels) + 1)]
        rows = [{**_CAR_BOX, "class": c, "fname": file} for c, file in zip(labels, files, strict=True)]
        io_module.savemat(root / name, {"annotations": _matlab_table(rows)})
        _write_images(root, (f"{folder}/{file}" for file in files))


_WRITERS = {
    "cars196": _cars196,
    "cars196_devkit": _cars196_devkit,
    "cub200": _cub200,
    "grocery_store": _grocery_store,
    "in_shop": _in_shop,
    "inaturalist2018": _inaturalist2018,
    "omniglot": _omniglot,
    "sop": _sop,
    "vehicle_id": _vehicle_id,
}


@pytest.fixture(params=sorted(_WRITERS))
def layout(request: pytest.FixtureRequest) -> str:
    """Each layout in turn."""
    return request.param


@pytest.fixture
def layouts() -> set[str]:
    """Every layout."""
    return set(_WRITERS)


@pytest.fixture
def make_set(tmp_path: Path) -> MakeSet:
    """Writes a tiny data set in a layout and returns its folder."""

    def make(layout: str) -> Path:
        root = tmp_path / layout
        _WRITERS[layout](root)
        return root

    return make


@pytest.fixture
def configure(make_set: MakeSet) -> Configure:
    """Writes a tiny data set and returns its configuration; keyword arguments are its further fields."""

    def make(layout: str, **fields: object) -> DatasetConfig:
        root = make_set(layout)
        kind = layout.removesuffix("_devkit")
        return TypeAdapter(DatasetConfig).validate_python({"kind": kind, "root": root, **fields})

    return make


@pytest.fixture
def color_of() -> Callable[[str], tuple[int, int, int]]:
    """Gives the color of the image at a path inside its data set."""
    return _color_of


@pytest.fixture
def png() -> Callable[[str], bytes]:
    """Gives the bytes of the image at a path inside its data set."""
    return _png


@pytest.fixture
def write_images() -> Callable[[Path, Iterable[str]], None]:
    """Writes an image for each path below a folder."""
    return _write_images


@pytest.fixture
def write_lines() -> Callable[..., None]:
    """Writes a text file of lines."""
    return _write_lines

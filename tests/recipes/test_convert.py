"""Converters of published data sets: a tiny one in its authors' form becomes a manifest that is read."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recipes import convert, revisited
from vicinal.models.bundle import ModelBundle
from vicinal.training.datasets import list_images
from vicinal.training.datasets.layouts.manifest import ManifestConfig

CARS_BOX = {"bbox_x1": 3, "bbox_y1": 4, "bbox_x2": 8, "bbox_y2": 7}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def cub200(root: Path) -> None:
    write(
        root,
        {
            "images.txt": "1 001.Albatross/a.jpg\n2 100.Pelican/b.jpg\n3 101.Pewee/c.jpg\n",
            "image_class_labels.txt": "1 1\n2 100\n3 101\n",
            "classes.txt": "1 001.Albatross\n100 100.Pelican\n101 101.Pewee\n",
            "train_test_split.txt": "1 1\n2 0\n3 1\n",
            "bounding_boxes.txt": "1 2.0 3.0 12.0 10.0\n2 2.0 3.0 12.0 10.0\n3 -2.0 3.0 99.0 10.0\n",
        },
    )


def cars196(root: Path) -> None:
    io = pytest.importorskip("scipy.io")
    cars = [("car_ims/1.jpg", 1, 0), ("car_ims/2.jpg", 98, 1), ("car_ims/3.jpg", 99, 0)]
    fields = ("relative_im_path", "class", "test", *CARS_BOX)
    table = np.array([(*car, *CARS_BOX.values()) for car in cars], [(name, object) for name in fields])
    names = np.array([f"car {number}" for number in range(1, 197)], object)
    io.savemat(root / "cars_annos.mat", {"annotations": table, "class_names": names})


def sop(root: Path) -> None:
    head = "image_id class_id super_class_id path\n"
    write(root, {"Ebay_train.txt": f"{head}1 7 1 a.JPG\n", "Ebay_test.txt": f"{head}2 8 2 b.JPG\n"})


def in_shop(root: Path) -> None:
    rows = {
        "WOMEN/Tees/id_1/a.jpg": "train",
        "MEN/Denim/id_2/b.jpg": "query",
        "MEN/Denim/id_2/c.jpg": "gallery",
    }
    lines = [f"img/{path}    {path.split('/')[2]} {role}" for path, role in rows.items()]
    table = "\n".join(["3", "image_name item_id evaluation_status", *lines])
    write(root, {"Eval/list_eval_partition.txt": table})


def inaturalist2018(root: Path) -> None:
    lists = root / "Inat_dataset_splits"
    write(lists, {"Inaturalist_train_set1.txt": "train_val2018/Aves/1/a.jpg\n"})
    write(lists, {"Inaturalist_test_set1.txt": "train_val2018/Fungi/2/b.jpg\n"})


def vehicle_id(root: Path) -> None:
    lists = {"train_list.txt": "01 5\n", "test_list_800.txt": "02 8\n03 8\n04 8\n05 9\n06 9\n"}
    write(root / "train_test_split", lists)


def omniglot(root: Path) -> None:
    write(root, {"images_background/Greek/c1/1.png": "", "images_evaluation/Oriya/c2/2.png": ""})


def grocery_store(root: Path) -> None:
    head = "Class Name (str),Class ID (int),Coarse Class Name (str),Coarse Class ID (int)"
    write(root, {"classes.csv": f"{head}\nPink-Lady,0,Apple,0\nFloury,1,Potato,7\n"})
    write(root, {"train.txt": "train/a.jpg, 0, 0\n", "test.txt": "test/b.jpg, 1, 7\n"})


@pytest.mark.parametrize(
    ("write_set", "expected"),
    [
        (cub200, [("001.Albatross", "train"), ("100.Pelican", "train"), ("101.Pewee", "test")]),
        (cars196, [("car 1", "train"), ("car 98", "train"), ("car 99", "test")]),
        (sop, [("7", "train"), ("8", "test")]),
        (in_shop, [("id_1", "train"), ("id_2", "query"), ("id_2", "gallery")]),
        (inaturalist2018, [("Aves/1", "train"), ("Fungi/2", "test")]),
        (omniglot, [("Greek/c1", "train"), ("Oriya/c2", "test")]),
        (grocery_store, [("Pink-Lady", "train"), ("Floury", "test")]),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_manifest_says_label_and_role_of_every_image(
    tmp_path: Path, write_set: object, expected: list[tuple[str, str]]
) -> None:
    write_set(tmp_path)  # type: ignore[operator]
    convert.main([write_set.__name__, str(tmp_path)])  # type: ignore[attr-defined]
    listed = list_images(ManifestConfig(kind="manifest", root=tmp_path)).files
    assert [(one.label, one.role) for one in listed] == expected
    of_test = ManifestConfig(kind="manifest", root=tmp_path, split="test").rows()
    assert [(one.label, one.role) for one in of_test] == [one for one in expected if one[1] != "train"]


def test_every_data_set_is_tried() -> None:
    assert set(convert.SETS) == {
        *("cub200", "cars196", "sop", "in_shop", "inaturalist2018", "vehicle_id", "omniglot", "grocery_store")
    }


@pytest.mark.parametrize("write_set", [cub200, cars196])
def test_the_authors_own_parts_may_be_taken(tmp_path: Path, write_set: object) -> None:
    write_set(tmp_path)  # type: ignore[operator]
    convert.main([write_set.__name__, str(tmp_path), "--split-by", "image"])  # type: ignore[attr-defined]
    roles = [one.role for one in ManifestConfig(kind="manifest", root=tmp_path).rows()]
    assert roles == ["train", "test", "train"]


def test_one_drawn_image_a_vehicle_is_its_gallery(tmp_path: Path) -> None:
    vehicle_id(tmp_path)
    drawn = set()
    for seed in range(20):
        convert.main(["vehicle_id", str(tmp_path), "--seed", str(seed)])
        rows = ManifestConfig(kind="manifest", root=tmp_path, split="test").rows()
        gallery = [one for one in rows if one.role == "gallery"]
        assert sorted(one.label for one in gallery) == ["8", "9"]
        drawn |= {one.path for one in gallery}
    assert len(drawn) == 5


def test_images_are_cut_to_their_boxes(tmp_path: Path) -> None:
    cub200(tmp_path)
    for name in ("001.Albatross/a.jpg", "100.Pelican/b.jpg", "101.Pewee/c.jpg"):
        (tmp_path / "images" / name).parent.mkdir(parents=True)
        Image.new("RGB", (30, 40)).save(tmp_path / "images" / name)
    convert.main(["cub200", str(tmp_path), "--crop"])
    rows = ManifestConfig(kind="manifest", root=tmp_path).rows()
    sizes = []
    for one in rows:
        with Image.open(tmp_path / one.path) as image:
            sizes.append(image.size)
    assert sizes == [(12, 10), (12, 10), (30, 10)]


@pytest.fixture
def landmarks(tmp_path: Path) -> Path:
    """Two queries; the first has an easy and a hard image, and a copy of itself as junk."""
    root = tmp_path / "roxford5k"
    (root / "jpg").mkdir(parents=True)
    rng = np.random.default_rng(0)
    bases = rng.integers(0, 255, (4, 40, 40, 3))
    gallery = {"a1": (1, 1), "a2": (1, 2), "b1": (2, 1), "b2": (2, 2), "copy": (1, 0), "other": (3, 0)}
    queries = {"qa": (1, 0), "qb": (2, 0)}
    for name, (landmark, view) in (gallery | queries).items():
        pixels = np.clip(bases[landmark] + view, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(root / "jpg" / f"{name}.jpg", quality=100)
    box = [0.0, 0.0, 40.0, 40.0]
    content = {
        "imlist": list(gallery),
        "qimlist": list(queries),
        "gnd": [
            {"bbx": box, "easy": [0], "hard": [1], "junk": [4]},
            {"bbx": box, "easy": [2], "hard": [], "junk": [3]},
        ],
    }
    (root / "gnd_roxford5k.pkl").write_bytes(pickle.dumps(content))
    return root


def test_landmarks_are_measured_by_difficulty(landmarks: Path, tiny_bundle: ModelBundle) -> None:
    """Were junk not passed over, the copy would stand before every relevant image of the first query."""
    figures = revisited.measured(landmarks, tiny_bundle.path)
    assert (figures["easy mAP"], figures["hard mP@1"]) == (1.0, 1.0)


def test_a_ground_truth_that_is_a_program_is_refused(landmarks: Path, tiny_bundle: ModelBundle) -> None:
    (landmarks / "gnd_roxford5k.pkl").write_bytes(pickle.dumps(print))
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print"):
        revisited.measured(landmarks, tiny_bundle.path)

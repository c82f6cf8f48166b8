"""Cars-196: both of the authors' layouts, and MATLAB files that cannot be used."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from numpy.lib import recfunctions

from vicinal.models.errors import DatasetError, MissingPackageError
from vicinal.training.datasets import LabelledFile, list_images
from vicinal.training.datasets.layouts import DatasetConfig

Configure = Callable[..., DatasetConfig]


def test_the_first_98_classes_are_for_training(configure: Configure) -> None:
    train = list_images(configure("cars196"))
    assert train.files == (
        LabelledFile("car_ims/000001.jpg", "Acura TL"),
        LabelledFile("car_ims/000002.jpg", "Dodge Ram"),
        LabelledFile("car_ims/000003.jpg", "Dodge Ram"),
    )


def test_the_other_classes_are_for_testing(configure: Configure) -> None:
    test = list_images(configure("cars196", split="test"))
    assert test.files == (LabelledFile("car_ims/000004.jpg", "Eagle Talon", "test"),)


def test_the_split_by_class_draws_on_both_folders(configure: Configure) -> None:
    train = list_images(configure("cars196_devkit"))
    assert train.files == (
        LabelledFile("cars_train/00001.jpg", "Acura TL"),
        LabelledFile("cars_test/00001.jpg", "Dodge Ram"),
    )


@pytest.mark.parametrize(
    ("layout", "split", "expected"),
    [
        ("cars196", "train", ["car_ims/000001.jpg", "car_ims/000002.jpg"]),
        ("cars196", "test", ["car_ims/000003.jpg", "car_ims/000004.jpg"]),
        ("cars196_devkit", "train", ["cars_train/00001.jpg", "cars_train/00002.jpg"]),
        ("cars196_devkit", "test", ["cars_test/00001.jpg"]),
    ],
)
def test_the_authors_split_is_by_image(
    configure: Configure, layout: str, split: str, expected: list[str]
) -> None:
    listing = list_images(configure(layout, split=split, split_by="image"))
    assert [file.path for file in listing.files] == expected


@pytest.mark.parametrize("layout", ["cars196", "cars196_devkit"])
def test_crop_counts_pixels_from_zero(configure: Configure, layout: str) -> None:
    """MATLAB's corners (3, 4) and (8, 7) both belong to the box."""
    listing = list_images(configure(layout, crop=True))
    assert {file.box for file in listing.files} == {(2.0, 3.0, 8.0, 7.0)}


def test_test_labels_may_lie_in_the_devkit(configure: Configure) -> None:
    config = configure("cars196_devkit")
    name = "cars_test_annos_withlabels.mat"
    (config.root / name).rename(config.root / "devkit" / name)
    assert len(list_images(config)) == 2


def test_annotations_of_neither_layout_are_asked_for(configure: Configure) -> None:
    config = configure("cars196")
    (config.root / "cars_annos.mat").unlink()
    with pytest.raises(DatasetError, match=r"no file 'devkit/cars_train_annos\.mat' or 'cars_annos\.mat'"):
        list_images(config)


def test_test_annotations_without_labels_are_refused(configure: Configure) -> None:
    """The devkit's own `cars_test_annos.mat` has none."""
    config = configure("cars196_devkit")
    scipy_io = pytest.importorskip("scipy.io")
    tables = scipy_io.loadmat(config.root / "cars_test_annos_withlabels.mat")
    unlabelled = recfunctions.drop_fields(tables["annotations"], "class")
    scipy_io.savemat(config.root / "cars_test_annos_withlabels.mat", {"annotations": unlabelled})
    with pytest.raises(DatasetError, match=r"withlabels\.mat' has no 'annotations' with the field 'class'"):
        list_images(config)


def test_an_annotation_with_an_unknown_class_is_named(configure: Configure) -> None:
    config = configure("cars196_devkit")
    scipy_io = pytest.importorskip("scipy.io")
    tables = scipy_io.loadmat(config.root / "devkit/cars_train_annos.mat")
    tables["annotations"][0, 0]["class"] = 0
    scipy_io.savemat(config.root / "devkit/cars_train_annos.mat", {"annotations": tables["annotations"]})
    with pytest.raises(DatasetError, match=r"cars_train/00001\.jpg' has class 0 of 196"):
        list_images(config)


def test_an_annotation_without_numbers_is_named(configure: Configure) -> None:
    config = configure("cars196_devkit")
    scipy_io = pytest.importorskip("scipy.io")
    tables = scipy_io.loadmat(config.root / "devkit/cars_train_annos.mat")
    tables["annotations"][0, 1]["bbox_x1"] = "left"
    scipy_io.savemat(config.root / "devkit/cars_train_annos.mat", {"annotations": tables["annotations"]})
    with pytest.raises(DatasetError, match=r"annos\.mat' annotation 2: .*'00002\.jpg' are no numbers"):
        list_images(config)


@pytest.mark.parametrize("content", [b"", b"no table", b"MATLAB 5.0 MAT-file" + bytes(200)])
def test_a_damaged_file_is_named(configure: Configure, content: bytes) -> None:
    config = configure("cars196")
    (config.root / "cars_annos.mat").write_bytes(content)
    with pytest.raises(DatasetError, match=r"cars_annos\.mat'"):
        list_images(config)


def test_without_scipy_the_extra_is_named(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure("cars196")
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(MissingPackageError, match=r"scipy: pip install '?efficientnet"):
        list_images(config)

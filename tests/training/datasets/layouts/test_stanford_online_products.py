"""Stanford Online Products: classes, categories and parts."""

from __future__ import annotations

from collections.abc import Callable

from vicinal.training.datasets import LabelledFile, list_images
from vicinal.training.datasets.layouts import DatasetConfig

Configure = Callable[..., DatasetConfig]


def test_rows_have_classes_and_categories(configure: Configure) -> None:
    assert list_images(configure("sop")).files == (
        LabelledFile("bicycle_final/b_0.JPG", "1", super_label="1"),
        LabelledFile("bicycle_final/b_1.JPG", "1", super_label="1"),
        LabelledFile("cabinet_final/c_0.JPG", "2", super_label="2"),
    )


def test_the_test_part_is_the_file_of_that_name(configure: Configure) -> None:
    test = list_images(configure("sop", split="test"))
    assert test.files == (LabelledFile("bicycle_final/d_0.JPG", "11319", "test", "1"),)


def test_a_list_without_its_header_loses_no_image(configure: Configure) -> None:
    config = configure("sop")
    before, path = list_images(config).files, config.root / "Ebay_train.txt"
    path.write_text(path.read_text().partition("\n")[2])
    assert list_images(config).files == before


def test_labels_and_super_labels_begin_with_the_name_of_the_folder(configure: Configure) -> None:
    listing = list_images(configure("sop"))
    assert listing.labels.tolist() == ["sop:1", "sop:1", "sop:2"]
    assert listing.super_labels.tolist() == ["sop:1", "sop:1", "sop:2"]

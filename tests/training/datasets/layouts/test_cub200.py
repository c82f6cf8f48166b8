"""CUB-200-2011: the split by class, the authors' split by image, and bounding boxes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from vicinal.models.errors import DatasetError
from vicinal.training.datasets import LabelledFile, list_images, load_datasets
from vicinal.training.datasets.layouts import DatasetConfig

Configure = Callable[..., DatasetConfig]


def test_the_first_hundred_classes_are_for_training(configure: Configure) -> None:
    train = list_images(configure("cub200"))
    assert train.files == (
        LabelledFile("images/001.Albatross/a1.jpg", "001.Albatross"),
        LabelledFile("images/100.Pelican/p1.jpg", "100.Pelican"),
        LabelledFile("images/100.Pelican/p2.jpg", "100.Pelican"),
    )


def test_the_other_classes_are_for_testing(configure: Configure) -> None:
    test = list_images(configure("cub200", split="test"))
    assert test.files == (LabelledFile("images/101.Pewee/w1.jpg", "101.Pewee", "test"),)


@pytest.mark.parametrize(("split", "expected"), [("train", ["a1", "p1"]), ("test", ["p2", "w1"])])
def test_the_authors_split_is_by_image(configure: Configure, split: str, expected: list[str]) -> None:
    listing = list_images(configure("cub200", split=split, split_by="image"))
    assert [file.path[-6:-4] for file in listing.files] == expected


def test_crop_keeps_the_bounding_box(configure: Configure) -> None:
    """The file gives left, top, width and height: here columns 2 to 13 and rows 3 to 12 of the image."""
    config = configure("cub200", split="test", crop=True)
    pixels = np.zeros((20, 24, 3), np.uint8)
    pixels[3:13, 2:14] = 255
    path = config.root / "images/101.Pewee/w1.jpg"
    Image.fromarray(pixels).save(path, "PNG")
    cut = load_datasets([config], lambda image: image).pixels
    assert cut.shape == (1, 10, 12, 3)
    assert cut.min() == 255


def test_a_box_that_reaches_over_the_edge_ends_there(configure: Configure) -> None:
    """Pillow would fill what lies outside with black."""
    config = configure("cub200", split="test", crop=True)
    boxes = config.root / "bounding_boxes.txt"
    boxes.write_text(boxes.read_text().replace("4 2.0 3.0 12.0 10.0", "4 -5.0 9.0 18.0 30.0"))
    assert load_datasets([config], lambda image: image).pixels.shape == (1, 11, 13, 3)


def test_a_box_outside_of_its_image_is_refused(configure: Configure) -> None:
    config = configure("cub200", crop=True)
    boxes = config.root / "bounding_boxes.txt"
    boxes.write_text(boxes.read_text().replace("2 2.0 3.0", "2 200.0 3.0"))
    with pytest.raises(DatasetError, match=r"p1\.jpg' is 24 x 20 pixels, its box is \(200"):
        load_datasets([config], lambda image: image.resize((4, 4)))


def test_a_damaged_image_with_a_box_is_named(configure: Configure) -> None:
    config = configure("cub200", crop=True)
    (config.root / "images/100.Pelican/p2.jpg").write_bytes(b"no picture")
    with pytest.raises(DatasetError, match=r"p2\.jpg' cannot be used: the bytes are no image"):
        load_datasets([config], lambda image: image.resize((4, 4)))


def test_boxes_are_read_only_when_they_are_needed(configure: Configure) -> None:
    config = configure("cub200")
    (config.root / "bounding_boxes.txt").unlink()
    assert len(list_images(config)) == 3
    with pytest.raises(DatasetError, match=r"no file 'bounding_boxes\.txt'"):
        list_images(config.model_copy(update={"crop": True}))


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        (
            "image_class_labels.txt",
            {},
            r"images\.txt' line 4: image_id 4 is not in 'image_class_labels\.txt'",
        ),
        ("train_test_split.txt", {"split_by": "image"}, "line 4: image_id 4 is not in 'train_test_split"),
        (
            "bounding_boxes.txt",
            {"crop": True, "split": "test"},
            "line 4: image_id 4 is not in 'bounding_boxes",
        ),
        ("classes.txt", {"split": "test"}, r"labels\.txt' line 4: class_id 101 is not in 'classes\.txt'"),
    ],
)
def test_an_image_that_a_file_leaves_out_is_named(
    configure: Configure, name: str, fields: dict[str, object], message: str
) -> None:
    """Each of the files loses its last line."""
    config = configure("cub200", **fields)
    lines = (config.root / name).read_text().splitlines()
    (config.root / name).write_text("\n".join(lines[:-1]))
    with pytest.raises(DatasetError, match=message):
        list_images(config)

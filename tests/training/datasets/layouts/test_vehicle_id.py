"""PKU VehicleID: the test lists, and the gallery of one image a vehicle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from vicinal.models.errors import DatasetError
from vicinal.training.datasets import LabelledFile, list_images
from vicinal.training.datasets.layouts import DatasetConfig

Configure = Callable[..., DatasetConfig]


def test_training_rows_are_those_of_the_training_list(configure: Configure) -> None:
    assert list_images(configure("vehicle_id")).files == (
        LabelledFile("image/0000001.jpg", "5"),
        LabelledFile("image/0000002.jpg", "5"),
        LabelledFile("image/0000003.jpg", "7"),
    )


@pytest.mark.parametrize(("size", "n_images"), [(800, 5), (1600, 1)])
def test_the_test_list_is_that_of_the_size(configure: Configure, size: int, n_images: int) -> None:
    test = list_images(configure("vehicle_id", split="test", test_size=size))
    assert test.roles.tolist() == ["test"] * n_images


def test_a_missing_test_list_is_named(configure: Configure) -> None:
    with pytest.raises(DatasetError, match=r"no file 'train_test_split/test_list_2400\.txt'"):
        list_images(configure("vehicle_id", split="test", test_size=2400))


def test_a_seed_draws_one_gallery_image_a_vehicle(configure: Configure) -> None:
    config = configure("vehicle_id", split="test")
    drawn = {}
    for seed in range(20):
        listing = list_images(config.model_copy(update={"gallery_seed": seed}))
        gallery = listing.only("gallery")
        assert Counter(gallery.labels.tolist()) == {"vehicle_id:8": 1, "vehicle_id:9": 1}
        assert listing.roles.tolist().count("query") == 3
        drawn[tuple(file.path for file in gallery.files)] = seed
    assert len(drawn) == 6


def test_the_draw_depends_on_its_seed_alone(configure: Configure) -> None:
    config = configure("vehicle_id", split="test", gallery_seed=3)
    assert list_images(config).files == list_images(config).files

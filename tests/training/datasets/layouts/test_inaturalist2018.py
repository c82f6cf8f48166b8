"""iNaturalist 2018: species, super-categories, and where the lists lie."""

from __future__ import annotations

from collections.abc import Callable

from vicinal.training.datasets import LabelledFile, list_images
from vicinal.training.datasets.layouts import DatasetConfig

Configure = Callable[..., DatasetConfig]


def test_rows_have_species_and_super_categories(configure: Configure) -> None:
    assert list_images(configure("inaturalist2018")).files == (
        LabelledFile("train_val2018/Aves/2761/a.jpg", "Aves/2761", super_label="Aves"),
        LabelledFile("train_val2018/Plantae/7477/b.jpg", "Plantae/7477", super_label="Plantae"),
    )


def test_the_test_part_is_the_list_of_that_name(configure: Configure) -> None:
    test = list_images(configure("inaturalist2018", split="test"))
    assert test.files == (LabelledFile("train_val2018/Aves/3001/c.jpg", "Aves/3001", "test", "Aves"),)


def test_lists_may_lie_beside_the_images(configure: Configure) -> None:
    config = configure("inaturalist2018")
    before = list_images(config).files
    name = "Inaturalist_train_set1.txt"
    (config.root / "Inat_dataset_splits" / name).rename(config.root / name)
    assert list_images(config).files == before

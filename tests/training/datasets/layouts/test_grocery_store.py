"""Grocery Store: names of fine and coarse ids, and the real lists."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from vicinal.models.errors import DatasetError
from vicinal.training.datasets import LabelledFile, list_images
from vicinal.training.datasets.layouts import DatasetConfig
from vicinal.training.datasets.layouts.published import GroceryStoreConfig

Configure = Callable[..., DatasetConfig]


@pytest.mark.parametrize(("split", "role"), [("train", "train"), ("val", "test"), ("test", "test")])
def test_ids_become_names(configure: Configure, split: str, role: str) -> None:
    assert list_images(configure("grocery_store", split=split)).files == (
        LabelledFile(f"{split}/Fruit/Apple/Pink-Lady/1.jpg", "Pink-Lady", role, "Apple"),
        LabelledFile(f"{split}/Vegetables/Potato/Floory/1.jpg", "Floory", role, "Potato"),
    )


def test_the_folder_of_the_repository_is_found(configure: Configure, tmp_path: Path) -> None:
    config = configure("grocery_store")
    repository = tmp_path / "repository"
    repository.mkdir()
    config.root.rename(repository / "dataset")
    listing = list_images(config.model_copy(update={"root": repository}))
    with listing.open() as read:
        assert all(read(file).is_file() for file in listing.files)


@pytest.mark.parametrize(
    ("line", "reason"), [("a.jpg, 9, 0", "fine id 9 is not in"), ("a.jpg, 0, 9", "coarse id 9 is not in")]
)
def test_an_id_without_a_name_is_named(configure: Configure, line: str, reason: str) -> None:
    config = configure("grocery_store")
    with (config.root / "train.txt").open("a") as stream:
        stream.write(f"{line}\n")
    with pytest.raises(DatasetError, match=rf"train\.txt' line 3: {reason}"):
        list_images(config)


def test_a_table_of_classes_without_a_column_is_refused(configure: Configure) -> None:
    config = configure("grocery_store")
    path = config.root / "classes.csv"
    path.write_text(path.read_text().replace("Coarse Class Name (str)", "Coarse"))
    with pytest.raises(DatasetError, match=r"classes\.csv' has no column 'Coarse Class Name \(str\)'"):
        list_images(config)


@pytest.mark.parametrize(("split", "n_images"), [("train", 2450), ("val", 278), ("test", 2308)])
def test_the_real_lists_agree_with_the_protocol(data_dir: Path, split: str, n_images: int) -> None:
    """`protocol.csv` names the same images with the fine labels, in another order."""
    root = data_dir / "grocery"
    listing = list_images(GroceryStoreConfig(kind="grocery_store", root=root, split=split))
    with (root / "protocol.csv").open(newline="", encoding="utf-8") as stream:
        protocol = {row["path"]: row["label"] for row in csv.DictReader(stream)}
    assert len(listing) == n_images
    assert all(protocol[file.path] == file.label for file in listing.files)


def test_every_real_fine_label_has_one_coarse_label(data_dir: Path) -> None:
    config = GroceryStoreConfig(kind="grocery_store", root=data_dir / "grocery")
    pairs = {(file.label, file.super_label) for file in list_images(config).files}
    assert len(pairs) == len({label for label, _ in pairs}) == 75
    assert ("Granny-Smith", "Apple") in pairs

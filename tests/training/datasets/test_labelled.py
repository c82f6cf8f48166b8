"""Labelled images in memory: joined data sets, labels and super-labels, and splits by class."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vicinal.models.errors import DatasetError
from vicinal.training import datasets
from vicinal.training.datasets import LabelledImages, load_datasets
from vicinal.training.datasets.layouts.demo_catalog import DemoCatalogConfig
from vicinal.training.datasets.layouts.folder import FolderConfig
from vicinal.training.datasets.layouts.manifest import ManifestConfig


@pytest.fixture
def letters(tmp_path: Path, write_images: Callable[..., None]) -> ManifestConfig:
    """Three letters of two alphabets, the last one in another split."""
    rows = {"alpha": ("greek", "a"), "beta": ("greek", "a"), "be": ("russian", "b")}
    write_images(tmp_path / "letters", [f"{label}.png" for label in rows])
    lines = [f"{label}.png,{label},{alphabet},{split}" for label, (alphabet, split) in rows.items()]
    table = "\n".join(["path,label,super_label,split", *lines])
    (tmp_path / "letters" / "manifest.csv").write_text(table, encoding="utf-8")
    return ManifestConfig(kind="manifest", root=tmp_path / "letters")


def _small(image: Image.Image) -> Image.Image:
    return image.resize((8, 8))


def _labelled(labels: list[str], super_labels: Sequence[str] = ()) -> LabelledImages:
    pixels = np.arange(len(labels), dtype=np.uint8)[:, None, None, None].repeat(3, axis=3)
    roles = np.array(["train"] * len(labels))
    return LabelledImages(pixels, np.array(labels), roles, np.array(super_labels, np.str_))


def test_public_names_are_sorted_and_exist() -> None:
    assert datasets.__all__ == sorted(datasets.__all__)
    assert all(hasattr(datasets, name) for name in datasets.__all__)


def test_damaged_image_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "sets" / "x" / "broken.png"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no picture")
    with pytest.raises(
        DatasetError, match=r"'sets': image 'x/broken\.png' cannot be used: the bytes are no image"
    ):
        load_datasets([FolderConfig(kind="folder", root=broken.parents[1])], _small)


def test_data_sets_are_joined_in_order(color_folder: Path, letters: ManifestConfig) -> None:
    configs = [letters, FolderConfig(kind="folder", root=color_folder)]
    loaded = load_datasets(configs, _small)
    assert loaded.sources.tolist() == ["letters"] * 3 + ["colors"] * 60


def test_class_ids_number_the_sorted_names() -> None:
    assert _labelled(["s:b", "s:a", "s:c", "s:a"]).class_ids.tolist() == [1, 0, 2, 0]


def test_labels_hash_is_that_of_the_sorted_names_one_a_line() -> None:
    """It depends on which labels there are, not on how often or in which order."""
    expected = hashlib.sha256(b"s:a\ns:b").hexdigest()
    assert _labelled(["s:b", "s:a", "s:b"]).labels_sha256 == expected
    assert _labelled(["s:b", "s:c"]).labels_sha256 != expected


def test_subset_keeps_images_labels_and_roles_together() -> None:
    part = _labelled(["s:a", "s:b", "s:c"]).subset(np.array([True, False, True]))
    assert part.labels.tolist() == ["s:a", "s:c"]
    assert part.pixels[:, 0, 0, 0].tolist() == [0, 2]
    assert len(part.roles) == 2


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=20),
    share=st.floats(0, 0.9),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_split_shares_no_class_and_loses_no_image(sizes: list[int], share: float, seed: int) -> None:
    labels = [f"set{index % 2}:class{index}" for index, size in enumerate(sizes) for _ in range(size)]
    kept, held = _labelled(labels).split_classes(share, seed)
    assert not set(kept.labels) & set(held.labels)
    assert sorted([*kept.labels, *held.labels]) == sorted(labels)


def test_split_takes_the_same_share_of_each_data_set() -> None:
    labels = [f"big:{index}" for index in range(40)] + [f"small:{index}" for index in range(10)]
    _, held = _labelled(labels).split_classes(0.2, seed=0)
    assert Counter(label.partition(":")[0] for label in held.labels) == {"big": 8, "small": 2}


def test_split_depends_on_its_seed_alone() -> None:
    images = _labelled([f"s:{index}" for index in range(30)])
    first, again, other = (images.split_classes(0.3, seed)[1].labels.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_share_of_zero_holds_nothing_out() -> None:
    kept, held = _labelled(["s:a", "s:b"]).split_classes(0.0, seed=0)
    assert (len(kept.labels), len(held.labels)) == (2, 0)


def test_super_labels_stay_with_their_images() -> None:
    images = _labelled(["s:a", "s:b", "s:c"], ["s:x", "s:y", "s:x"])
    assert images.subset(np.array([False, True, True])).super_labels.tolist() == ["s:y", "s:x"]
    for part in images.split_classes(0.4, seed=1):
        expected = {"s:a": "s:x", "s:b": "s:y", "s:c": "s:x"}
        assert part.super_labels.tolist() == [expected[label] for label in part.labels.tolist()]


def test_a_set_without_super_labels_is_one_group(color_folder: Path, letters: ManifestConfig) -> None:
    configs = [FolderConfig(kind="folder", root=color_folder), letters]
    loaded = load_datasets(configs, _small)
    assert set(loaded.super_labels.tolist()) == {"colors", "letters:greek", "letters:russian"}


def test_super_labels_left_out_are_the_data_sets() -> None:
    assert _labelled(["s:a", "t:a"]).super_labels.tolist() == ["s", "t"]
    nothing = _labelled(["s:a"]).subset(np.array([False]))
    assert nothing.super_labels.tolist() == []


def test_two_parts_of_one_set_are_joined(letters: ManifestConfig) -> None:
    parts = [letters.model_copy(update={"split": split}) for split in ("b", "a")]
    assert load_datasets(parts, _small).labels.tolist() == ["letters:be", "letters:alpha", "letters:beta"]


def test_a_set_that_is_named_twice_is_refused(letters: ManifestConfig) -> None:
    with pytest.raises(DatasetError, match="'letters' is named twice"):
        load_datasets([letters, letters], _small)


def test_two_folders_of_one_name_are_refused(tmp_path: Path) -> None:
    """Also a folder that is called as the drawn catalogs are, and one folder in two layouts."""
    folder = FolderConfig(kind="folder", root=tmp_path / "demo")
    elsewhere = FolderConfig(kind="folder", root=tmp_path / "b" / "demo")
    catalog = DemoCatalogConfig(kind="demo_catalog", seeds=(1,))
    manifest = ManifestConfig(kind="manifest", root=folder.root)
    for other in (elsewhere, catalog, manifest):
        with pytest.raises(DatasetError, match="two data sets have a folder named 'demo'"):
            load_datasets([folder, other], _small)

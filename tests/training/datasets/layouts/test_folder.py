"""Class folders: labels are subfolders, and what is no image is passed over."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from vicinal.models.errors import DatasetError
from vicinal.training.datasets import LabelledFile, list_images, load_datasets
from vicinal.training.datasets.layouts.folder import FolderConfig


def _small(image: Image.Image) -> Image.Image:
    return image.resize((8, 8))


def test_folder_labels_are_its_subfolders(color_folder: Path) -> None:
    loaded = load_datasets([FolderConfig(kind="folder", root=color_folder)], _small)
    assert Counter(loaded.labels.tolist()) == {f"colors:class{label:02d}": 5 for label in range(12)}


def test_folder_skips_what_is_no_image(color_folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "sets"
    (root / "shoe").mkdir(parents=True)
    (root / "shoe" / "notes.txt").write_text("no image")
    (root / "top.png").write_bytes(b"not in a class folder")
    Image.new("RGB", (9, 9)).save(root / "shoe" / "UPPER.PNG")
    assert load_datasets([FolderConfig(kind="folder", root=root)], _small).labels.tolist() == ["sets:shoe"]


def test_missing_or_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="there is no folder"):
        load_datasets([FolderConfig(kind="folder", root=tmp_path / "gone")], _small)
    with pytest.raises(DatasetError, match="holds no images"):
        load_datasets([FolderConfig(kind="folder", root=tmp_path)], _small)


def test_rows_are_sorted_by_path(color_folder: Path) -> None:
    files = list_images(FolderConfig(kind="folder", root=color_folder)).files
    assert files[0] == LabelledFile("class00/0.png", "class00")
    assert list(files) == sorted(files, key=lambda file: file.path)


def test_folders_that_look_alike_are_one_class(tmp_path: Path) -> None:
    """The name of a folder that a Mac has made is in another form than one that was typed."""
    for name in ("blé", "ble\u0301"):
        (tmp_path / "sets" / name).mkdir(parents=True)
        Image.new("RGB", (9, 9), "red").save(tmp_path / "sets" / name / "a.png")
    loaded = load_datasets([FolderConfig(kind="folder", root=tmp_path / "sets")], _small)
    assert loaded.labels.tolist() == ["sets:blé"] * 2

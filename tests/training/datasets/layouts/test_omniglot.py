"""Omniglot: folders and archives as shipped, and the real set."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from vicinal.models.decoding import decode_image
from vicinal.models.errors import DatasetError
from vicinal.training.datasets import LabelledFile, list_images
from vicinal.training.datasets.layouts import DatasetConfig
from vicinal.training.datasets.layouts.published import OmniglotConfig

Configure = Callable[..., DatasetConfig]


def test_characters_are_classes_and_alphabets_their_groups(configure: Configure) -> None:
    """Characters of two alphabets have the same folder name and are different classes."""
    assert list_images(configure("omniglot")).files == (
        LabelledFile("images_background/Greek/character01/00_01.png", "Greek/character01", "train", "Greek"),
        LabelledFile("images_background/Greek/character02/01_01.png", "Greek/character02", "train", "Greek"),
        LabelledFile("images_background/Latin/character01/02_01.png", "Latin/character01", "train", "Latin"),
    )


def test_an_archive_is_read_as_it_is(configure: Configure) -> None:
    (file,) = list_images(configure("omniglot", split="test")).files
    assert file.archive == "images_evaluation.zip"
    assert (file.label, file.super_label) == ("Tengwar/character01", "Tengwar")


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_folder_of_the_repository_is_found(configure: Configure, tmp_path: Path, split: str) -> None:
    config = configure("omniglot", split=split)
    repository = tmp_path / "repository"
    repository.mkdir()
    config.root.rename(repository / "python")
    listing = list_images(config.model_copy(update={"root": repository}))
    with listing.open() as read:
        assert decode_image(read(listing.files[0])).size == (24, 20)


def test_a_folder_is_preferred_to_the_archive_it_came_from(configure: Configure) -> None:
    config = configure("omniglot")
    (config.root / "images_background.zip").write_bytes(b"not looked at")
    assert len(list_images(config)) == 3


def test_other_members_of_an_archive_are_passed_over(configure: Configure) -> None:
    config = configure("omniglot", split="test")
    with zipfile.ZipFile(config.root / "images_evaluation.zip", "a") as archive:
        for name in (
            "__MACOSX/images_evaluation/a/b.png",
            "images_evaluation/a/b.png",
            "images_evaluation/a/",
        ):
            archive.writestr(name, b"")
    assert len(list_images(config)) == 1


def test_without_folder_and_archive_the_archive_is_asked_for(tmp_path: Path) -> None:
    config = OmniglotConfig(kind="omniglot", root=tmp_path)
    with pytest.raises(
        DatasetError, match=r"no file 'images_background\.zip' or .*: get Omniglot from https"
    ):
        list_images(config)


@pytest.mark.parametrize("n_kept", [0, 100, -30])
def test_an_archive_that_breaks_off_is_named(configure: Configure, n_kept: int) -> None:
    config = configure("omniglot", split="test")
    path = config.root / "images_evaluation.zip"
    path.write_bytes(path.read_bytes()[:n_kept])
    with pytest.raises(DatasetError, match=r"images_evaluation\.zip' cannot be read"):
        list_images(config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "n_images", "n_classes", "n_alphabets"), [("train", 19_280, 964, 30), ("test", 13_180, 659, 20)]
)
def test_the_real_set_has_the_published_size(
    data_dir: Path, split: str, n_images: int, n_classes: int, n_alphabets: int
) -> None:
    listing = list_images(OmniglotConfig(kind="omniglot", root=data_dir / "omniglot", split=split))
    assert len(listing) == n_images
    assert len(set(listing.labels.tolist())) == n_classes
    assert len(set(listing.super_labels.tolist())) == n_alphabets
    with listing.open() as read:
        assert decode_image(read(listing.files[-1])).size == (105, 105)

"""What holds for every authors' layout: right pixels, disjoint classes, errors that name file and line."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from PIL import Image
from pydantic import TypeAdapter, ValidationError

from vicinal.models.bundle import ModelBundle
from vicinal.models.configs.file import models_of
from vicinal.models.decoding import decode_image
from vicinal.models.embedder import Embedder
from vicinal.models.errors import DatasetError
from vicinal.training.datasets import ImageListing, list_images, load_datasets
from vicinal.training.datasets.layouts import DatasetConfig

Configure = Callable[..., DatasetConfig]

# Each file without which the training part cannot be listed.
REQUIRED = [
    ("cars196_devkit", "devkit/cars_meta.mat"),
    ("cars196_devkit", "devkit/cars_train_annos.mat"),
    ("cars196_devkit", "cars_test_annos_withlabels.mat"),
    ("cub200", "images.txt"),
    ("cub200", "image_class_labels.txt"),
    ("cub200", "classes.txt"),
    ("grocery_store", "train.txt"),
    ("grocery_store", "classes.csv"),
    ("in_shop", "Eval/list_eval_partition.txt"),
    ("inaturalist2018", "Inat_dataset_splits/Inaturalist_train_set1.txt"),
    ("sop", "Ebay_train.txt"),
    ("vehicle_id", "train_test_split/train_list.txt"),
]
# All but Grocery Store, whose authors split by image.
SPLIT_BY_CLASS = [
    "cars196",
    "cars196_devkit",
    "cub200",
    "in_shop",
    "inaturalist2018",
    "omniglot",
    "sop",
    "vehicle_id",
]
TEXTS = [(layout, name) for layout, name in REQUIRED if not name.endswith(".mat")]


def small(image: Image.Image) -> Image.Image:
    return image.resize((4, 4))


def both_parts(config: DatasetConfig) -> tuple[ImageListing, ImageListing]:
    train, test = (list_images(config.model_copy(update={"split": split})) for split in ("train", "test"))
    return train, test


def shared_classes(config: DatasetConfig) -> set[str]:
    train, test = both_parts(config)
    return set(train.labels.tolist()) & set(test.labels.tolist())


def refusal(config: DatasetConfig) -> str:
    with pytest.raises(DatasetError) as caught:
        list_images(config)
    return str(caught.value)


def test_every_layout_is_tried(layouts: set[str]) -> None:
    """Ground truth by query has tests of its own."""
    configs = {one for one in models_of(DatasetConfig) if getattr(one, "origin", "")}
    kinds = {kind for config in configs for kind in get_args(config.model_fields["kind"].annotation)}
    assert {layout.removesuffix("_devkit") for layout in layouts} == kinds


@pytest.mark.parametrize("split", ["train", "test"])
def test_pixels_are_those_of_the_listed_file(
    configure: Configure, layout: str, split: str, color_of: Callable[[str], tuple[int, int, int]]
) -> None:
    config = configure(layout, split=split)
    expected = [list(color_of(file.path)) for file in list_images(config).files]
    loaded = load_datasets([config], small)
    assert loaded.pixels[:, 0, 0].tolist() == expected


def test_loaded_images_carry_what_the_listing_says(configure: Configure, layout: str) -> None:
    config = configure(layout, split="test")
    listing, loaded = list_images(config), load_datasets([config], small)
    assert loaded.labels.tolist() == listing.labels.tolist()
    assert loaded.roles.tolist() == listing.roles.tolist()
    assert loaded.super_labels.tolist() == listing.super_labels.tolist()


@pytest.mark.parametrize("layout", SPLIT_BY_CLASS)
def test_training_and_test_share_no_class(configure: Configure, layout: str) -> None:
    assert shared_classes(configure(layout)) == set()


@pytest.mark.parametrize("layout", ["cub200", "cars196"])
def test_the_check_for_shared_classes_sees_one(configure: Configure, layout: str) -> None:
    """Negative control: a split by image shares classes."""
    assert shared_classes(configure(layout, split_by="image"))


def test_training_images_have_the_role_train_and_test_images_another(
    configure: Configure, layout: str
) -> None:
    train, test = both_parts(configure(layout))
    assert set(train.roles.tolist()) == {"train"}
    assert set(test.roles.tolist()) <= {"test", "query", "gallery"}


@pytest.mark.parametrize("layout", sorted({layout for layout, _ in REQUIRED}))
def test_a_set_is_listed_without_its_pixels(configure: Configure, layout: str) -> None:
    config = configure(layout)
    before = list_images(config)
    for file in before.files:
        (config.root / file.path).unlink()
    assert list_images(config).files == before.files


@pytest.mark.parametrize("layout", ["cub200", "in_shop", "sop"])
def test_a_missing_image_is_named_with_where_to_get_the_set(configure: Configure, layout: str) -> None:
    config = configure(layout)
    path = list_images(config).files[-1].path
    (config.root / path).unlink()
    with pytest.raises(DatasetError, match=rf"has no image '{path}'.*: get .* from https://"):
        load_datasets([config], small)


@pytest.mark.parametrize(("layout", "name"), REQUIRED)
def test_a_missing_file_is_named_with_where_to_get_the_set(
    configure: Configure, layout: str, name: str
) -> None:
    config = configure(layout)
    (config.root / name).unlink()
    message = refusal(config)
    assert f"'{config.root}' has no file '{name}'" in message
    assert f": get {config.origin}" in message
    assert "\n" not in message


@pytest.mark.parametrize(("layout", "name"), TEXTS)
def test_a_malformed_line_is_named(configure: Configure, layout: str, name: str) -> None:
    config = configure(layout)
    path = config.root / name
    n_lines = len(path.read_text().splitlines())
    path.write_text(path.read_text() + "?\n")
    message = refusal(config)
    assert message.startswith(f"'{path}' line {n_lines + 1}: ")
    assert "\n" not in message


@pytest.mark.parametrize(("layout", "name"), TEXTS)
def test_blank_lines_and_what_windows_adds_change_nothing(
    configure: Configure, layout: str, name: str
) -> None:
    config = configure(layout)
    before = list_images(config).files
    path = config.root / name
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert list_images(config).files == before


@pytest.mark.parametrize(("layout", "name"), TEXTS)
def test_a_file_that_is_no_text_is_named(configure: Configure, layout: str, name: str) -> None:
    config = configure(layout)
    (config.root / name).write_bytes(b"\xff\xfe\x00")
    assert refusal(config) == f"'{config.root / name}' is not UTF-8 text"


@pytest.mark.parametrize(
    ("layout", "name", "line", "column"),
    [
        ("cub200", "image_class_labels.txt", "4 nine", "class_id"),
        ("cub200", "images.txt", "nine a.jpg", "image_id"),
        ("grocery_store", "train.txt", "a.jpg, one, 0", "fine id"),
        ("sop", "Ebay_train.txt", "9 9 super a.jpg", "super_class_id"),
        ("vehicle_id", "train_test_split/train_list.txt", "0000009 nine", "vehicle"),
    ],
)
def test_a_number_that_is_none_is_named(
    configure: Configure, layout: str, name: str, line: str, column: str
) -> None:
    config = configure(layout)
    with (config.root / name).open("a") as stream:
        stream.write(f"{line}\n")
    assert f"{column} '" in refusal(config)
    assert refusal(config).endswith("is no whole number")


@pytest.mark.slow
def test_a_recipe_names_a_layout_below_the_data_root(layout: str, tmp_path: Path) -> None:
    kind = layout.removesuffix("_devkit")
    recipe = (
        f'name = "a"\n[backbone]\nname = "b"\n[preprocessing]\n[[datasets]]\nkind = "{kind}"\nroot = "c"\n'
    )
    (tmp_path / "recipe.toml").write_text(recipe)
    pytest.importorskip("timm")
    from vicinal.training.config import TrainingConfig

    config = TrainingConfig.load(tmp_path / "recipe.toml", data_root=tmp_path / "sets")
    assert config.datasets[0].kind == kind
    assert config.datasets[0].root == tmp_path / "sets" / "c"


def test_an_unknown_part_is_refused(layout: str) -> None:
    fields = {"kind": layout.removesuffix("_devkit"), "root": "x", "split": "validation"}
    with pytest.raises(ValidationError, match="split"):
        TypeAdapter(DatasetConfig).validate_python(fields)


def test_a_listing_is_embedded_without_being_loaded(
    configure: Configure, layout: str, tiny_bundle: ModelBundle
) -> None:
    """In batches of what `read` gives, with the result that decoded images have."""
    listing, embedder = list_images(configure(layout)), Embedder(tiny_bundle, device="cpu", threads=1)
    with listing.open() as read:
        embeddings = [embedder.embed([read(file)]) for file in listing.files]
        images = [decode_image(read(file)) for file in listing.files]
    assert np.concatenate(embeddings) == pytest.approx(embedder.embed(images), abs=1e-6)


def test_only_keeps_the_wanted_roles(configure: Configure) -> None:
    listing = list_images(configure("in_shop", split="test"))
    assert listing.only("gallery").roles.tolist() == ["gallery"]
    assert len(listing.only("train")) == 0
    assert len(listing.only("query", "gallery")) == len(listing)

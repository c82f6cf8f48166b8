"""Labelled image sets: protocol folders, class folders, the demo catalog, and splits by class."""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from models import datasets
from models.config import DemoCatalogConfig, FolderConfig, ProtocolConfig
from models.datasets import LabelledImages, load_datasets, read_protocol
from models.datasets.protocol import open_archives
from models.errors import DatasetError

HEADER = ["path", "label", "split", "role"]
# Colors tell which image was read; `main/` lies in an archive of its own name, as in Omniglot.
ROWS = {
    ("main/a/1.png", "a", "train", "train"): (250, 0, 0),
    ("main/a/2.png", "a", "train", "train"): (240, 0, 0),
    ("main/b/1.png", "b", "train", "train"): (0, 250, 0),
    ("other/c/1.png", "c", "test", "gallery"): (0, 0, 250),
    ("other/c/2.png", "c", "test", "query"): (0, 0, 240),
    ("other/d/1.png", "d", "test", "absent"): (9, 9, 9),
    ("other/d/2.png", "d", "test", "unused"): (8, 8, 8),
}


def _small(image: Image.Image) -> Image.Image:
    return image.resize((8, 8))


def _write_archive(path: Path, images: dict[str, tuple[int, int, int]]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, color in images.items():
            stream = io.BytesIO()
            Image.new("RGB", (12, 10), color).save(stream, "PNG")
            archive.writestr(name, stream.getvalue())


def _write_protocol(root: Path, rows: list[tuple[str, ...]]) -> None:
    with (root / "protocol.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(rows)


@pytest.fixture
def protocol(tmp_path: Path) -> Path:
    """A folder whose train images lie in `main.zip` and whose test images lie in `test.zip`."""
    root = tmp_path / "toys"
    root.mkdir()
    _write_protocol(root, [tuple(HEADER), *ROWS])
    for name, split in (("main.zip", "train"), ("test.zip", "test")):
        _write_archive(root / name, {row[0]: color for row, color in ROWS.items() if row[2] == split})
    return root


def _labelled(labels: list[str]) -> LabelledImages:
    pixels = np.arange(len(labels), dtype=np.uint8)[:, None, None, None].repeat(3, axis=3)
    return LabelledImages(pixels, np.array(labels), np.array(["train"] * len(labels)))


def test_public_names_are_sorted_and_exist() -> None:
    assert datasets.__all__ == sorted(datasets.__all__)
    assert all(hasattr(datasets, name) for name in datasets.__all__)


def test_protocol_rows_are_those_of_the_split_and_roles_in_file_order(protocol: Path) -> None:
    rows = read_protocol(protocol, split="test", roles=("query", "gallery"))
    assert [row.path for row in rows] == ["other/c/1.png", "other/c/2.png"]


def test_protocol_images_come_with_labels_and_roles(protocol: Path) -> None:
    config = ProtocolConfig(kind="protocol", root=protocol)
    loaded = load_datasets([config], _small)
    assert loaded.labels.tolist() == ["toys:a", "toys:a", "toys:b"]
    assert loaded.roles.tolist() == ["train"] * 3
    assert loaded.pixels.shape == (3, 8, 8, 3)
    assert loaded.pixels[:, 0, 0].tolist() == [[250, 0, 0], [240, 0, 0], [0, 250, 0]]


def test_protocol_reads_the_archive_of_its_split(protocol: Path) -> None:
    config = ProtocolConfig(
        kind="protocol", root=protocol, split="test", roles=("gallery", "query", "absent")
    )
    loaded = load_datasets([config], _small)
    assert loaded.roles.tolist() == ["gallery", "query", "absent"]
    assert loaded.pixels[:, 0, 0].tolist() == [[0, 0, 250], [0, 0, 240], [9, 9, 9]]


def test_missing_protocol_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no protocol\.csv"):
        read_protocol(tmp_path, split="train", roles=("train",))


def test_protocol_without_such_images_is_refused(protocol: Path) -> None:
    with pytest.raises(DatasetError, match="no images of split 'train' with role query or absent"):
        read_protocol(protocol, split="train", roles=("query", "absent"))


def test_protocol_with_other_columns_is_refused(protocol: Path) -> None:
    _write_protocol(protocol, [("file", "label", "split", "role"), *ROWS])
    with pytest.raises(DatasetError, match="no column 'path', only file, label"):
        read_protocol(protocol, split="train", roles=("train",))


def test_missing_archive_is_named(protocol: Path) -> None:
    (protocol / "main.zip").unlink()
    with pytest.raises(DatasetError, match=r"in neither train\.zip nor main\.zip"):
        load_datasets([ProtocolConfig(kind="protocol", root=protocol)], _small)


def test_image_missing_from_its_archive_is_named(protocol: Path) -> None:
    _write_archive(protocol / "main.zip", {"main/a/1.png": (1, 2, 3)})
    with pytest.raises(DatasetError, match=r"main\.zip' holds no 'main/a/2\.png'"):
        load_datasets([ProtocolConfig(kind="protocol", root=protocol)], _small)


def test_damaged_image_is_named(color_folder: Path, protocol: Path, tmp_path: Path) -> None:
    broken = tmp_path / "sets" / "x" / "broken.png"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no picture")
    with pytest.raises(DatasetError, match=r"broken\.png' cannot be used: the bytes are no image"):
        load_datasets([FolderConfig(kind="folder", root=tmp_path / "sets")], _small)


@pytest.mark.parametrize(
    ("name", "n_images", "n_classes"), [("omniglot", 16_160, 808), ("grocery", 2_470, 38)]
)
def test_real_protocol_has_the_documented_training_images(
    data_dir: Path, name: str, n_images: int, n_classes: int
) -> None:
    """Counts from the README of each set."""
    rows = read_protocol(data_dir / name, split="train", roles=("train",))
    assert (len(rows), len({row.label for row in rows})) == (n_images, n_classes)


@pytest.mark.parametrize(
    ("name", "split", "expected"),
    [
        ("omniglot", "test", {"gallery": 4950, "query": 4950, "absent": 1640, "unused": 1640}),
        ("omniglot", "calibration", {"gallery": 970, "query": 970, "absent": 590, "unused": 590}),
        ("grocery", "test", {"gallery": 653, "query": 575, "absent": 243, "unused": 304}),
        ("grocery", "calibration", {"gallery": 293, "query": 243, "absent": 114, "unused": 141}),
    ],
)
def test_real_protocol_has_the_documented_roles(
    data_dir: Path, name: str, split: str, expected: dict[str, int]
) -> None:
    rows = read_protocol(data_dir / name, split=split, roles=("gallery", "query", "absent", "unused"))
    assert Counter(row.role for row in rows) == expected


@pytest.mark.parametrize("name", ["omniglot", "grocery", "dogfacenet"])
@pytest.mark.parametrize("split", ["train", "calibration", "test"])
def test_real_archives_hold_images(data_dir: Path, name: str, split: str) -> None:
    """First and last image of each split, whichever archive they lie in."""
    rows = read_protocol(data_dir / name, split=split, roles=("train", "gallery", "query"))
    with open_archives(data_dir / name) as read:
        for row in (rows[0], rows[-1]):
            with Image.open(io.BytesIO(read(row))) as image:
                assert min(image.size) >= 100


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


def test_demo_catalog_gives_each_product_its_views() -> None:
    config = DemoCatalogConfig(kind="demo_catalog", seeds=(3, 4), products=2, views=3)
    loaded = load_datasets([config], _small)
    assert len(loaded.labels) == 12
    assert set(Counter(loaded.labels.tolist()).values()) == {3}
    seeds = {label.removeprefix("demo:").partition("/")[0] for label in loaded.labels}
    assert seeds == {"3", "4"}


def test_data_sets_are_joined_in_order(color_folder: Path, protocol: Path) -> None:
    configs = [ProtocolConfig(kind="protocol", root=protocol), FolderConfig(kind="folder", root=color_folder)]
    loaded = load_datasets(configs, _small)
    assert [label.partition(":")[0] for label in loaded.labels] == ["toys"] * 3 + ["colors"] * 60


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

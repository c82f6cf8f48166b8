"""Protocol folders: rows by split and role, and the archives that hold the images."""

from __future__ import annotations

import csv
import io
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from vicinal.models.errors import DatasetError
from vicinal.training.datasets import LabelledFile, load_datasets
from vicinal.training.datasets.layouts.protocol import ProtocolConfig

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


def rows_of(root: Path, *, split: str, roles: tuple[str, ...]) -> list[LabelledFile]:
    return ProtocolConfig(kind="protocol", root=root, split=split, roles=roles).rows()


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


def test_protocol_rows_are_those_of_the_split_and_roles_in_file_order(protocol: Path) -> None:
    rows = rows_of(protocol, split="test", roles=("query", "gallery"))
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
        rows_of(tmp_path, split="train", roles=("train",))


def test_protocol_without_such_images_is_refused(protocol: Path) -> None:
    with pytest.raises(DatasetError, match="no images of split 'train' with role query or absent"):
        rows_of(protocol, split="train", roles=("query", "absent"))


def test_protocol_with_other_columns_is_refused(protocol: Path) -> None:
    _write_protocol(protocol, [("file", "label", "split", "role"), *ROWS])
    with pytest.raises(DatasetError, match="no column 'path', only file, label"):
        rows_of(protocol, split="train", roles=("train",))


def test_missing_archive_is_named(protocol: Path) -> None:
    (protocol / "main.zip").unlink()
    with pytest.raises(DatasetError, match=r"in neither train\.zip nor main\.zip"):
        load_datasets([ProtocolConfig(kind="protocol", root=protocol)], _small)


def test_image_missing_from_its_archive_is_named(protocol: Path) -> None:
    _write_archive(protocol / "main.zip", {"main/a/1.png": (1, 2, 3)})
    with pytest.raises(DatasetError, match=r"main\.zip' holds no 'main/a/2\.png'"):
        load_datasets([ProtocolConfig(kind="protocol", root=protocol)], _small)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_images", "n_classes"), [("omniglot", 16_160, 808), ("grocery", 2_470, 38)]
)
def test_real_protocol_has_the_documented_training_images(
    data_dir: Path, name: str, n_images: int, n_classes: int
) -> None:
    """Counts from the README of each set."""
    rows = rows_of(data_dir / name, split="train", roles=("train",))
    assert (len(rows), len({row.label for row in rows})) == (n_images, n_classes)


@pytest.mark.slow
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
    rows = rows_of(data_dir / name, split=split, roles=("gallery", "query", "absent", "unused"))
    assert Counter(row.role for row in rows) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["omniglot", "grocery", "dogfacenet"])
@pytest.mark.parametrize("split", ["train", "calibration", "test"])
def test_real_archives_hold_images(data_dir: Path, name: str, split: str) -> None:
    """First and last image of each split, whichever archive they lie in."""
    rows = rows_of(data_dir / name, split=split, roles=("train", "gallery", "query"))
    with ProtocolConfig(kind="protocol", root=data_dir / name).open() as read:
        for row in (rows[0], rows[-1]):
            with Image.open(io.BytesIO(read(row))) as image:
                assert min(image.size) >= 100


def test_a_malformed_row_is_named(protocol: Path) -> None:
    with (protocol / "protocol.csv").open("a") as stream:
        stream.write("main/b/2.png,b,train\n")
    with pytest.raises(DatasetError, match=r"protocol\.csv' line 9: the header row has 4 fields"):
        rows_of(protocol, split="train", roles=("train",))


def test_a_damaged_archive_is_named(protocol: Path) -> None:
    (protocol / "main.zip").write_bytes(b"no archive")
    with pytest.raises(DatasetError, match=r"main\.zip' cannot be read"):
        load_datasets([ProtocolConfig(kind="protocol", root=protocol)], _small)

"""Manifests: CSV and Parquet, splits and roles, and rows that cannot be used."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from vicinal.indexer.item_rules import checked_label
from vicinal.models.errors import DatasetError
from vicinal.training.datasets import LabelledFile, list_images
from vicinal.training.datasets.layouts.manifest import ManifestConfig

TABLE = {
    "path": ["a/1.png", "a/2.png", "b/1.png", "c/1.png"],
    "label": ["007", "007", "8", "9"],
    "split": ["train", "train", "test", "test"],
    "role": ["train", "train", "query", "unused"],
    "super_label": ["spies", "spies", "numbers", "numbers"],
    "note": ["", "x", "", "y"],
}


@pytest.fixture(params=[".csv", ".parquet"])
def write_manifest(
    request: pytest.FixtureRequest, tmp_path: Path, write_images: Callable[..., None]
) -> Callable[..., ManifestConfig]:
    """Writes a manifest with the given columns and returns its configuration."""

    def write(table: dict[str, list[str | None]], **fields: object) -> ManifestConfig:
        root = tmp_path / "things"
        write_images(root, TABLE["path"])
        file = Path(f"list{request.param}")
        if request.param == ".csv":
            with (root / file).open("w", newline="") as stream:
                csv.writer(stream).writerows([list(table), *zip(*table.values(), strict=True)])
        else:
            pa.parquet.write_table(pa.table(table), root / file)
        return ManifestConfig(kind="manifest", root=root, file=file, **fields)

    return write


def without(*columns: str) -> dict[str, list[str]]:
    return {name: values for name, values in TABLE.items() if name not in columns}


def test_rows_have_what_the_columns_say(write_manifest: Callable[..., ManifestConfig]) -> None:
    """Labels stay text, and unused rows are left out."""
    assert list_images(write_manifest(TABLE)).files == (
        LabelledFile("a/1.png", "007", "train", "spies"),
        LabelledFile("a/2.png", "007", "train", "spies"),
        LabelledFile("b/1.png", "8", "query", "numbers"),
    )


def test_path_and_label_are_enough(write_manifest: Callable[..., ManifestConfig]) -> None:
    listing = list_images(write_manifest(without("split", "role", "super_label", "note")))
    assert listing.roles.tolist() == ["train"] * 4
    assert listing.super_labels.tolist() == ["things"] * 4


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"split": "test"}, ["b/1.png"]),
        ({"split": "test", "roles": ("unused",)}, ["c/1.png"]),
        ({"roles": ("query", "train")}, ["a/1.png", "a/2.png", "b/1.png"]),
    ],
)
def test_split_and_roles_choose_rows(
    write_manifest: Callable[..., ManifestConfig], fields: dict[str, object], expected: list[str]
) -> None:
    listing = list_images(write_manifest(TABLE, **fields))
    assert [file.path for file in listing.files] == expected


@pytest.mark.parametrize(
    ("table", "fields", "message"),
    [
        (without("label"), {}, "has no column 'label', only path, split"),
        (without("split"), {"split": "test"}, "has no column 'split' to take 'test' from"),
        (TABLE, {"split": "validation"}, "has no images of split 'validation' with role train or test or"),
        (TABLE, {"roles": ("absent",)}, "has no images with role absent"),
        (
            TABLE | {"role": ["train", "probe", "query", "query"]},
            {},
            "line [23]: role 'probe', expected one of",
        ),
        (TABLE | {"label": ["7", None, "8", "9"]}, {}, "line [23]: it has no label"),
    ],
)
def test_what_cannot_be_used_is_named(
    write_manifest: Callable[..., ManifestConfig],
    table: dict[str, list[str | None]],
    fields: dict[str, object],
    message: str,
) -> None:
    config = write_manifest(table, **fields)
    with pytest.raises(DatasetError, match=message):
        list_images(config)


@pytest.mark.parametrize(
    ("spellings", "label"),
    [
        (["a", " a ", "a\t", "\xa0a"], "a"),
        (["Caf\u00e9", "Cafe\u0301", "\ufeffCaf\u00e9", "Cafe\u0301 "], "Caf\u00e9"),
        (["tea  pot", "tea  pot\u3000", "\u200btea  pot", "\n tea  pot"], "tea  pot"),
        (["\uac00", "\u1100\u1161", " \u1100\u1161", "\uac00\ufeff"], "\uac00"),
    ],
    ids=ascii,
)
def test_spellings_that_nobody_can_tell_apart_are_one_class_as_in_a_gallery(
    write_manifest: Callable[..., ManifestConfig], spellings: list[str], label: str
) -> None:
    rows = write_manifest(without("role") | {"label": spellings, "super_label": spellings}).rows()
    assert {(row.label, row.super_label) for row in rows} == {(label, label)}
    assert {checked_label(spelling, "1") for spelling in spellings} == {label}


@pytest.mark.parametrize("labels", [["A", "a", "\u00e1", "a b"], ["\ufb01", "fi", "\uff11", "1"]], ids=ascii)
def test_labels_that_one_can_tell_apart_stay_apart(
    write_manifest: Callable[..., ManifestConfig], labels: list[str]
) -> None:
    assert [row.label for row in write_manifest(without("role") | {"label": labels}).rows()] == labels


@pytest.mark.parametrize("blank", [" ", "\t", "\u3000", "\ufeff", "\u200b"], ids=ascii)
def test_a_label_of_blanks_is_none(write_manifest: Callable[..., ManifestConfig], blank: str) -> None:
    with pytest.raises(DatasetError, match=r"line [23]: it has no label"):
        write_manifest(TABLE | {"label": ["7", blank, "8", "9"]}).rows()


def test_absolute_paths_stay(tmp_path: Path, write_images: Callable[..., None]) -> None:
    write_images(tmp_path / "elsewhere", ["1.png"])
    image = tmp_path / "elsewhere" / "1.png"
    (tmp_path / "manifest.csv").write_text(f"path,label\n{image},a\n")
    listing = list_images(ManifestConfig(kind="manifest", root=tmp_path))
    with listing.open() as read:
        assert read(listing.files[0]) == image


@pytest.mark.parametrize("name", ["list.csv", "list.parquet", "list.txt"])
def test_a_missing_manifest_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(DatasetError, match=f"there is no manifest '.*{name}'"):
        list_images(ManifestConfig(kind="manifest", root=tmp_path, file=Path(name)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("list.txt", b"path,label\n", r"neither a \.csv nor a \.parquet"),
        ("list.parquet", b"no table", "cannot be read"),
        ("list.csv", b"\xff\xfe", "not UTF-8"),
        ("list.csv", b'path,label\n"a,b\n', "line 2: "),
        ("list.csv", b"path,label\na.png,a\nb.png\n", "line 3: the header row has 2 fields"),
        ("list.csv", b"path,label\na.png,a,b\n", "line 2: the header row has 2 fields"),
        ("list.csv", b"", "has no column 'path', only none"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        list_images(ManifestConfig(kind="manifest", root=tmp_path, file=Path(name)))


@pytest.mark.parametrize(
    ("labels", "texts"),
    [
        (pa.array([1.0, 2.0, 3.0, 2.5]), ["1", "2", "3", "2.5"]),
        (pa.array([0.1, 1.0, 2.0, 3.0], pa.float32()), ["0.1", "1", "2", "3"]),
        (pa.array([True, False, True, True]), ["true", "false", "true", "true"]),
        (pa.array(["1.0", "nan", "007", "x"]), ["1.0", "nan", "007", "x"]),
        (pa.array(["a", "b", "a", "b"]).dictionary_encode(), ["a", "b", "a", "b"]),
        (pa.array([7, 8, 9, 2**62]), ["7", "8", "9", str(2**62)]),
    ],
)
def test_labels_of_parquet_have_the_text_that_they_have_in_a_gallery(
    tmp_path: Path, write_images: Callable[..., None], labels: pa.Array, texts: list[str]
) -> None:
    write_images(tmp_path, TABLE["path"])
    pa.parquet.write_table(pa.table({"path": TABLE["path"], "label": labels}), tmp_path / "a.parquet")
    files = list_images(ManifestConfig(kind="manifest", root=tmp_path, file=Path("a.parquet"))).files
    assert [file.label for file in files] == texts


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (pa.array([1.0, float("nan"), 2.0, 3.0]), "line 2: it has no label"),
        (pa.array([1.0, 2.0, None, 3.0]), "line 3: it has no label"),
        (pa.array([1.0, 2.0, float("inf"), 3.0]), "line 3: it holds infinity"),
        (pa.array([b"a", b"b", b"c", b"d"]), "line 1: it holds a value of type bytes"),
        (pa.array([[1], [2], [3], [4]]), "line 1: it holds a value of type list"),
    ],
)
def test_labels_of_parquet_that_have_no_one_text_are_named(
    tmp_path: Path, labels: pa.Array, reason: str
) -> None:
    pa.parquet.write_table(pa.table({"path": TABLE["path"], "label": labels}), tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match=reason):
        ManifestConfig(kind="manifest", root=tmp_path, file=Path("a.parquet")).rows()

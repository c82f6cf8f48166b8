"""Sources: folders and manifests become the same list of items every time."""

from __future__ import annotations

import json
import string
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pyarrow import csv, parquet

from vicinal.indexer import SourceItem, read_source
from vicinal.indexer.errors import SourceError
from vicinal.models.decoding import IMAGE_SUFFIXES

NAMES = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=6)


def _image(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 16), "teal").save(path)
    return path


def _manifest(path: Path, columns: dict[str, list[object]]) -> Path:
    table = pa.table(columns)
    writers = {".parquet": parquet.write_table, ".csv": csv.write_csv}
    writers[path.suffix](table, path)
    return path


def _only(items: list[SourceItem]) -> SourceItem:
    (item,) = items
    return item


def test_class_folders_give_labels_and_paths_inside_the_folder_as_ids(tmp_path: Path) -> None:
    boot, sandal = _image(tmp_path / "boots/1.jpg"), _image(tmp_path / "sandals/1.png")
    expected = [
        SourceItem("boots/1.jpg", boot, "boots"),
        SourceItem("sandals/1.png", sandal, "sandals"),
    ]
    assert read_source(tmp_path) == expected


def test_flat_folder_gives_no_labels(tmp_path: Path) -> None:
    for name in ("b.png", "a.png"):
        _image(tmp_path / name)
    assert [(item.id, item.label) for item in read_source(tmp_path)] == [("a.png", None), ("b.png", None)]


def test_nested_image_carries_the_topmost_folder_as_label(tmp_path: Path) -> None:
    _image(tmp_path / "boots/winter/2024/1.png")
    item = _only(read_source(tmp_path))
    assert (item.id, item.label) == ("boots/winter/2024/1.png", "boots")


def test_labelled_and_unlabelled_images_may_share_a_folder(tmp_path: Path) -> None:
    _image(tmp_path / "loose.png")
    _image(tmp_path / "boots/1.png")
    assert {item.id: item.label for item in read_source(tmp_path)} == {
        "loose.png": None,
        "boots/1.png": "boots",
    }


@pytest.mark.parametrize("suffix", sorted(IMAGE_SUFFIXES))
def test_suffix_counts_in_both_cases(tmp_path: Path, suffix: str) -> None:
    _image(tmp_path / f"a{suffix}").rename(tmp_path / f"b{suffix.upper()}")
    assert _only(read_source(tmp_path)).id == f"b{suffix.upper()}"


def test_files_that_are_no_images_and_folders_named_like_one_are_passed_over(tmp_path: Path) -> None:
    _image(tmp_path / "a.png")
    (tmp_path / "notes.txt").write_text("no image", encoding="utf-8")
    (tmp_path / "album.jpg").mkdir()
    assert [item.id for item in read_source(tmp_path)] == ["a.png"]


@given(names=st.sets(st.tuples(NAMES.map(str.lower), NAMES.map(str.lower)), min_size=1, max_size=8))
@settings(max_examples=20, deadline=None)
def test_order_of_a_folder_does_not_depend_on_when_files_were_made(
    tmp_path_factory: pytest.TempPathFactory, names: set[tuple[str, str]]
) -> None:
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    for root, ordered in ((first, sorted(names)), (second, sorted(names, reverse=True))):
        for folder, name in ordered:
            (root / folder).mkdir(exist_ok=True)
            (root / folder / f"{name}.png").touch()
    assert [item.id for item in read_source(first)] == [item.id for item in read_source(second)]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_manifest_gives_id_label_and_further_columns_as_metadata(tmp_path: Path, suffix: str) -> None:
    columns = {
        "path": ["pictures/1.jpg", "pictures/2.jpg"],
        "id": ["one", "two"],
        "label": ["boots", "sandals"],
        "price": [12.5, 7.25],
        "brand": ["Acme", None],
    }
    items = read_source(_manifest(tmp_path / f"items{suffix}", columns))
    assert items[0] == SourceItem(
        "one", tmp_path / "pictures/1.jpg", "boots", {"price": 12.5, "brand": "Acme"}
    )
    assert [item.id for item in items] == ["one", "two"]


def test_missing_metadata_is_left_out(tmp_path: Path) -> None:
    manifest = _manifest(tmp_path / "items.parquet", {"path": ["1.jpg"], "brand": pa.array([None], "string")})
    assert _only(read_source(manifest)).metadata == {}


def test_relative_paths_start_at_the_manifest_and_absolute_ones_stay(tmp_path: Path) -> None:
    absolute = tmp_path / "elsewhere" / "2.jpg"
    manifest = _manifest(tmp_path / "items.csv", {"path": ["sub/1.jpg", str(absolute)]})
    assert [item.path for item in read_source(manifest)] == [tmp_path / "sub/1.jpg", absolute]


@pytest.mark.parametrize("source", ["photos", "manifest.csv"])
def test_files_can_be_found_again_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """A job embeds the items again, in a process that was started elsewhere."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    (tmp_path / "manifest.csv").write_text("path\nphotos/a.jpg\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert [item.path for item in read_source(Path(source))] == [tmp_path / "photos" / "a.jpg"]


def test_path_is_the_id_where_a_manifest_gives_none(tmp_path: Path) -> None:
    bare = _manifest(tmp_path / "bare.csv", {"path": ["sub/1.jpg"]})
    blank = _manifest(tmp_path / "blank.csv", {"path": ["sub/1.jpg"], "id": [""]})
    null = _manifest(tmp_path / "null.parquet", {"path": ["sub/1.jpg"], "id": pa.array([None], "string")})
    assert [_only(read_source(path)).id for path in (bare, blank, null)] == ["sub/1.jpg"] * 3


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_numeric_labels_and_ids_become_strings(tmp_path: Path, suffix: str) -> None:
    columns = {"path": ["1.jpg", "2.jpg"], "id": [10, 11], "label": [0, 7]}
    items = read_source(_manifest(tmp_path / f"items{suffix}", columns))
    assert [(item.id, item.label) for item in items] == [("10", "0"), ("11", "7")]


def test_leading_zeros_of_a_csv_stay(tmp_path: Path) -> None:
    """Article numbers 007 and 7 are two articles."""
    manifest = tmp_path / "items.csv"
    manifest.write_text("path,id,label\n01,007,0040\n02,7,40\n", encoding="utf-8")
    items = read_source(manifest)
    assert [(item.path.name, item.id, item.label) for item in items] == [
        ("01", "007", "0040"),
        ("02", "7", "40"),
    ]


def test_empty_label_means_unlabelled(tmp_path: Path) -> None:
    blank = _manifest(tmp_path / "items.csv", {"path": ["1.jpg"], "label": [""]})
    null = _manifest(tmp_path / "i.parquet", {"path": ["1.jpg"], "label": pa.array([None], "string")})
    assert [_only(read_source(path)).label for path in (blank, null)] == [None, None]


def test_manifest_suffix_counts_in_both_cases(tmp_path: Path) -> None:
    manifest = _manifest(tmp_path / "items.csv", {"path": ["1.jpg"]}).rename(tmp_path / "ITEMS.CSV")
    assert _only(read_source(manifest)).id == "1.jpg"


def test_metadata_of_a_parquet_file_is_json(tmp_path: Path) -> None:
    """Dates, decimals and NaN have no JSON form; a strict JSON writer must take what comes out."""
    columns = {
        "path": ["1.jpg"],
        "made": [date(2024, 5, 1)],
        "price": [Decimal("12.50")],
        "weight": [float("nan")],
        "tags": [["warm", "red"]],
    }
    metadata = _only(read_source(_manifest(tmp_path / "items.parquet", columns))).metadata
    assert metadata == {"made": "2024-05-01", "price": "12.50", "weight": None, "tags": ["warm", "red"]}
    assert json.loads(json.dumps(metadata, allow_nan=False)) == metadata


@given(
    rows=st.lists(st.tuples(NAMES, st.none() | NAMES, st.integers(-5, 5)), min_size=1, max_size=6),
    suffix=st.sampled_from([".csv", ".parquet"]),
)
@settings(max_examples=30, deadline=None)
def test_manifest_rows_come_back_in_order(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str | None, int]], suffix: str
) -> None:
    ids, labels, shelves = (list(column) for column in zip(*rows, strict=True))
    columns = {
        "path": [f"{item_id}.jpg" for item_id in ids],
        "id": ids,
        "label": pa.array(labels, "string"),
        "shelf": shelves,
    }
    items = read_source(_manifest(tmp_path_factory.mktemp("rows") / f"items{suffix}", columns))
    assert [(item.id, item.label, item.metadata["shelf"]) for item in items] == rows


def test_manifest_without_a_path_column_is_refused_with_the_columns_it_has(tmp_path: Path) -> None:
    manifest = _manifest(tmp_path / "items.csv", {"file": ["1.jpg"], "label": ["boots"]})
    with pytest.raises(SourceError, match="no column 'path', only file, label"):
        read_source(manifest)


def test_empty_path_is_refused_with_its_row(tmp_path: Path) -> None:
    manifest = _manifest(tmp_path / "items.parquet", {"path": ["1.jpg", None]})
    with pytest.raises(SourceError, match="row 2"):
        read_source(manifest)


def test_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(SourceError, match="holds no images"):
        read_source(tmp_path)


def test_manifest_without_rows_is_refused(tmp_path: Path) -> None:
    manifest = _manifest(tmp_path / "items.parquet", {"path": pa.array([], "string")})
    with pytest.raises(SourceError, match="holds no images"):
        read_source(manifest)


def test_missing_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no source"):
        read_source(tmp_path / "nowhere.csv")


def test_single_image_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="neither a folder nor"):
        read_source(_image(tmp_path / "a.png"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("latin1.csv", "path,label\n1.jpg,caf\xe9\n".encode("latin-1")),
        ("ragged.csv", b"path,label\n1.jpg,a\n2.jpg,b,c\n"),
        ("text.parquet", b"path\n1.jpg\n"),
    ],
)
def test_damaged_manifest_is_refused_by_name(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=rf"{name}' cannot be read"):
        read_source(tmp_path / name)

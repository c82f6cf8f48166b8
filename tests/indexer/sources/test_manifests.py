"""Manifests become the same list of items every time, and what they lack is said in one sentence."""

from __future__ import annotations

import json
import string
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, parquet

from vicinal.indexer import SourceItem, read_source
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources import Source, SourceOptions

# A column of truth values has one text, however a CSV file spells them.
NAMES = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=6).filter(
    lambda name: name.lower() not in ("true", "false")
)


def _manifest(path: Path, columns: dict[str, list[object]]) -> Path:
    table = pa.table(columns)
    writers = {".parquet": parquet.write_table, ".csv": csv.write_csv}
    writers[path.suffix](table, path)
    return path


def _only(items: list[SourceItem]) -> SourceItem:
    (item,) = items
    return item


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


def test_metadata_of_a_parquet_file_is_json(tmp_path: Path) -> None:
    """Dates, decimals and NaN have no JSON form; a strict JSON writer must take what comes out."""
    columns = {
        "path": ["1.jpg"],
        "made": [date(2024, 5, 1)],
        "price": [Decimal("12.50")],
        "fee": [Decimal("0.000000000")],
        "weight": [float("nan")],
        "tags": [["warm", "red"]],
    }
    metadata = _only(read_source(_manifest(tmp_path / "items.parquet", columns))).metadata
    assert metadata == {
        "made": "2024-05-01",
        "price": "12.50",
        "fee": "0.000000000",
        "weight": None,
        "tags": ["warm", "red"],
    }
    assert json.loads(json.dumps(metadata, allow_nan=False)) == metadata


@given(
    rows=st.lists(
        st.tuples(NAMES, st.none() | NAMES, st.integers(-5, 5)),
        min_size=1,
        max_size=6,
        unique_by=lambda row: row[0],
    ),
    suffix=st.sampled_from([".csv", ".parquet"]),
)
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


@pytest.mark.parametrize("rows", ["1.jpg,a\n2.jpg", "1.jpg,a\n,b", '1.jpg,a\n2.jpg,"b'])
def test_what_is_gone_is_not_known_where_a_row_cannot_be_read(tmp_path: Path, rows: str) -> None:
    (tmp_path / "items.csv").write_text(f"path,id\n{rows}\n", encoding="utf-8")
    with pytest.raises(
        SourceError, match=r"'(row 2|b)' of 'items.csv' .*, and nothing was deleted|nobody knows"
    ):
        Source.open(tmp_path / "items.csv").require_whole()
    (tmp_path / "items.csv").write_text("path,id\n1.jpg,a\n", encoding="utf-8")
    assert len(Source.open(tmp_path / "items.csv").require_whole().items) == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("latin1.csv", "path,label\n1.jpg,caf\xe9\n".encode("latin-1")),
        ("ragged.csv", b"path,label\n1.jpg\n2.jpg,b,c\n"),
        ("cut.csv", "path\n1.jpg".encode("utf-16")[:-1]),
        ("text.parquet", b"path\n1.jpg\n"),
    ],
)
def test_damaged_manifest_is_refused_by_name(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=rf"{name}' cannot be read"):
        read_source(tmp_path / name)


@pytest.mark.parametrize(
    ("rule", "labels", "metadata"),
    [
        (None, ["boots", "red"], {}),
        ("auto", ["boots", "red"], {}),
        ("column", ["boots", "red"], {}),
        ("none", [None, None], {"label": "boots"}),
        ("folder", ["a", "b"], {"label": "boots"}),
        ("regex:/([0-9])", ["1", "2"], {"label": "boots"}),
    ],
)
def test_labels_come_from_where_the_rule_says(
    tmp_path: Path, rule: str | None, labels: list[str | None], metadata: dict[str, str]
) -> None:
    """A label column that gives no labels stays as metadata."""
    manifest = _manifest(tmp_path / "items.csv", {"path": ["a/1.jpg", "b/2.jpg"], "label": ["boots", "red"]})
    items = read_source(manifest, SourceOptions(label_from=rule))
    assert [item.label for item in items] == labels
    assert items[0].metadata == metadata


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("columns", [{}, {"id": ["a", "b", "a"]}])
def test_an_id_that_is_there_twice_is_refused_with_both_rows(
    tmp_path: Path, columns: dict[str, list[object]], suffix: str
) -> None:
    paths: list[object] = ["a", "b", "c" if columns else "a"]
    manifest = _manifest(tmp_path / f"items{suffix}", {"path": paths, **columns})
    with pytest.raises(SourceError, match=r"rows 1 and 3 of manifest .* have one id, 'a'"):
        read_source(manifest)


@pytest.mark.parametrize(
    ("written", "name", "found"),
    [
        ("a\\1.jpg", "a/1.jpg", "a/1.jpg"),
        (".\\a\\b\\1.jpg", "a/b/1.jpg", "a/b/1.jpg"),
        ("a/b\\1.jpg", "a/b/1.jpg", "a/b/1.jpg"),
        ("a\\1.jpg", "a\\1.jpg", "a\\1.jpg"),
        ("a\\gone.jpg", "a/1.jpg", "a/gone.jpg"),
    ],
)
def test_paths_with_the_signs_of_windows_are_found(
    tmp_path: Path, written: str, name: str, found: str
) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    (tmp_path / "a.csv").write_text(f"path\n{written}\n")
    assert _only(read_source(tmp_path / "a.csv")).path == tmp_path / found

"""Parquet files with images inside: as the hub of Hugging Face has them, and as others write them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.indexer.pictures import picture
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources import (
    Source,
    SourceOptions,
    read_file,
    read_source,
)
from vicinal.indexer.sources.embeddings import holds_embeddings
from vicinal.indexer.sources.parquet_datasets import ParquetColumn
from vicinal.models.decoding import DecodeLimits
from vicinal.models.errors import NotAnImageError

LIMITS = DecodeLimits(max_bytes=10_000)
STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
NAMES = {"label": {"names": ["shoe", "boot"], "_type": "ClassLabel"}, "image": {"_type": "Image"}}


def rows_of(paths: Sequence[str | None], first: int = 0) -> list[dict[str, Any]]:
    return [{"bytes": picture(i), "path": path} for i, path in enumerate(paths, start=first)]


def written(
    file: Path, images: Sequence[Any], *, note: Any = None, kind: pa.DataType = STRUCT, **columns: Any
) -> Path:
    """A file with such images, and labels unless other columns are given."""
    columns = columns or {"label": [i % 2 for i in range(len(images))]}
    table = pa.table({"image": pa.array(list(images), kind), **columns})
    if note is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": note}})})
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, file, row_group_size=4)
    return file


def content(source: Path, options: SourceOptions | None = None) -> list[bytes]:
    return [read_file(item.path, LIMITS) for item in read_source(source, options)]


def test_a_file_of_the_hub_becomes_items_with_named_labels(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns = {"image": rows_of(["a.png", "b.png", None]), "label": [0, 1, -1], "price": [0.5, 1.5, 2.5]}
    features = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["shoe", "boot"]),
        "price": datasets.Value("float32"),
    }
    made = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    path = tmp_path / "train-00000-of-00001.parquet"
    made.to_parquet(path)
    items = read_source(path)
    assert [item.label for item in items] == ["shoe", "boot", None]
    assert [item.id for item in items] == ["a.png", "b.png", "train-00000-of-00001:2"]
    assert items[1].metadata == {"price": 1.5}
    assert content(path) == [picture(0), picture(1), picture(2)]


def test_a_folder_of_files_is_one_dataset(tmp_path: Path) -> None:
    """As a dataset of the hub lies on the disk: beside the files there are others, and no images."""
    written(tmp_path / "shop/data/train-1.parquet", rows_of([None] * 5), note=NAMES)
    written(tmp_path / "shop/data/train-0.parquet", rows_of(["0.png", "1.png", "0.png"], 5), note=NAMES)
    (tmp_path / "shop/README.md").write_text("words")
    source = Source.open(tmp_path / "shop", SourceOptions(None, "auto"))
    ids = [item.id for item in source.items]
    assert ids[:3] == ["shop/data/train-0:0", "shop/1.png", "shop/data/train-0:2"]
    assert ids[3:] == [f"shop/data/train-1:{row}" for row in range(5)]
    assert content(tmp_path / "shop") == [picture(i) for i in (5, 6, 7, 0, 1, 2, 3, 4)]
    assert source.look().other_files == {".md": 1}
    assert source.look().n_labels == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (SourceOptions(), ("1.png", "1")),
        (SourceOptions("june", id_column="sku"), ("june/001", "1")),
        (SourceOptions(label_from="none"), ("1.png", None)),
        (SourceOptions(label_column="sku"), ("1.png", "001")),
        (SourceOptions(path_column="image"), ("1.png", "1")),
    ],
)
def test_ids_and_labels_come_from_where_the_options_say(
    tmp_path: Path, options: SourceOptions, expected: tuple[str, str | None]
) -> None:
    images = rows_of(["0.png", "1.png"])
    path = written(tmp_path / "a.parquet", images, label=[0, 1], sku=["000", "001"])
    item = read_source(path, options)[1]
    assert (item.id, item.label) == expected


def test_rows_without_an_image_fail_on_their_own(tmp_path: Path) -> None:
    """Also where the whole of it is missing, or only its bytes."""
    images = [None, {"bytes": None, "path": None}, {"bytes": b"", "path": "2.png"}, *rows_of(["3.png"], 3)]
    items = read_source(written(tmp_path / "a.parquet", images))
    assert [item.id for item in items] == ["a:0", "a:1", "2.png", "3.png"]
    for item, sentence in zip(items, ("has no image", "has no image", "is empty"), strict=False):
        with pytest.raises(NotAnImageError, match=sentence):
            read_file(item.path, LIMITS)
    assert read_file(items[3].path, LIMITS) == picture(3)


def test_images_and_embeddings_are_told_apart(tmp_path: Path) -> None:
    images = written(tmp_path / "images.parquet", rows_of(["0.png"]))
    vectors = pa.array([[1.0, 0.0]])
    both = written(tmp_path / "both.parquet", rows_of(["0.png"]), embedding=vectors, id=["a"])
    assert not holds_embeddings(images)
    assert holds_embeddings(both)
    assert content(both) == [picture(0)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (SourceOptions(path_column="lost"), "has no column 'lost', only image, label: name the one of the"),
        (SourceOptions(label_column="lost"), "no column 'lost', only image, label: .* by label_column"),
        (SourceOptions(id_column="lost"), "no column 'lost', .* ids by id_column"),
        (SourceOptions(id_column="label"), "rows 1 and 3 of dataset 'a.parquet' have one id, '0'"),
        (SourceOptions(label_from="regex:(.)"), "come from column or none"),
    ],
)
def test_what_is_missing_is_one_sentence(tmp_path: Path, options: SourceOptions, sentence: str) -> None:
    with pytest.raises(SourceError, match=sentence):
        read_source(written(tmp_path / "a.parquet", rows_of([None] * 4)), options)


@pytest.mark.parametrize("damage", [b"words", b"PAR1" + bytes(64) + b"PAR1"])
def test_a_damaged_file_of_a_folder_takes_no_other_with_it(tmp_path: Path, damage: bytes) -> None:
    written(tmp_path / "b.parquet", rows_of([None] * 2), note=NAMES)
    (tmp_path / "a.parquet").write_bytes(damage)
    source = Source.open(tmp_path)
    assert [item.id for item in source.items] == ["b:0", "b:1"]
    assert "cannot be read" in source.look().unread_folders["a.parquet"]
    with pytest.raises(SourceError, match="nothing was deleted"):
        source.require_whole()


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 7, 1000])
def test_every_row_is_found_in_any_order_by_several_threads(tmp_path: Path, group: int) -> None:
    noise = np.random.default_rng(0)
    images = [noise.bytes(int(noise.integers(1, 60_000))) for _ in range(300)]
    images[17] = None
    pq.write_table(pa.table({"image": pa.array(images)}), tmp_path / "a.parquet", row_group_size=group)
    column = ParquetColumn(tmp_path / "a.parquet", "image")
    order = [*range(300), *noise.permutation(300)[:40].tolist()]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(column.read, order)) == [images[row] for row in order]


@pytest.mark.slow
def test_a_large_file_of_one_group_does_not_lie_in_memory(tmp_path: Path) -> None:
    """Beside it, as a control, the same group is read at once."""
    n_bytes, schema = 1_000_000, pa.schema({"image": pa.binary()})
    with pq.ParquetWriter(tmp_path / "a.parquet", schema, use_dictionary=False, write_batch_size=4) as writer:
        writer.write_table(pa.table([[os.urandom(n_bytes)] * 100], schema=schema), row_group_size=100)
    before = pa.total_allocated_bytes()
    held = []
    for item in read_source(tmp_path / "a.parquet"):
        assert len(read_file(item.path, DecodeLimits())) == n_bytes
        held.append(pa.total_allocated_bytes() - before)
    whole = pq.ParquetFile(tmp_path / "a.parquet").read_row_group(0)
    assert pa.total_allocated_bytes() - before > 100 * n_bytes
    assert max(held) < 60 * n_bytes
    del whole

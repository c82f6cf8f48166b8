"""Rules of items in sources: whatever a source is, an item that cannot be served fails alone."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from tests.indexer.pictures import picture
from tests.indexer.sources.test_shards import shard
from vicinal.indexer.sources import Source

DEEP = json.loads('{"a":' * 33 + "1" + "}" * 33)
LARGE = "x" * 65_536


def only_the_first_fails(place: Path, reason: str) -> None:
    """The first of two items has a problem, and the other one has none."""
    first, second = Source.open(place).items
    assert reason in str(first.problem)
    assert second.problem is None


def one_image(folder: Path, name: str = "1.png") -> None:
    Image.new("RGB", (16, 16)).save(folder / name)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('1.png,"a\nb",1', "line breaks"),
        ("1.png,a\0b,1", "control characters"),
        (f"1.png,a,{LARGE}", "65,536"),
    ],
    ids=["line break", "NUL", "large"],
)
def test_a_table_of_text(tmp_path: Path, line: str, reason: str) -> None:
    one_image(tmp_path)
    (tmp_path / "items.csv").write_text(f"path,id,price\n{line}\n1.png,good,2\n", encoding="utf-8")
    only_the_first_fails(tmp_path / "items.csv", reason)


def test_a_parquet_table(tmp_path: Path) -> None:
    one_image(tmp_path)
    value: object = 1
    for _ in range(40):
        value = {"a": value}
    pa.parquet.write_table(
        pa.table({"path": ["1.png", "2.png"], "more": [value, None]}), tmp_path / "items.parquet"
    )
    only_the_first_fails(tmp_path / "items.parquet", "nested more than 32 deep")


@pytest.mark.parametrize(
    ("metadata", "reason"), [(DEEP, "32 deep"), ({"a": LARGE}, "65,536"), ({"a": "\0"}, "NUL")]
)
def test_a_shard(tmp_path: Path, metadata: dict[str, object], reason: str) -> None:
    path = shard(tmp_path / "photos.tar", {"1.png": picture(), "1.json": metadata, "2.png": picture()})
    only_the_first_fails(path, reason)

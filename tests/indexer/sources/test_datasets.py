"""Saved datasets of Hugging Face: written by its own package, read without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.indexer.pictures import picture
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources import (
    DatasetImage,
    read_file,
    read_source,
)
from vicinal.models.decoding import DecodeLimits
from vicinal.models.errors import NotAnImageError

datasets = pytest.importorskip("datasets")
LIMITS = DecodeLimits(max_bytes=10_000)


def saved(path: Path, n: int = 4, shards: int = 1, **others: Any) -> Path:
    """A dataset with images, named classes, article numbers and prices, and what else is given."""
    columns = {
        "photo": [{"bytes": picture(i), "path": None} for i in range(n)],
        "kind": [i % 2 if i < 3 else -1 for i in range(n)],
        "sku": [f"00{i}" for i in range(n)],
        "price": [i + 0.5 for i in range(n)],
    }
    features = {
        "photo": datasets.Image(),
        "kind": datasets.ClassLabel(names=["shoe", "boot"]),
        "sku": datasets.Value("string"),
        "price": datasets.Value("float32"),
    }
    for name, (values, feature) in others.items():
        columns[name], features[name] = values, feature
    features = {name: features[name] for name in columns}
    made = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    made.save_to_disk(str(path), num_shards=shards)
    return path


def test_rows_become_items_with_named_labels_and_metadata(tmp_path: Path) -> None:
    items = read_source(saved(tmp_path / "shop"))
    assert [item.label for item in items] == ["shoe", "boot", "shoe", None]
    assert [item.id for item in items] == ["0", "1", "2", "3"]
    assert items[1].metadata == {"sku": "001", "price": 1.5}
    assert [read_file(item.path, LIMITS) for item in items] == [picture(i) for i in range(4)]


def test_images_that_lie_elsewhere_are_files(tmp_path: Path) -> None:
    """Of such a row the dataset holds the path alone; a job looks where it leads. An empty row fails."""
    (tmp_path / "1.png").write_bytes(picture(1))
    path = saved(tmp_path / "shop", n=3)
    file = path / "data-00000-of-00001.arrow"
    with pa.memory_map(str(file)) as stream:
        table = pa.ipc.open_stream(stream).read_all()
    elsewhere = [
        {"bytes": None, "path": str(tmp_path / "1.png")},
        None,
        {"bytes": picture(3), "path": "a.png"},
    ]
    column = pa.array(elsewhere, table.schema.field("photo").type)
    table = table.set_column(table.schema.get_field_index("photo"), table.schema.field("photo"), column)
    with pa.OSFile(str(tmp_path / "new"), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "new").replace(file)
    items = read_source(path)
    inside = [DatasetImage(path, "photo", row) for row in (1, 2)]
    assert [item.path for item in items] == [tmp_path / "1.png", *inside]
    assert [item.id for item in items] == [str(tmp_path / "1.png"), "1", "a.png"]
    assert [read_file(items[row].path, LIMITS) for row in (0, 2)] == [picture(1), picture(3)]
    with pytest.raises(NotAnImageError, match="the row has no image"):
        read_file(items[1].path, LIMITS)
    assert items[1].path.stat().st_size == 0


@pytest.mark.parametrize("name", ["state.json", "dataset_info.json", "data-00000-of-00001.arrow"])
def test_a_damaged_dataset_is_one_sentence(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path / "shop")
    (path / name).write_bytes(b"{")
    with pytest.raises(SourceError, match="dataset 'shop' cannot be read"):
        read_source(path)


@pytest.mark.slow
def test_its_package_is_not_needed(tmp_path: Path) -> None:
    path = str(saved(tmp_path / "shop"))
    script = (
        "import sys; sys.modules['datasets'] = None; from pathlib import Path; "
        f"from vicinal.indexer import read_source; print(len(read_source(Path({path!r}))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "4"

"""Saved datasets of Hugging Face: written by its own package, read without it."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from vicinal.indexer import EmbeddingSource
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources import (
    PUBLIC,
    DatasetImage,
    Source,
    SourceOptions,
    file_at,
    read_file,
    read_source,
)
from vicinal.indexer.sources.embeddings import holds_embeddings
from vicinal.models.decoding import DecodeLimits, decode_image
from vicinal.models.errors import ImageTooLargeError, NotAnImageError

datasets = pytest.importorskip("datasets")
LIMITS = DecodeLimits(max_bytes=10_000)


def picture(seed: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (16, 16), (seed, 90, 120)).save(stream, "PNG")
    return stream.getvalue()


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


def test_shards_are_one_dataset(tmp_path: Path) -> None:
    items = read_source(saved(tmp_path / "shop", n=7, shards=3))
    assert [read_file(item.path, LIMITS) for item in items] == [picture(i) for i in range(7)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (SourceOptions(None, "auto"), ("shop/1", "boot")),
        (SourceOptions("june", id_column="sku"), ("june/001", "boot")),
        (SourceOptions(label_from="none"), ("1", None)),
        (SourceOptions(label_from="column", label_column="sku"), ("1", "001")),
        (SourceOptions(path_column="photo"), ("1", "boot")),
    ],
)
def test_ids_and_labels_come_from_where_the_options_say(
    tmp_path: Path, options: SourceOptions, expected: tuple[str, str | None]
) -> None:
    item = read_source(saved(tmp_path / "shop"), options)[1]
    assert (item.id, item.label) == expected


def test_an_image_is_found_again_by_its_address(tmp_path: Path) -> None:
    item = read_source(saved(tmp_path / "shop #1"))[2]
    again = file_at(str(item.path), PUBLIC)
    assert again == item.path == DatasetImage(tmp_path / "shop #1", "photo", 2)
    assert again.open("rb").read() == picture(2)
    assert (again.is_absolute(), again.stat().st_size) == (True, len(picture(2)))


@pytest.mark.parametrize("address", ["dataset:///a", "dataset:///a#photo", "dataset:///a#photo/-1"])
def test_an_address_without_a_row_is_refused(address: str) -> None:
    with pytest.raises(SourceError, match="names no row"):
        file_at(address, PUBLIC)


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


def test_images_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    bad = [{"bytes": b"", "path": None}, {"bytes": bytes(20_000), "path": None}]
    items = read_source(
        saved(tmp_path / "shop", n=2, bad=(bad, datasets.Image())), SourceOptions(path_column="bad")
    )
    for item, error in zip(items, (NotAnImageError, ImageTooLargeError), strict=True):
        with pytest.raises(error):
            read_file(item.path, LIMITS)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            SourceOptions(path_column="lost"),
            "no column 'lost', only photo, kind, sku, price: name the one of the images",
        ),
        (SourceOptions(label_column="lost"), "no column 'lost', .* labels by label_column"),
        (SourceOptions(id_column="lost"), "no column 'lost', .* ids by id_column"),
        (SourceOptions(id_column="kind"), "rows 1 and 3 of dataset 'shop' have one id, 'shoe'"),
        (SourceOptions(label_from="folder"), "come from column or none"),
    ],
)
def test_what_is_missing_is_one_sentence(tmp_path: Path, options: SourceOptions, sentence: str) -> None:
    with pytest.raises(SourceError, match=sentence):
        read_source(saved(tmp_path / "shop"), options)


def test_of_several_datasets_one_has_to_be_named(tmp_path: Path) -> None:
    part = datasets.load_from_disk(str(saved(tmp_path / "one")))
    datasets.DatasetDict({"train": part, "test": part}).save_to_disk(str(tmp_path / "both"))
    with pytest.raises(SourceError, match="holds several datasets: give one of its folders train, test"):
        read_source(tmp_path / "both")
    assert len(read_source(tmp_path / "both" / "train")) == 4


@pytest.mark.parametrize("name", ["state.json", "dataset_info.json", "data-00000-of-00001.arrow"])
def test_a_damaged_dataset_is_one_sentence(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path / "shop")
    (path / name).write_bytes(b"{")
    with pytest.raises(SourceError, match="dataset 'shop' cannot be read"):
        read_source(path)


def test_a_row_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    item = read_source(saved(tmp_path / "shop"))[3]
    saved(tmp_path / "shorter", n=2)
    gone = DatasetImage(tmp_path / "shorter", "photo", 3)
    with pytest.raises(OSError, match="'shorter' has no row 3 of images"):
        gone.read(LIMITS)
    with pytest.raises(OSError, match="has no row 3 of images"):
        DatasetImage(item.path.container, "lost", 3).read(LIMITS)  # type: ignore[union-attr]


def test_images_and_embeddings_are_told_apart(tmp_path: Path) -> None:
    vectors = np.eye(4, dtype=np.float32).tolist()
    feature = datasets.Sequence(datasets.Value("float32"), length=4)
    both = saved(
        tmp_path / "both", embedding=(vectors, feature), id=(["a", "b", "c", "d"], datasets.Value("string"))
    )
    assert not holds_embeddings(saved(tmp_path / "images"))
    assert holds_embeddings(both)
    assert len(EmbeddingSource.open(both)) == len(Source.open(both).items) == 4


def test_its_package_is_not_needed(tmp_path: Path) -> None:
    path = str(saved(tmp_path / "shop"))
    script = (
        "import sys; sys.modules['datasets'] = None; from pathlib import Path; "
        f"from vicinal.indexer import read_source; print(len(read_source(Path({path!r}))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "4"


def test_pictures_are_those_that_its_package_decodes(tmp_path: Path) -> None:
    path = saved(tmp_path / "shop")
    theirs = [row["photo"] for row in datasets.load_from_disk(str(path))]
    ours = [decode_image(read_file(item.path, LIMITS)) for item in read_source(path)]
    assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(ours, theirs, strict=True))


def test_a_large_dataset_does_not_lie_in_memory(tmp_path: Path) -> None:
    n = 40
    rows = [{"bytes": bytes(500_000), "path": None} for _ in range(n)]
    path = saved(tmp_path / "shop", n=n, vast=(rows, datasets.Image()))
    before = pa.total_allocated_bytes()
    items = read_source(path, SourceOptions(path_column="vast"))
    read_file(items[30].path, DecodeLimits())
    assert pa.total_allocated_bytes() - before < 2 * 2**20

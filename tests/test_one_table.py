"""One table is the same items, whatever it is read from: ids, labels and metadata of all sources."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from tests.conftest import TINY_DIM
from tests.hub_server import put_dataset
from tests.indexer.sources.test_shards import shard
from tests.web_server import serving
from vicinal.indexer import EmbeddingSource
from vicinal.indexer.errors import ItemRefusedError, SourceError
from vicinal.indexer.item_rules import checked_label
from vicinal.indexer.sources import SourceAccess, SourceOptions, read_source
from vicinal.models.bundle import ModelBundle
from vicinal.models.configs.value_texts import value_as_text
from vicinal.models.embedder import Embedder
from vicinal.service.http.routes.additions import EmbeddingItem
from vicinal.service.measuring.queries import read_queries


class Items(NamedTuple):
    """What a source gives; metadata without what is null."""

    ids: list[str]
    labels: list[str | None]
    metadata: list[dict[str, Any]]


def picture(seed: int) -> bytes:
    stream = io.BytesIO()
    Image.effect_noise((24, 24), 20 + seed).save(stream, "PNG")
    return stream.getvalue()


def of_images(place: Path | str, **options: Any) -> Items:
    options = {"id_column": "id", **options}
    items = read_source(place, SourceOptions(prefix="", **options))
    assert [one.problem for one in items] == [None] * len(items)
    return Items(
        [one.id for one in items], [one.label for one in items], [known(one.metadata) for one in items]
    )


def of_embeddings(path: Path) -> Items:
    return of_rows(EmbeddingSource.open(path))


def of_rows(source: EmbeddingSource) -> Items:
    (rows,) = source.batches(100)
    metadata = [known(json.loads(one)) for one in rows.metadata.to_pylist()]
    return Items(rows.ids.to_pylist(), rows.labels.to_pylist(), metadata)


def known(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if value is not None}


Columns = dict[str, list[Any]]


def arrow(columns: Columns, **others: list[Any]) -> pa.Table:
    return pa.table({**{name: pa.array(one) for name, one in columns.items()}, **others})


def vectors(columns: Columns) -> list[list[float]]:
    return np.eye(len(columns["id"]), TINY_DIM).tolist()


def paths(columns: Columns, folder: Path) -> list[str]:
    names = [f"{i}.png" for i in range(len(columns["id"]))]
    for i, name in enumerate(names):
        (folder / name).write_bytes(picture(i))
    return names


def write_csv(path: Path, columns: Columns) -> Path:
    with path.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return path


def write_parquet(path: Path, table: pa.Table) -> Path:
    pyarrow.parquet.write_table(table, path)
    return path


def csv_manifest(folder: Path, columns: Columns) -> Items:
    return of_images(write_csv(folder / "a.csv", {**columns, "path": paths(columns, folder)}))


def parquet_manifest(folder: Path, columns: Columns) -> Items:
    return of_images(write_parquet(folder / "a.parquet", arrow(columns, path=paths(columns, folder))))


def images_in_parquet(folder: Path, columns: Columns) -> Items:
    images = [{"bytes": picture(i), "path": None} for i in range(len(columns["id"]))]
    return of_images(write_parquet(folder / "a.parquet", arrow(columns, image=images)))


def on_the_hub(folder: Path, columns: Columns) -> Items:
    images_in_parquet(folder, columns)
    with serving() as web, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", web.url(""))
        patch.delenv("HF_TOKEN", raising=False)
        put_dataset(web, "shop/toys", {"data/a.parquet": (folder / "a.parquet").read_bytes()})
        access = SourceAccess(public_only=False, hub=folder / "hub")
        return of_images("hf:shop/toys", access=access)


def saved_dataset(folder: Path, columns: Columns) -> Items:
    datasets = pytest.importorskip("datasets")
    images = [{"bytes": picture(i), "path": None} for i in range(len(columns["id"]))]
    made = datasets.Dataset(arrow(columns, image=images)).cast_column("image", datasets.Image())
    made.save_to_disk(str(folder / "saved"))
    return of_images(folder / "saved")


def shards(folder: Path, columns: Columns) -> Items:
    files: dict[str, Any] = {}
    for i, row in enumerate(zip(*columns.values(), strict=True)):
        said = dict(zip(columns, row, strict=True))
        files |= {f"{i}.png": picture(i), f"{i}.json": json.loads(json.dumps(said, default=value_as_text))}
    return of_images(shard(folder / "a.tar", files))


def embeddings_in_parquet(folder: Path, columns: Columns) -> Items:
    return of_embeddings(write_parquet(folder / "a.parquet", arrow(columns, embedding=vectors(columns))))


def lance_dataset(folder: Path, columns: Columns) -> Items:
    lance = pytest.importorskip("lance")
    lance.write_dataset(arrow(columns, embedding=vectors(columns)), str(folder / "a.lance"))
    return of_embeddings(folder / "a.lance")


def npz(folder: Path, columns: Columns) -> Items:
    texts = {name: all(one is None or isinstance(one, str) for one in columns[name]) for name in columns}
    arrays = {
        name: np.array([one or "" for one in values]) if texts[name] else arrow(columns)[name].to_numpy()
        for name, values in columns.items()
    }
    renamed = {{"id": "ids", "label": "labels"}.get(name, name): one for name, one in arrays.items()}
    np.savez(folder / "a.npz", embeddings=np.array(vectors(columns)), **renamed)
    return of_embeddings(folder / "a.npz")


def npy(folder: Path, columns: Columns) -> Items:
    np.save(folder / "a.npy", np.array(vectors(columns)))
    write_csv(folder / "a.csv", columns)
    return of_embeddings(folder / "a.npy")


def arrays(_: Path, columns: Columns) -> Items:
    known_of = [name for name in columns if name not in ("id", "label")]
    metadata = [
        dict(zip(known_of, one, strict=True)) for one in zip(*(columns[n] for n in known_of), strict=True)
    ]
    return of_rows(
        EmbeddingSource.of_arrays(
            vectors(columns), columns["id"], labels=columns["label"], metadata=metadata or None
        )
    )


def json_body(_: Path, columns: Columns) -> Items:
    items = []
    for row, vector in zip(zip(*columns.values(), strict=True), vectors(columns), strict=True):
        said = {name: None if one != one else one for name, one in zip(columns, row, strict=True)}
        sent = {"id": said.pop("id"), "label": said.pop("label"), "metadata": said, "embedding": vector}
        items.append(EmbeddingItem.model_validate_json(json.dumps(sent, default=value_as_text)))
    return Items(
        [one.id for one in items],
        [checked_label(one.label, one.id) for one in items],
        [known(one.metadata) for one in items],
    )


def labelled_queries(make: Callable[[Path, Columns], Items]) -> Callable[[Path, Columns, Embedder], Items]:
    """What a calibration reads of a source that was made for a gallery."""

    def read(folder: Path, columns: Columns, embedder: Embedder) -> Items:
        make(folder, columns)
        (place,) = (one for one in folder.iterdir() if one.suffix in (".csv", ".parquet", ".npz", ".tar"))
        options = SourceOptions(id_column="ids" if place.suffix == ".npz" else "id")
        found = read_queries(place, embedder, needs_labels=False, options=options).items
        return Items(
            [one.id for one in found], [one.label for one in found], [known(one.metadata) for one in found]
        )

    return read


SOURCES: list[Callable[[Path, Columns], Items]] = [
    csv_manifest,
    parquet_manifest,
    images_in_parquet,
    on_the_hub,
    saved_dataset,
    shards,
    embeddings_in_parquet,
    lance_dataset,
    npz,
    npy,
    arrays,
    json_body,
]
NAN = float("nan")
# Values of three rows, and the text of each as an id or a label.
VALUES: dict[str, tuple[list[Any], list[str | None]]] = {
    "texts": (["red", None, "blue"], ["red", None, "blue"]),
    "empty texts": (["", "red", ""], [None, "red", None]),
    "leading zeros": (["007", "7", "0x7"], ["007", "7", "0x7"]),
    "whole numbers": ([7, None, 9_007_199_254_740_991], ["7", None, "9007199254740991"]),
    "floats": ([1.0, NAN, 20.0], ["1", None, "20"]),
    "fractions": ([0.5, 2.0, NAN], ["0.5", "2", None]),
    "booleans": ([True, False, True], ["true", "false", "true"]),
    "decimals": ([Decimal(3), Decimal(40), None], ["3", "40", None]),
    "days": ([date(2026, 1, 31), None, date(2026, 2, 1)], ["2026-01-31", None, "2026-02-01"]),
    "two forms": (["Cafe\u0301 ", "Caf\u00e9", "\ufeffCaf\u00e9"], ["Caf\u00e9"] * 3),
}


# Arrays without objects have no form for them.
NOT_IN_ARRAYS = ("decimals", "days")
PAIRS = [
    pytest.param(source, kind, id=f"{source.__name__}-{kind}")
    for source in SOURCES
    for kind in VALUES
    if source is not npz or kind not in NOT_IN_ARRAYS
]


@pytest.mark.parametrize(("source", "kind"), PAIRS)
def test_labels_have_one_text(tmp_path: Path, source: Callable[[Path, Columns], Items], kind: str) -> None:
    values, expected = VALUES[kind]
    assert source(tmp_path, {"id": ["a", "b", "c"], "label": values}).labels == expected


@pytest.mark.parametrize("kind", ["leading zeros", "floats as ids"])
@pytest.mark.parametrize("source", SOURCES, ids=lambda one: one.__name__)
def test_ids_have_one_text(tmp_path: Path, source: Callable[[Path, Columns], Items], kind: str) -> None:
    values, expected = ([4.0, 5.0, 6.0], ["4", "5", "6"]) if kind == "floats as ids" else VALUES[kind]
    assert source(tmp_path, {"id": values, "label": ["x", "y", "z"]}).ids == expected


METADATA: Columns = {
    "price": [12.5, NAN, 7.0],
    "stock": [3, 0, -2],
    "sale": [True, False, True],
    "sku": ["0123", "123", "00123"],
    "phone": ["+4930123", "1e5", "1" * 23],
    "taken": ["2026-01-31T00:30+02:00", "2026-01-31", None],
}


@pytest.mark.parametrize("source", SOURCES, ids=lambda one: one.__name__)
def test_metadata_are_the_same(tmp_path: Path, source: Callable[[Path, Columns], Items]) -> None:
    rows = [dict(zip(METADATA, row, strict=True)) for row in zip(*METADATA.values(), strict=True)]
    expected = [{key: one for key, one in row.items() if one is not None and one == one} for row in rows]
    columns = {"id": ["a", "b", "c"], "label": ["x", "y", "z"], **METADATA}
    assert source(tmp_path, columns).metadata == expected


@pytest.mark.parametrize("kind", ["floats", "booleans", "leading zeros", "two forms"])
@pytest.mark.parametrize("make", [csv_manifest, parquet_manifest, images_in_parquet, shards, npz])
def test_queries_have_the_labels_of_the_gallery(
    tmp_path: Path, tiny_bundle: ModelBundle, make: Callable[[Path, Columns], Items], kind: str
) -> None:
    values, expected = VALUES[kind]
    read = labelled_queries(make)
    found = read(tmp_path, {"id": [1, 2, 3], "label": values}, Embedder(tiny_bundle, device="cpu"))
    assert (found.ids, found.labels) == (["1", "2", "3"], expected)


CLASSES = {"label": {"names": ["shoe", "boot"], "_type": "ClassLabel"}}


def with_classes(table: pa.Table) -> pa.Table:
    """As Hugging Face notes the names of classes."""
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": CLASSES}})})


def with_categories(table: pa.Table) -> pa.Table:
    """As pandas writes categories, and Arrow its dictionaries."""
    names = pa.array(["shoe", "boot"])
    numbers = pa.array([one if one >= 0 else None for one in table["label"].to_pylist()], pa.int8())
    labels = pa.DictionaryArray.from_arrays(numbers, names)
    return table.set_column(table.column_names.index("label"), "label", labels)


def named_manifest(folder: Path, table: pa.Table) -> Items:
    names = paths({"id": table["id"].to_pylist()}, folder)
    return of_images(write_parquet(folder / "a.parquet", table.append_column("path", pa.array(names))))


def named_images(folder: Path, table: pa.Table) -> Items:
    images = pa.array([{"bytes": picture(i), "path": None} for i in range(len(table))])
    return of_images(write_parquet(folder / "a.parquet", table.append_column("image", images)))


def named_embeddings(folder: Path, table: pa.Table) -> Items:
    lists = pa.array(vectors({"id": table["id"].to_pylist()}))
    return of_embeddings(write_parquet(folder / "a.parquet", table.append_column("embedding", lists)))


def named_lance(folder: Path, table: pa.Table) -> Items:
    lance = pytest.importorskip("lance")
    lists = pa.array(vectors({"id": table["id"].to_pylist()}))
    lance.write_dataset(table.append_column("embedding", lists), str(folder / "a.lance"))
    return of_embeddings(folder / "a.lance")


NAMED = [named_manifest, named_images, named_embeddings, named_lance]


@pytest.mark.parametrize("note", [with_classes, with_categories])
@pytest.mark.parametrize("read", NAMED)
def test_classes_have_their_names(
    tmp_path: Path, read: Callable[[Path, pa.Table], Items], note: Callable[[pa.Table], pa.Table]
) -> None:
    table = pa.table({"id": ["a", "b", "c"], "label": [0, -1, 1]})
    assert read(tmp_path, note(table)).labels == ["shoe", None, "boot"]


@pytest.mark.parametrize("numbers", [[0.0, NAN, 1.0], ["0", "", "1"], ["shoe", "-1", "boot"]])
@pytest.mark.parametrize("read", [named_manifest, named_embeddings])
def test_a_number_is_one_class_whatever_its_type(
    tmp_path: Path, read: Callable[[Path, pa.Table], Items], numbers: list[Any]
) -> None:
    table = with_classes(pa.table({"id": ["a", "b", "c"], "label": numbers}))
    assert read(tmp_path, table).labels == ["shoe", None, "boot"]


@pytest.mark.parametrize("number", [2, 2.0, 1.5, "x", -1.5])
@pytest.mark.parametrize("read", NAMED)
def test_what_no_class_has_is_refused_by_row(
    tmp_path: Path, read: Callable[[Path, pa.Table], Items], number: object
) -> None:
    first = "0" if number == "x" else 0
    table = with_classes(pa.table({"id": ["a", "b"], "label": [first, number]}))
    said = str(number).removesuffix(".0")
    with pytest.raises(
        SourceError, match=rf"row 2 of column 'label' has class {said}, and there are names of 2"
    ):
        read(tmp_path, table)


UNCLEAR = {
    "bytes": pa.array([b"red", b"blue"]),
    "lists": pa.array([["red"], ["blue"]]),
    "lost digits": pa.array([1.0, 1e17]),
    "infinity": pa.array([math.inf, 1.0]),
    "durations": pa.array([timedelta(1), None]),
}


@pytest.mark.parametrize("column", ["id", "label"])
@pytest.mark.parametrize("kind", UNCLEAR)
@pytest.mark.parametrize("read", [named_manifest, named_images, named_embeddings])
def test_values_without_a_clear_text_are_refused_by_column_and_row(
    tmp_path: Path, read: Callable[[Path, pa.Table], Items], kind: str, column: str
) -> None:
    columns = {"id": pa.array(["a", "b"]), "label": pa.array(["x", "y"]), column: UNCLEAR[kind]}
    with pytest.raises(SourceError, match=rf"'{column}' of '.*' holds .*, in row [12] .*: expected text"):
        read(tmp_path, pa.table(columns))


@pytest.mark.parametrize("value", [["red"], {"name": "red"}, math.inf, 1e17])
def test_one_of_them_beside_an_image_of_a_shard_fails_alone(tmp_path: Path, value: object) -> None:
    files = {"1.png": picture(1), "1.json": {"label": value}, "2.png": picture(2), "2.json": {"label": "x"}}
    items = read_source(shard(tmp_path / "a.tar", files))
    assert [(one.label, one.problem is None) for one in items] == [(None, False), ("x", True)]


BAD_LABELS = ["a\nb", "a\0b", "x" * 1025, "a\u2028b"]


@pytest.mark.parametrize("label", BAD_LABELS, ids=range(len(BAD_LABELS)))
def test_labels_that_cannot_be_written_on_a_line_are_refused(tmp_path: Path, label: str) -> None:
    columns = {"id": ["a", "b"], "label": [label, "x"]}
    names = paths(columns, tmp_path)
    for place in (
        write_csv(tmp_path / "a.csv", {**columns, "path": names}),
        write_parquet(tmp_path / "a.parquet", arrow(columns, path=names)),
    ):
        items = read_source(place)
        assert [one.problem is None for one in items] == [False, True]
    with pytest.raises(ItemRefusedError, match="the label of 'a'"):
        arrays(tmp_path, columns)


def test_blanks_alone_are_no_label(tmp_path: Path) -> None:
    columns = {"id": ["a", "b", "c"], "label": [" ", "\u200b", "\ufeff "]}
    assert csv_manifest(tmp_path, columns).labels == [None] * 3
    assert arrays(tmp_path, columns).labels == [None] * 3


def test_times_keep_their_zone(tmp_path: Path) -> None:
    zone = timezone(timedelta(hours=2))
    times = pa.array([datetime(2026, 1, 31, 0, 30, tzinfo=zone)], pa.timestamp("ns", "+02:00"))
    table = pa.table({"id": ["a"], "label": ["x"], "taken": times})
    found = named_manifest(tmp_path, table).metadata
    assert found == [{"taken": "2026-01-31T00:30:00+02:00"}]

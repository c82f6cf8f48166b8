"""Files of ready embeddings: each kind gives the rows that were written, piece by piece."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources import SourceOptions
from vicinal.indexer.sources.embedding_files import ReadyRows
from vicinal.indexer.sources.embeddings import EmbeddingSource, holds_embeddings, kind_of
from vicinal.models.similarity import normalize

DIM, N = 4, 2500


def vectors(n: int = N) -> FloatArray:
    return np.random.default_rng(0).normal(size=(n, DIM)).astype(np.float32)


def rows(n: int = N) -> pa.Table:
    columns = {
        "id": [f"it's {i}" for i in range(n)],
        "label": [None if i % 7 == 0 else f"größe {i % 5}" for i in range(n)],
        "price": [None if i % 3 == 0 else i / 4 for i in range(n)],
    }
    return pa.table({**columns, "embedding": pa.array(list(vectors(n)), pa.list_(pa.float32()))})


def as_parquet(path: Path, table: pa.Table) -> Path:
    parquet.write_table(table, path.with_suffix(".parquet"), row_group_size=700)
    return path.with_suffix(".parquet")


def as_lance(path: Path, table: pa.Table) -> Path:
    lance.write_dataset(table, path.with_suffix(".lance"), max_rows_per_file=700)
    return path.with_suffix(".lance")


def as_saved(path: Path, table: pa.Table) -> Path:
    """As the package `datasets` writes it."""
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict(table.to_pydict())
    made.save_to_disk(str(path), num_shards=3)
    return path


def as_streams(path: Path, table: pa.Table) -> Path:
    """The same layout, for where that package is not."""
    path.mkdir()
    names = [f"data-0000{i}-of-00002.arrow" for i in range(2)]
    for name, part in zip(names, (table.slice(0, 1200), table.slice(1200)), strict=True):
        with pa.OSFile(str(path / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(part, max_chunksize=1000)
    features = {name: {"dtype": "string", "_type": "Value"} for name in table.column_names}
    (path / "dataset_info.json").write_text(json.dumps({"features": features}), encoding="utf-8")
    files = [{"filename": name} for name in names]
    (path / "state.json").write_text(json.dumps({"_data_files": files}), encoding="utf-8")
    return path


KINDS: dict[str, Callable[[Path, pa.Table], Path]] = {
    "parquet": as_parquet,
    "lance": as_lance,
    "streams": as_streams,
}


@pytest.fixture(params=[*KINDS, pytest.param("saved", marks=pytest.mark.slow)])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The rows in a file or folder of each kind."""
    return {**KINDS, "saved": as_saved}[request.param](tmp_path / "clips", rows())


def read(path: Path, n_rows: int = 600, **options: Any) -> ReadyRows:
    parts = list(EmbeddingSource.open(path, SourceOptions(**options)).batches(n_rows))
    assert all(0 < len(one.ids) <= n_rows for one in parts)
    names = ("ids", "labels", "uris", "metadata")
    texts = (pa.concat_arrays([getattr(one, name) for one in parts]) for name in names)
    return ReadyRows(*texts, np.concatenate([one.embeddings for one in parts]))


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(SourceError) as refused:
        read(path, **options)
    return str(refused.value)


@pytest.mark.parametrize("n_rows", [600, 10_000])
def test_every_kind_gives_the_rows_that_were_written(written: Path, n_rows: int) -> None:
    found, expected = read(written, n_rows), rows()
    assert found.ids.to_pylist() == expected["id"].to_pylist()
    assert found.labels.to_pylist() == expected["label"].to_pylist()
    prices = [json.loads(one).get("price") for one in found.metadata.to_pylist()]
    assert prices == expected["price"].to_pylist()
    np.testing.assert_array_equal(found.embeddings, normalize(vectors()))


def test_every_kind_is_known_by_what_lies_there(written: Path) -> None:
    assert holds_embeddings(written)
    assert EmbeddingSource.open(written).dim == DIM
    assert "has no column 'vec', only id, label, price, embedding" in refusal(written, embedding_column="vec")
    assert "holds double, expected lists of numbers" in refusal(written, embedding_column="price")


def test_a_folder_that_is_none_of_these_is_none(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    assert kind_of(tmp_path / "photos") == ""
    assert not holds_embeddings(tmp_path / "photos")
    assert "holds no ready embeddings: give a .parquet file, .lance folder" in refusal(tmp_path / "photos")
    (tmp_path / "empty.lance").mkdir()
    assert "'empty.lance' cannot be read" in refusal(tmp_path / "empty.lance")


def test_a_damaged_dataset_is_refused_by_its_name(tmp_path: Path) -> None:
    path = as_streams(tmp_path / "clips", rows())
    file = min(path.glob("*.arrow"))
    file.write_bytes(file.read_bytes()[:300])
    assert refusal(path).startswith("'clips' cannot be read: ")
    file.unlink()
    assert refusal(path).startswith("'clips' cannot be read: ")
    (path / "state.json").write_text("{}", encoding="utf-8")
    assert refusal(path).startswith("'clips' cannot be read: ")


def test_files_elsewhere_are_no_part_of_a_dataset(tmp_path: Path) -> None:
    path = as_streams(tmp_path / "clips", rows())
    moved = min(path.glob("*.arrow"))
    shutil.move(moved, tmp_path / "elsewhere.arrow")
    state = {"_data_files": [{"filename": "../elsewhere.arrow"}]}
    (path / "state.json").write_text(json.dumps(state), encoding="utf-8")
    assert refusal(path).startswith("'clips' cannot be read: ")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("kind", [np.float16, np.int8])
def test_arrays_of_an_npz_file_are_those_that_were_saved(tmp_path: Path, save: Any, kind: type) -> None:
    array = (10 * vectors(50)).astype(kind)
    save(tmp_path / "a.npz", ids=[f"{i}" for i in range(50)], embeddings=array)
    np.testing.assert_array_equal(read(tmp_path / "a.npz").embeddings, normalize(array))


@pytest.mark.slow
def test_an_uncompressed_npz_file_is_not_held_in_memory(tmp_path: Path) -> None:
    """Negative control: a compressed one is."""
    array, ids = np.ones((10_000, 320), np.float32), np.arange(10_000)
    peaks = {}
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", ids=ids, embeddings=array)
        tracemalloc.start()
        source = EmbeddingSource.open(tmp_path / "a.npz")
        assert sum(len(one.ids) for one in source.batches(100)) == 10_000
        peaks[save] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[np.savez] < peaks[np.savez_compressed] - array.nbytes / 2


def test_a_changed_byte_of_an_npz_file_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, ids=["x", "y"], embeddings=vectors(2))
    with ZipFile(path) as archive:
        place = archive.getinfo("embeddings.npy").header_offset + 200
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    assert "Bad CRC-32" in refusal(path)

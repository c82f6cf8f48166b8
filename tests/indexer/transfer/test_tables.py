"""Tables and pictures: what other programs read is what the gallery holds, and it can be indexed again."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet

from tests.conftest import write_tiny_bundle
from vicinal.indexer import Gallery, index_items, read_source
from vicinal.indexer.jobs.changes import Patch, patch_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import SourceOptions
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.indexer.transfer.tables import ParquetExport, export_parquet
from vicinal.models.bundle import ModelBundle, space_manifest
from vicinal.models.embedder import Embedder, SpaceEmbedder

METADATA: list[dict[str, Any]] = [
    {"price": 1, "color": "red", "sold": True, "tags": ["a", "b"], "label": "inner", "mixed": 1},
    {"price": 2.5, "color": None, "size": {"w": 1}, "mixed": "one"},
    {"when": "2026-01-01", "mixed": "1"},
    {},
]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Four pictures, of which two are equal, with a manifest."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, name in enumerate(["a.png", "b.jpg", "c.png"]):
        pixels = np.random.default_rng(number).integers(0, 256, (40, 60, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name)
    (folder / "d.png").write_bytes((folder / "a.png").read_bytes())
    return folder


@pytest.fixture
def embedder(tmp_path: Path) -> Embedder:
    return Embedder(write_tiny_bundle(tmp_path / "tiny"), device="cpu", threads=1, batch_size=4)


@pytest.fixture
def gallery(tmp_path: Path, photos: Path, embedder: Embedder) -> Gallery:
    gallery = Gallery(tmp_path / "galleries" / "shop")
    index_items(gallery, read_source(photos, SourceOptions("p")), embedder, source="photos", workers=1)
    fields = zip(["p/a.png", "p/b.jpg", "p/c.png", "p/d.png"], METADATA, strict=True)
    patches = {item_id: Patch(label=f"label {item_id[2]}", metadata=one) for item_id, one in fields}
    patch_items(GalleryReader(gallery), patches)
    return gallery


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in parquet.read_table(path).to_pylist()}


def test_originals_come_as_they_are_and_equal_ones_once(
    gallery: Gallery, photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert export_parquet(gallery, out) == ParquetExport(n_items=4, n_originals=4, n_thumbnails=0)
    rows = rows_of(out / "items.parquet")
    assert sorted(rows) == ["p/a.png", "p/b.jpg", "p/c.png", "p/d.png"]
    for item_id, row in rows.items():
        content = (out / row["path"]).read_bytes()
        assert content == (photos / item_id[2:]).read_bytes()
        assert row["path"] == f"images/{sha256(content).hexdigest()[:32]}{Path(item_id).suffix}"
        assert row["label"] == f"label {item_id[2]}"
    assert rows["p/a.png"]["path"] == rows["p/d.png"]["path"]
    assert len(list((out / "images").iterdir())) == 3


def test_files_that_are_gone_or_were_changed_come_as_thumbnails(
    gallery: Gallery, photos: Path, tmp_path: Path
) -> None:
    (photos / "b.jpg").unlink()
    (photos / "c.png").write_bytes(b"something else")
    done = export_parquet(gallery, tmp_path / "out")
    assert (done.n_originals, done.n_thumbnails) == (2, 2)
    rows = rows_of(tmp_path / "out" / "items.parquet")
    for item_id in ("p/b.jpg", "p/c.png"):
        with Image.open(tmp_path / "out" / rows[item_id]["path"]) as image:
            assert (image.format, image.size) == ("JPEG", (60, 40))


def test_embeddings_stand_in_a_table_that_says_whose_they_are(gallery: Gallery, tmp_path: Path) -> None:
    export_parquet(gallery, tmp_path / "out")
    table = parquet.read_table(tmp_path / "out" / "embeddings.parquet")
    held = gallery.table.columns(gallery.activation.revision, ["id", "embedding"]).to_pylist()
    assert {row["id"]: row["embedding"] for row in table.to_pylist()} == {
        row["id"]: row["embedding"] for row in held
    }
    identity = json.loads(table.schema.metadata[b"vicinal"])
    assert identity == gallery.table.identity(gallery.activation.revision)
    assert table.column_names[:3] == ["path", "id", "label"]


def test_the_manifest_can_be_indexed_again(gallery: Gallery, tmp_path: Path, embedder: Embedder) -> None:
    export_parquet(gallery, tmp_path / "out")
    again = Gallery(tmp_path / "galleries" / "again")
    items = read_source(tmp_path / "out" / "items.parquet", SourceOptions())
    index_items(again, items, embedder, source="out", workers=1)
    names = ["id", "label", "embedding", "content_sha256"]
    first, second = (
        sorted(one.table.columns(one.activation.revision, names).to_pylist(), key=lambda row: row["id"])
        for one in (gallery, again)
    )
    assert first == second


def test_ready_embeddings_come_without_pictures(tmp_path: Path, unit: Callable[..., Any]) -> None:
    gallery = Gallery(tmp_path / "galleries" / "clips")
    vectors, ids = unit(30), [f"clip/{i}" for i in range(30)]
    source = EmbeddingSource.of_arrays(vectors, ids=ids, labels=[f"label {i % 5}" for i in range(30)])
    space = ModelBundle(gallery.space_path, space_manifest("clip@2", 8))
    index_items(gallery, source, SpaceEmbedder(space, "clips"))
    done = export_parquet(gallery, tmp_path / "out")
    assert done == ParquetExport(n_items=30, n_originals=0, n_thumbnails=0)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["embeddings.parquet"]
    back = EmbeddingSource.open(tmp_path / "out" / "embeddings.parquet", SourceOptions())
    assert sorted(back.ids.to_pylist()) == sorted(ids)
    found = {row["id"]: row["embedding"] for row in parquet.read_table(tmp_path / "out").to_pylist()}
    assert np.allclose([found[one] for one in ids], vectors)

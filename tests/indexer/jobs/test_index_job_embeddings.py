"""Index job over ready embeddings: rows without images, attempts that go on, and one space a gallery."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from vicinal.indexer import EmbeddingSource, Gallery, SourceItem, index_items
from vicinal.indexer.errors import NoImageError, SpaceMismatchError
from vicinal.indexer.jobs.sync.plan import IndexResult
from vicinal.indexer.reader import GalleryReader
from vicinal.models.bundle import ModelBundle, space_manifest
from vicinal.models.embedder import Embedder, SpaceEmbedder

N, DIM = 30, 8


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    return Gallery(tmp_path / "galleries" / "shop")


def space(gallery: Gallery, text: str = "clip", dim: int = DIM) -> SpaceEmbedder:
    return SpaceEmbedder(ModelBundle(gallery.space_path, space_manifest(text, dim)), gallery.name)


def write(path: Path, n: int = N, dim: int = DIM, *, seed: int = 0, bad_row: int | None = None) -> Path:
    vectors = np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)
    if bad_row is not None:
        vectors[bad_row] = 0
    labels = [None if i % 10 == 9 else f"label {i % 5}" for i in range(n)]
    columns = {"id": [f"it's {i}" for i in range(n)], "label": labels, "price": range(n)}
    parquet.write_table(pa.table({**columns, "embedding": list(vectors)}), path)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "clip.parquet")


@pytest.fixture
def indexed(gallery: Gallery, path: Path) -> Gallery:
    index_items(gallery, EmbeddingSource.open(path), space(gallery))
    return gallery


def contents(gallery: Gallery) -> dict[str, str | None]:
    view = GalleryReader(gallery).view()
    positions = np.arange(view.n_positions)
    return {item["id"]: item["label"] for item in view.items(positions[~view.is_dead(positions)])}


def test_items_have_no_image_and_the_digest_of_their_embedding(indexed: Gallery) -> None:
    version = indexed.active_version
    names = ["thumbnail", "signature", "camera", "taken_at", "content_sha256"]
    columns = indexed.table.columns(version, names)
    assert [columns[name].null_count for name in names] == [N, N, N, N, 0]
    digests = [hashlib.sha256(one.tobytes()).digest() for one in np.asarray(indexed.snapshot().embeddings)]
    assert columns["content_sha256"].to_pylist() == digests
    with pytest.raises(NoImageError, match="item 'it's 3' of gallery 'shop' came as an embedding: it has no"):
        indexed.thumbnail(version, "it's 3")


@pytest.mark.parametrize(("bad_row", "looks_first"), [(0, False), (17, True)])
def test_a_row_that_cannot_be_used_fails_alone(
    gallery: Gallery, tmp_path: Path, bad_row: int, looks_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vicinal.indexer.jobs.sync.run.READY_ROWS_PER_COMMIT", 4)
    source = EmbeddingSource.open(write(tmp_path / "bad.parquet", bad_row=bad_row))
    if looks_first:
        source.look()
    steps: list[tuple[str, int, int]] = []
    result = index_items(gallery, source, space(gallery), on_progress=lambda *step: steps.append(step))
    (failure,) = result.failures
    assert (failure.id, failure.path) == (f"it's {bad_row}", str(tmp_path / "bad.parquet"))
    assert failure.reason.startswith(f"row {bad_row + 1} of 'bad.parquet' has an embedding that is zero")
    assert (result.counts, result.n_items, len(contents(gallery))) == ({"added": N - 1}, N - 1, N - 1)
    assert [step for step in steps if step[0] == "embed"][-1] == ("embed", N, N)
    assert gallery.reports.of(result.version)["failures"] == [asdict(failure)]


def with_bad_rows(path: Path, *, drop: int = 0) -> Path:
    """The table of `write` without a row, and with another one whose embedding is zero."""
    table = parquet.read_table(write(path, bad_row=3))
    parquet.write_table(table.slice(0, len(table) - drop), path)
    return path


@pytest.mark.parametrize("delete", [False, True])
def test_what_is_held_stays_where_its_row_cannot_be_used(
    gallery: Gallery, tmp_path: Path, delete: bool
) -> None:
    """The id of such a row is listed, so that nothing but what is gone goes."""
    path = write(tmp_path / "a.parquet")

    def run() -> IndexResult:
        source = EmbeddingSource.open(path).require_whole()
        return index_items(gallery, source, space(gallery), source=str(path), delete=delete)

    run()
    before = np.asarray(gallery.snapshot().embeddings)[3].tolist()
    with_bad_rows(path, drop=1)
    for expected in ({"unchanged": N - 2, "removed" if delete else "missing": 1}, {"unchanged": N - 2}):
        result = run()
        assert result.counts == (expected if delete else {**expected, "missing": 1})
        (failure,) = result.failures
        assert failure.id == "it's 3"
        assert failure.reason.endswith("; the item stays as it was")
    assert len(contents(gallery)) == N - delete
    assert np.asarray(gallery.snapshot().embeddings)[3].tolist() == before


@pytest.mark.parametrize(
    ("text", "dim", "given"),
    [
        ("siglip", DIM, "ready 8-d embeddings of 'siglip@1'"),
        ("clip@2", DIM, "ready 8-d embeddings of 'clip@2'"),
        ("clip", 4, "ready 4-d embeddings of 'clip@1'"),
    ],
)
def test_another_space_or_length_is_refused(
    indexed: Gallery, tmp_path: Path, text: str, dim: int, given: str
) -> None:
    before = indexed.activation
    source = EmbeddingSource.open(write(tmp_path / "other.parquet", dim=dim))
    expected = f"gallery 'shop' holds ready 8-d embeddings of 'clip@1', not {given}: index these into "
    with pytest.raises(SpaceMismatchError, match=expected):
        index_items(indexed, source, space(indexed, text, dim))
    assert (indexed.activation, indexed.space) == (before, space_manifest("clip", DIM))


def test_images_and_ready_embeddings_are_not_mixed(
    indexed: Gallery, tmp_path: Path, tiny_bundle: ModelBundle, path: Path
) -> None:
    Image.linear_gradient("L").save(tmp_path / "a.png")
    items, embedder = [SourceItem("a", tmp_path / "a.png")], Embedder(tiny_bundle, device="cpu", threads=1)
    with pytest.raises(SpaceMismatchError, match="of 'clip@1', not images embedded by bundle 'tiny': index"):
        index_items(indexed, items, embedder)
    pictures = Gallery(tmp_path / "galleries" / "pictures")
    index_items(pictures, items, embedder)
    with pytest.raises(SpaceMismatchError, match="images embedded by bundle 'tiny', not ready 8-d"):
        index_items(pictures, EmbeddingSource.open(path), space(pictures))
    assert pictures.space is None

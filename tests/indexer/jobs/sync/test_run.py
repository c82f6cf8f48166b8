"""Sync: a source that is indexed again brings what is new and what changed, and takes nothing away."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import write_tiny_bundle
from tests.indexer.pictures import write_picture
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer import Gallery, SourceItem, index_items, read_source
from vicinal.indexer.errors import BuildError, ItemExistsError
from vicinal.indexer.jobs.changes import Patch, add_items, patch_items, remove_items
from vicinal.indexer.jobs.preparation import as_rows, prepare_encoded
from vicinal.indexer.jobs.source_addition import add_source
from vicinal.indexer.jobs.sync.plan import IndexResult
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import source_name
from vicinal.indexer.views.view import GalleryView
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder

N = 6


class CountingEmbedder(Embedder):
    """The real embedder, which counts the images that it embeds."""

    n_embedded = 0

    def infer(self, tensors: Sequence[FloatArray]) -> FloatArray:
        self.n_embedded += len(tensors)
        return super().infer(tensors)


@pytest.fixture
def embedder(tiny_bundle: ModelBundle) -> CountingEmbedder:
    return CountingEmbedder(tiny_bundle, device="cpu", threads=1, batch_size=4)


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    return Gallery(tmp_path / "galleries" / "shoes")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of the photos `0.png`, `1.png` and so on."""
    for number in range(N):
        write_picture(tmp_path / "photos" / f"{number}.png", number)
    return tmp_path / "photos"


@pytest.fixture
def sync(gallery: Gallery, embedder: CountingEmbedder) -> Callable[..., IndexResult]:
    def run(source: Path, **options: Any) -> IndexResult:
        embedder.n_embedded = 0
        used = options.pop("embedder", embedder)
        return index_items(gallery, read_source(source), used, source=source_name(source), **options)

    return run


@pytest.fixture
def indexed(gallery: Gallery, photos: Path, sync: Callable[..., IndexResult]) -> Gallery:
    sync(photos)
    return gallery


def contents(gallery: Gallery) -> dict[str, tuple[str | None, bytes]]:
    """Label and digest of each item."""
    revision = gallery.activation.revision
    rows = gallery.table.columns(revision, ["id", "label", "content_sha256"]).to_pylist()
    searched = {item["id"]: item["label"] for _, item in GalleryReader(gallery).view().page(None, 1000)}
    assert searched == {row["id"]: row["label"] for row in rows}
    return {row["id"]: (row["label"], row["content_sha256"]) for row in rows}


def upload(gallery: Gallery, embedder: Embedder, item_id: str, path: Path) -> None:
    """Add an image as one that came with a request."""
    item = SourceItem(item_id, Path("shoe.png"), "uploaded")
    rows = as_rows([prepare_encoded(item, path.read_bytes(), embedder)], embedder.embed([path]))
    add_items(GalleryReader(gallery), rows, bundle=embedder.bundle.fingerprint)


def test_a_source_that_did_not_change_makes_no_version(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = indexed.activation

    def refuse(path: Path) -> bytes:
        raise AssertionError(f"'{path}' was read")

    monkeypatch.setattr("vicinal.indexer.jobs.sync.held_rows.digest_of", refuse)
    result = sync(photos)
    assert (result.is_new, result.counts, result.version) == (False, {"unchanged": N}, before.version)
    assert (indexed.activation, list((indexed.path / "staging").iterdir())) == (before, [])


def test_new_and_changed_files_alone_are_embedded(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], embedder: CountingEmbedder
) -> None:
    before = contents(indexed)
    write_picture(photos / "1.png", 50)
    write_picture(photos / "7.png", 51)
    result = sync(photos)
    assert result.counts == {"added": 1, "changed": 1, "unchanged": N - 1}
    assert (embedder.n_embedded, result.n_embedded, result.is_active) == (2, 2, True)
    after = contents(indexed)
    assert {name for name in before if before[name] != after[name]} == {"1.png"}
    snapshot = indexed.snapshot()
    for name in after:
        expected = embedder.embed([photos / name])[0]
        np.testing.assert_allclose(
            snapshot.embeddings[GalleryView.of(snapshot).position(name)], expected, atol=1e-6
        )


def test_equal_names_in_another_folder_are_refused_before_anything_is_embedded(
    indexed: Gallery,
    tmp_path: Path,
    sync: Callable[..., IndexResult],
    embedder: CountingEmbedder,
) -> None:
    for number in range(3):
        write_picture(tmp_path / "others" / f"{number}.png", 80 + number)
    before = indexed.activation
    with pytest.raises(
        ItemExistsError, match=r"3 ids belong to other images: '0\.png', '1\.png', '2\.png'; "
    ):
        sync(tmp_path / "others")
    assert (embedder.n_embedded, indexed.activation) == (0, before)
    assert list((indexed.path / "staging").iterdir()) == []


def _rows(gallery: Gallery) -> list[dict[str, Any]]:
    return list(
        gallery.table.columns(gallery.activation.revision, ["id", "source", "uri", "label"]).to_pylist()
    )


def test_a_manifest_s_labels_and_metadata_are_updated_without_embedding(
    gallery: Gallery, photos: Path, sync: Callable[..., IndexResult], embedder: CountingEmbedder
) -> None:
    manifest = photos / "items.csv"

    def write(label: str, price: int) -> Path:
        lines = [f"{i}.png,{label if i == 2 else 'boots'},{price if i == 3 else 1}" for i in range(N)]
        manifest.write_text("\n".join(["path,label,price", *lines]) + "\n", encoding="utf-8")
        return manifest

    sync(write("boots", 1))
    patch_items(GalleryReader(gallery), {"4.png": Patch("by hand", {"note": "mine"})})
    result = sync(write("hats", 2))
    assert (result.counts, embedder.n_embedded) == ({"updated": 2, "unchanged": N - 2}, 0)
    found = {item["id"]: item for _, item in GalleryReader(gallery).view().page(None, 100)}
    assert found["2.png"]["label"] == "hats"
    assert found["3.png"]["metadata"] == {"price": 2}
    assert (found["4.png"]["label"], found["4.png"]["metadata"]) == ("by hand", {"price": 1, "note": "mine"})


@pytest.fixture
def other(tmp_path: Path) -> CountingEmbedder:
    bundle = write_tiny_bundle(tmp_path / "other", name="other", dim=16, seed=1)
    return CountingEmbedder(bundle, device="cpu", threads=1, batch_size=4)


def test_another_bundle_embeds_everything_again(
    indexed: Gallery,
    photos: Path,
    tmp_path: Path,
    sync: Callable[..., IndexResult],
    embedder: CountingEmbedder,
    other: CountingEmbedder,
) -> None:
    more = [SourceItem("more", write_picture(tmp_path / "more.png", 70), "label")]
    add_source(GalleryReader(indexed), more, embedder, source=str(tmp_path / "more.png"), label="by hand")
    before = contents(indexed)
    rows = _rows(indexed)
    write_picture(photos / "7.png", 51)
    result = sync(photos, embedder=other)
    assert (result.counts, other.n_embedded) == ({"added": 1, "unchanged": N}, N + 2)
    after = contents(indexed)
    assert {name: after[name] for name in before} == before
    assert [row for row in _rows(indexed) if row["id"] != "7.png"] == rows
    snapshot = indexed.snapshot()
    assert snapshot.manifest.bundle_name == "other"
    expected = other.embed([tmp_path / "more.png"])[0]
    np.testing.assert_allclose(
        snapshot.embeddings[GalleryView.of(snapshot).position("more")], expected, atol=1e-6
    )


@pytest.mark.parametrize("own", [False, True])
def test_another_bundle_is_refused_where_an_image_is_not_there_any_more(
    indexed: Gallery,
    photos: Path,
    tmp_path: Path,
    sync: Callable[..., IndexResult],
    embedder: CountingEmbedder,
    other: CountingEmbedder,
    own: bool,
) -> None:
    upload(indexed, embedder, "upload", write_picture(tmp_path / "upload.png", 60))
    before = contents(indexed)

    def run(**options: Any) -> IndexResult:
        if own:
            return index_items(indexed, None, other, **options)
        return sync(photos, embedder=other, **options)

    with pytest.raises(BuildError, match="1 of its images cannot be read any more: 'upload'; keep to its"):
        run()
    assert (other.n_embedded, contents(indexed)) == (0, before)
    assert run(max_failures=1).is_new
    assert set(contents(indexed)) == set(before) - {"upload"}


class StoppedError(Exception):
    """The run was stopped here."""


@pytest.mark.parametrize("stage", ["copy", "embed", "neighbors", "publish"])
def test_a_stopped_sync_goes_on_where_it_was(
    indexed: Gallery,
    photos: Path,
    sync: Callable[..., IndexResult],
    embedder: CountingEmbedder,
    stage: str,
) -> None:
    before = contents(indexed)
    write_picture(photos / "1.png", 50)
    for number in range(10, 20):
        write_picture(photos / f"{number}.png", number)

    def stop(at: str, done: int, _total: int) -> None:
        if at == stage and (at != "embed" or done >= 8):
            raise StoppedError

    with pytest.raises(StoppedError):
        sync(photos, on_progress=stop)
    assert contents(indexed) == before
    result = sync(photos)
    assert embedder.n_embedded == {"copy": 11, "embed": 3}.get(stage, 0)
    assert result.counts == {"added": 10, "changed": 1, "unchanged": N - 1}
    assert (result.n_embedded, len(contents(indexed))) == (11, N + 10)


def remove(gallery: Gallery, *item_ids: str) -> None:
    remove_items(GalleryReader(gallery), item_ids)


def test_what_was_removed_stays_out_of_the_next_runs_until_it_is_restored(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], embedder: CountingEmbedder
) -> None:
    remove(indexed, "1.png", "4.png")
    write_picture(photos / "new.png", 50)
    for counts in ({"added": 1, "unchanged": 4, "left_out": 2}, {"unchanged": 5, "left_out": 2}):
        result = sync(photos)
        assert (result.counts, result.left_out) == (counts, ["1.png", "4.png"])
        assert set(contents(indexed)) == {"0.png", "2.png", "3.png", "5.png", "new.png"}
    result = sync(photos, restore=True)
    assert (result.counts, embedder.n_embedded, len(contents(indexed))) == (
        {"added": 2, "unchanged": 5},
        2,
        7,
    )
    assert not sync(photos).is_new
    assert len(contents(indexed)) == 7


def test_a_moved_or_copied_source_does_not_bring_back_what_was_removed(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], tmp_path: Path
) -> None:
    remove(indexed, "1.png")
    shutil.copytree(photos, tmp_path / "copy")
    assert sync(tmp_path / "copy").left_out == ["1.png"]
    photos.rename(tmp_path / "moved")
    assert sync(tmp_path / "moved").left_out == ["1.png"]


def test_a_removal_that_never_came_into_force_is_none(
    indexed: Gallery,
    photos: Path,
    sync: Callable[..., IndexResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("vicinal.indexer.storage.active_pointer._add", die)
        with pytest.raises(KeyboardInterrupt):
            remove(indexed, "1.png")
    assert sync(photos).counts == {"unchanged": N}
    # Its note is forgotten where the source drops the item itself.
    (photos / "1.png").rename(tmp_path / "aside.png")
    sync(photos, delete=True)
    (tmp_path / "aside.png").rename(photos / "1.png")
    assert sync(photos).counts == {"added": 1, "unchanged": N - 1}

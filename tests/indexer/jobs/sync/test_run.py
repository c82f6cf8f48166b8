"""Sync: a source that is indexed again brings what is new and what changed, and takes nothing away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.conftest import write_tiny_bundle
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer import EmbeddingSource, Gallery, SourceItem, index_items, read_source
from vicinal.indexer.errors import BuildError, ItemExistsError
from vicinal.indexer.jobs.changes import Patch, add_items, patch_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.preparation import as_rows, prepare_encoded
from vicinal.indexer.jobs.retention import RetentionPolicy, prune
from vicinal.indexer.jobs.source_addition import add_source
from vicinal.indexer.jobs.sync.plan import IndexResult
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import source_name
from vicinal.indexer.views.view import GalleryView
from vicinal.models.bundle import ModelBundle, space_manifest
from vicinal.models.embedder import Embedder, SpaceEmbedder

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


def picture(path: Path, seed: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 5, 3)).astype(np.uint8)
    Image.fromarray(coarse).resize((40, 32), Image.Resampling.BICUBIC).save(path)
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of the photos `0.png`, `1.png` and so on."""
    for number in range(N):
        picture(tmp_path / "photos" / f"{number}.png", number)
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


def test_rows_say_which_file_they_are_of(indexed: Gallery, photos: Path) -> None:
    names = ["id", "source", "file_size", "modified_at"]
    row = indexed.table.columns(indexed.active_version, names).to_pylist()[2]
    written = (photos / "2.png").stat()
    assert (row["id"], row["source"], row["file_size"]) == ("2.png", str(photos), written.st_size)
    assert round(row["modified_at"].timestamp() * 1e6) == written.st_mtime_ns // 1000


@pytest.mark.slow
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


@pytest.mark.slow
def test_new_and_changed_files_alone_are_embedded(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], embedder: CountingEmbedder
) -> None:
    before = contents(indexed)
    picture(photos / "1.png", 50)
    picture(photos / "7.png", 51)
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


def test_a_file_that_was_only_touched_is_unchanged(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult]
) -> None:
    os.utime(photos / "1.png", (1, 1))
    result = sync(photos)
    assert (result.is_new, result.counts) == (False, {"unchanged": N})


@pytest.mark.slow
def test_files_that_are_gone_stay_until_they_are_to_be_deleted(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult]
) -> None:
    before = contents(indexed)
    for number in (1, 3):
        (photos / f"{number}.png").unlink()
    result = sync(photos)
    assert (result.is_new, result.counts) == (False, {"unchanged": N - 2, "missing": 2})
    assert (result.missing, contents(indexed)) == (["1.png", "3.png"], before)
    result = sync(photos, delete=True)
    assert (result.counts, result.missing) == ({"unchanged": N - 2, "removed": 2}, [])
    assert set(contents(indexed)) == set(before) - {"1.png", "3.png"}


@pytest.mark.slow
def test_other_sources_and_uploads_stay(
    indexed: Gallery,
    photos: Path,
    tmp_path: Path,
    sync: Callable[..., IndexResult],
    embedder: CountingEmbedder,
) -> None:
    upload(indexed, embedder, "upload", picture(tmp_path / "upload.png", 60))
    more = [SourceItem(f"more/{i}", picture(tmp_path / "more" / f"{i}.png", 70 + i)) for i in range(2)]
    add_source(GalleryReader(indexed), more, embedder, source=str(tmp_path / "more"))
    before = contents(indexed)
    (photos / "1.png").unlink()
    picture(photos / "7.png", 51)
    result = sync(photos, delete=True)
    assert result.counts == {"added": 1, "unchanged": N - 1, "removed": 1}
    after = contents(indexed)
    assert set(after) == {*before, "7.png"} - {"1.png"}
    assert {name: after[name] for name in before if name != "1.png"} == {
        name: one for name, one in before.items() if name != "1.png"
    }


def test_equal_names_in_another_folder_are_refused_before_anything_is_embedded(
    indexed: Gallery,
    tmp_path: Path,
    sync: Callable[..., IndexResult],
    embedder: CountingEmbedder,
) -> None:
    for number in range(3):
        picture(tmp_path / "others" / f"{number}.png", 80 + number)
    before = indexed.activation
    with pytest.raises(
        ItemExistsError, match=r"3 ids belong to other images: '0\.png', '1\.png', '2\.png'; "
    ):
        sync(tmp_path / "others")
    assert (embedder.n_embedded, indexed.activation) == (0, before)
    assert list((indexed.path / "staging").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conflict", "counts", "n_left"),
    [("skip", {"added": 1, "skipped": 3}, 3), ("replace", {"added": 1, "replaced": 3}, 0)],
)
def test_conflicts_are_skipped_or_replaced(
    indexed: Gallery,
    tmp_path: Path,
    sync: Callable[..., IndexResult],
    conflict: str,
    counts: dict[str, int],
    n_left: int,
) -> None:
    before = contents(indexed)
    for number in (0, 1, 2, 9):
        picture(tmp_path / "others" / f"{number}.png", 80 + number)
    assert sync(tmp_path / "others", conflict=conflict).counts == counts
    after = contents(indexed)
    assert set(after) == {*before, "9.png"}
    assert sum(after[f"{number}.png"] == before[f"{number}.png"] for number in range(3)) == n_left


@pytest.mark.slow
def test_a_folder_that_was_moved_is_taken_over(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], embedder: CountingEmbedder
) -> None:
    moved = photos.rename(photos.with_name("moved"))
    assert sync(moved).counts == {"unchanged": N}
    assert embedder.n_embedded == 0
    picture(moved / "1.png", 50)
    assert sync(moved).counts == {"changed": 1, "unchanged": N - 1}
    assert {row["source"] for row in _rows(indexed)} == {str(moved)}


def _rows(gallery: Gallery) -> list[dict[str, Any]]:
    return list(
        gallery.table.columns(gallery.activation.revision, ["id", "source", "uri", "label"]).to_pylist()
    )


@pytest.mark.slow
def test_a_changed_file_that_cannot_be_used_leaves_its_item_as_it_was(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult]
) -> None:
    before = contents(indexed)
    (photos / "1.png").write_bytes(b"words")
    (photos / "8.png").write_bytes(b"words")
    result = sync(photos)
    assert (result.is_new, result.counts) == (False, {"unchanged": N - 1})
    assert [(one.id, "stays as it was" in one.reason) for one in result.failures] == [
        ("1.png", True),
        ("8.png", False),
    ]
    picture(photos / "7.png", 51)
    assert sync(photos).counts == {"added": 1, "unchanged": N - 1}
    after = contents(indexed)
    assert {name: after[name] for name in before} == before


def test_a_source_of_which_nothing_can_be_used_is_an_error(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult]
) -> None:
    """So that a disk that is not there is noticed."""
    before = contents(indexed)
    for path in photos.iterdir():
        path.write_bytes(b"words")
    with pytest.raises(BuildError, match=f"none of {N} images could be used, the first because the bytes"):
        sync(photos, delete=True)
    assert contents(indexed) == before


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_label_given_by_hand_when_it_was_added_stays(
    indexed: Gallery, tmp_path: Path, sync: Callable[..., IndexResult], embedder: CountingEmbedder
) -> None:
    picture(tmp_path / "more" / "x.png", 70)
    items = read_source(tmp_path / "more")
    name = source_name(tmp_path / "more")
    add_source(GalleryReader(indexed), items, embedder, source=name, label="boots")
    assert not sync(tmp_path / "more").is_new
    assert contents(indexed)["x.png"][0] == "boots"


@pytest.mark.slow
def test_live_changes_and_their_compaction_come_along(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult]
) -> None:
    reader = GalleryReader(indexed)
    patch_items(reader, {"1.png": Patch("patched")})
    compact(reader)
    patch_items(reader, {"2.png": Patch("patched too")})
    picture(photos / "7.png", 51)
    sync(photos)
    after = contents(indexed)
    assert [after[f"{i}.png"][0] for i in (1, 2)] == ["patched", "patched too"]
    assert GalleryReader(indexed).view().graph_staleness == 0


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "spec"), [("IVF2,Flat", "IVF2,Flat"), ("graph", "HNSW16,SQ8")])
def test_another_index_is_built_of_what_is_there(
    indexed: Gallery,
    photos: Path,
    sync: Callable[..., IndexResult],
    embedder: CountingEmbedder,
    kind: str,
    spec: str,
) -> None:
    result = sync(photos, index=kind)
    assert (result.is_new, result.index, embedder.n_embedded) == (True, spec, 0)
    assert not sync(photos, index=kind).is_new


@pytest.fixture
def other(tmp_path: Path) -> CountingEmbedder:
    bundle = write_tiny_bundle(tmp_path / "other", name="other", dim=16, seed=1)
    return CountingEmbedder(bundle, device="cpu", threads=1, batch_size=4)


@pytest.mark.slow
def test_another_bundle_embeds_everything_again(
    indexed: Gallery,
    photos: Path,
    tmp_path: Path,
    sync: Callable[..., IndexResult],
    embedder: CountingEmbedder,
    other: CountingEmbedder,
) -> None:
    more = [SourceItem("more", picture(tmp_path / "more.png", 70), "label")]
    add_source(GalleryReader(indexed), more, embedder, source=str(tmp_path / "more.png"), label="by hand")
    before = contents(indexed)
    rows = _rows(indexed)
    picture(photos / "7.png", 51)
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


@pytest.mark.slow
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
    upload(indexed, embedder, "upload", picture(tmp_path / "upload.png", 60))
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


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["copy", "embed", "neighbors", "publish"])
def test_a_stopped_sync_goes_on_where_it_was(
    indexed: Gallery,
    photos: Path,
    sync: Callable[..., IndexResult],
    embedder: CountingEmbedder,
    stage: str,
) -> None:
    before = contents(indexed)
    picture(photos / "1.png", 50)
    for number in range(10, 20):
        picture(photos / f"{number}.png", number)

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


@pytest.mark.slow
def test_an_upload_during_a_sync_is_kept_also_under_an_id_of_the_source(
    indexed: Gallery,
    photos: Path,
    tmp_path: Path,
    sync: Callable[..., IndexResult],
    embedder: CountingEmbedder,
) -> None:
    path, done = picture(tmp_path / "upload.png", 60), list[str]()
    picture(photos / "7.png", 51)

    def add(at: str, *_: int) -> None:
        if at == "neighbors" and not done:
            done.append(at)
            upload(indexed, embedder, "7.png", path)
            upload(indexed, embedder, "mine", path)

    sync(photos, on_progress=add)
    assert [contents(indexed)[name][0] for name in ("7.png", "mine")] == ["uploaded", "uploaded"]
    with pytest.raises(ItemExistsError, match=r"'7\.png'"):
        sync(photos)


@pytest.mark.slow
def test_of_two_rows_with_one_id_the_first_counts_also_where_it_is_held(
    gallery: Gallery, photos: Path, embedder: CountingEmbedder
) -> None:
    items = read_source(photos)
    twice = [*items, SourceItem("0.png", items[3].path)]
    for seed in (90, 91):
        picture(items[5].path, seed)
        result = index_items(gallery, twice, embedder, source="twice")
        assert [one.id for one in result.failures] == ["0.png"]
    assert contents(gallery)["0.png"] != contents(gallery)["3.png"]


def write_vectors(path: Path, rows: dict[str, int], label: str = "boots") -> EmbeddingSource:
    vectors = np.stack([np.random.default_rng(seed).normal(size=8) for seed in rows.values()])
    np.savez(path, ids=list(rows), labels=[label] * len(rows), embeddings=vectors.astype(np.float32))
    return EmbeddingSource.open(path)


@pytest.mark.slow
def test_ready_embeddings_are_taken_over_by_id(gallery: Gallery, tmp_path: Path) -> None:
    space = SpaceEmbedder(ModelBundle(gallery.space_path, space_manifest("clip", 8)), gallery.name)

    def run(name: str, rows: dict[str, int], label: str = "boots", **options: Any) -> IndexResult:
        source = write_vectors(tmp_path / name, rows, label)
        return index_items(gallery, source, space, source=str(tmp_path / name), **options)

    run("a.npz", {"a": 0, "b": 1, "c": 2})
    assert not run("a.npz", {"a": 0, "b": 1, "c": 2}).is_new
    result = run("a.npz", {"a": 0, "b": 7, "d": 3})
    assert result.counts == {"added": 1, "changed": 1, "unchanged": 1, "missing": 1}
    assert (result.missing, result.n_embedded, set(contents(gallery))) == (["c"], 2, set("abcd"))
    with pytest.raises(ItemExistsError, match="another embedding has the id 'a'"):
        run("b.npz", {"a": 5, "e": 6})
    assert run("b.npz", {"a": 5, "e": 6}, conflict="skip").counts == {"added": 1, "skipped": 1}
    assert run("a.npz", {"a": 0, "b": 7, "d": 3}, "hats").counts == {"updated": 3, "missing": 1}
    assert {name: one[0] for name, one in contents(gallery).items()} == {
        **dict.fromkeys("abd", "hats"),
        **dict.fromkeys("ce", "boots"),
    }
    result = run("a.npz", {"a": 0}, "hats", delete=True)
    assert (result.counts, set(contents(gallery))) == ({"unchanged": 1, "removed": 3}, {"a", "e"})


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def remove(gallery: Gallery, *item_ids: str) -> None:
    remove_items(GalleryReader(gallery), item_ids)


@pytest.mark.slow
def test_what_was_removed_stays_out_of_the_next_runs_until_it_is_restored(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], embedder: CountingEmbedder
) -> None:
    remove(indexed, "1.png", "4.png")
    picture(photos / "new.png", 50)
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


@pytest.mark.slow
def test_no_file_of_a_removed_item_is_read(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(indexed, "1.png")

    def refuse(path: Path) -> bytes:
        raise AssertionError(f"'{path}' was read")

    monkeypatch.setattr("vicinal.indexer.jobs.sync.held_rows.digest_of", refuse)
    assert sync(photos).counts == {"unchanged": N - 1, "left_out": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "left_out"),
    [
        (lambda path: os.utime(path, (1, 1)), ["1.png"]),
        (lambda path: path.rename(path.with_name("moved.png")), ["moved.png"]),
        (lambda path: shutil.move(path, made(path.parent / "below")), ["below/1.png"]),
        (lambda path: picture(path, 70), []),
        (lambda path: path.unlink(), []),
    ],
)
def test_a_removed_image_is_known_wherever_it_lies_in_its_source(
    indexed: Gallery,
    photos: Path,
    sync: Callable[..., IndexResult],
    change: Callable[[Path], object],
    left_out: list[str],
) -> None:
    remove(indexed, "1.png")
    change(photos / "1.png")
    result = sync(photos)
    assert (result.left_out, result.counts.get("added", 0)) == (
        left_out,
        int((photos / "1.png").exists() and not left_out),
    )


@pytest.mark.slow
def test_a_moved_or_copied_source_does_not_bring_back_what_was_removed(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], tmp_path: Path
) -> None:
    remove(indexed, "1.png")
    shutil.copytree(photos, tmp_path / "copy")
    assert sync(tmp_path / "copy").left_out == ["1.png"]
    photos.rename(tmp_path / "moved")
    assert sync(tmp_path / "moved").left_out == ["1.png"]


@pytest.mark.slow
def test_a_copy_that_was_kept_may_move_and_vanish_and_come_back(
    gallery: Gallery, photos: Path, sync: Callable[..., IndexResult], tmp_path: Path
) -> None:
    shutil.copy(photos / "0.png", photos / "copy.png")
    sync(photos)
    remove(gallery, "copy.png")
    (photos / "0.png").rename(photos / "kept.png")
    assert sync(photos, delete=True).counts == {"added": 1, "removed": 1, "unchanged": N - 1, "left_out": 1}
    (photos / "kept.png").rename(tmp_path / "aside.png")
    assert sync(photos, delete=True).counts == {"removed": 1, "unchanged": N - 1, "left_out": 1}
    (tmp_path / "aside.png").rename(photos / "kept.png")
    assert sync(photos).counts == {"added": 1, "unchanged": N - 1, "left_out": 1}


@pytest.mark.slow
def test_what_the_source_dropped_comes_back_with_its_file(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], tmp_path: Path
) -> None:
    (photos / "1.png").rename(tmp_path / "aside.png")
    sync(photos, delete=True)
    (tmp_path / "aside.png").rename(photos / "1.png")
    assert sync(photos).counts == {"added": 1, "unchanged": N - 1}
    # Also where it was removed and restored before.
    remove(indexed, "1.png")
    sync(photos, restore=True)
    (photos / "1.png").rename(tmp_path / "aside.png")
    sync(photos, delete=True)
    (tmp_path / "aside.png").rename(photos / "1.png")
    assert sync(photos).counts == {"added": 1, "unchanged": N - 1}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["upload", "add_source"])
def test_to_add_it_again_is_a_wish(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], embedder: CountingEmbedder, way: str
) -> None:
    remove(indexed, "1.png")
    if way == "upload":
        upload(indexed, embedder, "1.png", photos / "1.png")
    else:
        reader, items = GalleryReader(indexed), read_source(photos / "1.png")
        add_source(reader, items, embedder, source=source_name(photos / "1.png"))
    assert sync(photos).counts.get("left_out") is None
    assert len(contents(indexed)) == N


@pytest.mark.slow
def test_another_bundle_brings_nothing_back(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], tmp_path: Path
) -> None:
    remove(indexed, "1.png")
    other = Embedder(write_tiny_bundle(tmp_path / "other", seed=1), device="cpu", threads=1, batch_size=4)
    result = sync(photos, embedder=other)
    assert (result.left_out, result.n_items) == (["1.png"], N - 1)


@pytest.mark.slow
def test_of_a_gallery_that_lost_everything_nothing_is_left_for_another_bundle(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], tmp_path: Path
) -> None:
    remove(indexed, *(f"{number}.png" for number in range(N)))
    assert sync(photos).counts == {"left_out": N}
    other = Embedder(write_tiny_bundle(tmp_path / "other", seed=1), device="cpu", threads=1, batch_size=4)
    with pytest.raises(BuildError, match="all that the source lists was removed from it"):
        sync(photos, embedder=other)
    assert sync(photos, embedder=other, restore=True).n_items == N


@pytest.mark.slow
def test_versions_that_were_searched_before_have_what_was_removed_since(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult]
) -> None:
    picture(photos / "new.png", 50)
    version = sync(photos).version
    remove(indexed, "1.png")
    indexed.pointer.activate(1)
    assert sync(photos).counts == {"added": 1, "unchanged": N}
    indexed.pointer.activate(version)
    assert sync(photos).left_out == ["1.png"]


@pytest.mark.slow
def test_compaction_and_pruning_forget_nothing(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult]
) -> None:
    remove(indexed, "1.png")
    compact(GalleryReader(indexed))
    prune(indexed, RetentionPolicy(versions=1, days=0), grace=timedelta(0))
    assert sync(photos).left_out == ["1.png"]


@pytest.mark.slow
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
        patch.setattr("vicinal.indexer.storage.active_pointer.ActivePointer.move_revision", die)
        with pytest.raises(KeyboardInterrupt):
            remove(indexed, "1.png")
    assert sync(photos).counts == {"unchanged": N}
    # Its note is forgotten where the source drops the item itself.
    (photos / "1.png").rename(tmp_path / "aside.png")
    sync(photos, delete=True)
    (tmp_path / "aside.png").rename(photos / "1.png")
    assert sync(photos).counts == {"added": 1, "unchanged": N - 1}


@pytest.mark.slow
def test_what_is_added_and_removed_during_a_run_is_not_in_its_version(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], embedder: CountingEmbedder
) -> None:
    picture(photos / "new.png", 50)
    seen: list[str] = []

    def on_progress(stage: str, *_: int) -> None:
        if stage == "neighbors" and not seen:
            seen.append(stage)
            upload(indexed, embedder, "new.png", photos / "new.png")
            remove(indexed, "new.png", "1.png")

    sync(photos, on_progress=on_progress)
    assert set(contents(indexed)) == {"0.png", "2.png", "3.png", "4.png", "5.png"}
    assert sync(photos).left_out == ["1.png", "new.png"]


@pytest.mark.slow
def test_what_is_removed_while_it_is_restored_stays_out(
    indexed: Gallery, photos: Path, sync: Callable[..., IndexResult], embedder: CountingEmbedder
) -> None:
    remove(indexed, "1.png", "2.png")
    seen: list[str] = []

    def on_progress(stage: str, *_: int) -> None:
        if stage == "neighbors" and not seen:
            seen.append(stage)
            upload(indexed, embedder, "1.png", photos / "1.png")
            remove(indexed, "1.png")

    sync(photos, restore=True, on_progress=on_progress)
    assert set(contents(indexed)) == {"0.png", "2.png", "3.png", "4.png", "5.png"}
    assert sync(photos).left_out == ["1.png"]


@pytest.mark.slow
def test_ready_embeddings_that_were_removed_stay_out(gallery: Gallery, tmp_path: Path) -> None:
    space = SpaceEmbedder(ModelBundle(gallery.space_path, space_manifest("clip", 8)), gallery.name)

    def run(rows: dict[str, int], name: str | None = "a.npz", **options: Any) -> IndexResult:
        return index_items(gallery, write_vectors(tmp_path / "a.npz", rows), space, source=name, **options)

    run({"a": 0, "b": 1, "c": 2})
    remove(gallery, "a", "b")
    assert run({"a": 0, "b": 1, "c": 2}, None).left_out == ["a", "b"]
    # Another embedding in the place of one, and the other one moved.
    assert run({"a": 5, "c": 2, "d": 1}).counts == {"added": 1, "unchanged": 1, "left_out": 1}
    remove(gallery, "a", "c")
    assert run({"a": 5, "c": 2}).counts == {"left_out": 2}
    assert run({"a": 5, "c": 2}, restore=True).counts == {"added": 2}

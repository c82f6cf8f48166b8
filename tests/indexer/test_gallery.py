"""Gallery: versions that are searched, made again from the table, locked while written, and deleted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer import Gallery, list_galleries
from vicinal.indexer.errors import GalleryError, ItemNotFoundError
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.similarity import normalize

ODD_IDS = ["it's", "''", 'a"b', "back\\slash", "100%_", "naïve 日本", "x' OR 'a' = 'a"]
HOLD_THE_LOCK = """
import sys, time
from vicinal.indexer import Gallery
with Gallery(sys.argv[1]).writing():
    print("held", flush=True)
    time.sleep(60)
"""


def _embeddings(n: int, seed: int) -> FloatArray:
    return normalize(np.random.default_rng(seed).normal(size=(n, 8)))


def _rows(ids: list[str], embeddings: FloatArray) -> pa.Table:
    n, dim = embeddings.shape
    return pa.table(
        {
            "id": ids,
            "label": ["boots"] * n,
            "uri": [f"{item_id}.jpg" for item_id in ids],
            "metadata": ["{}"] * n,
            "thumbnail": [f"thumbnail of {item_id}".encode() for item_id in ids],
            "content_sha256": pa.array([bytes(32)] * n, pa.binary(32)),
            "source": pa.nulls(n, pa.string()),
            "file_size": pa.nulls(n, pa.int64()),
            "modified_at": pa.nulls(n, pa.timestamp("us", tz="UTC")),
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(embeddings.reshape(-1)), dim),
        }
    )


def _publish(gallery: Gallery, ids: list[str], seed: int = 0, index: str = "auto") -> int:
    """Write a version with random embeddings, the last two items in a second commit."""
    rows = _rows(ids, _embeddings(len(ids), seed))
    gallery.start(rows.slice(0, len(ids) - 2), bundle="0123456789abcdef", bundle_name="tiny")
    gallery.table.append(rows.slice(len(ids) - 2))
    graph = build_neighbor_graph(gallery.pending_embeddings())
    return gallery.publish(graph, index=index).manifest.version


def _searched(snapshot: Snapshot) -> list[list[int]]:
    found: list[list[int]] = snapshot.index.search(_embeddings(5, seed=99), 4).tolist()
    return found


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    """A gallery of seven items with ids that are hard to quote."""
    made = Gallery(tmp_path / "shoes")
    _publish(made, ODD_IDS)
    return made


@pytest.mark.parametrize("name", ["Shoes", "a b", "-a", ".hidden", "x" * 65, "ä", "shoes\n"])
def test_name_that_is_no_file_name_everywhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(GalleryError, match="is no gallery name"):
        Gallery(tmp_path / name)


def test_published_version_is_active_and_the_older_one_stays(gallery: Gallery) -> None:
    first = gallery.active_version
    second = _publish(gallery, ["a", "b", "c"], seed=1)
    assert gallery.versions() == [first, second]
    assert gallery.active_version == second
    assert (len(gallery.snapshot(first)), len(gallery.snapshot())) == (7, 3)


def test_versions_are_numbered_one_by_one_whatever_the_table_counts(gallery: Gallery) -> None:
    assert [_publish(gallery, ["a", "b"], seed) for seed in (1, 2)] == [2, 3]
    assert gallery.versions() == [1, 2, 3]
    revisions = [gallery.pointer.revision_of(version) for version in (1, 2, 3)]
    assert revisions == sorted(revisions)
    assert revisions[0] > 1


@pytest.mark.parametrize("then", [1, 3])
def test_the_number_of_a_version_that_is_gone_is_not_given_again(gallery: Gallery, then: int) -> None:
    """Calibrations and links name versions by it."""
    for seed in (1, 2):
        _publish(gallery, ["a", "b"], seed)
    gallery.pointer.activate(then)
    gallery.forget({1, 2, 3})
    gallery.pointer.keep_only(())
    assert gallery.versions() == [then]
    assert _publish(gallery, ["a", "b", "c"], seed=3) == 4


@pytest.mark.parametrize(
    "name",
    [
        "embeddings.npy",
        "initial.index",
        "items.arrow",
        "neighbor_ids.npy",
        "neighbor_similarities.npy",
        "sequences.npy",
        "snapshot.json",
    ],
)
def test_damaged_snapshot_is_made_again_and_finds_the_same(gallery: Gallery, name: str) -> None:
    intact = gallery.snapshot()
    before, items = _searched(intact), intact.items(range(len(intact)))
    file = intact.path / name
    file.write_bytes(file.read_bytes()[::-1])
    with pytest.raises(GalleryError):
        Snapshot.open(intact.path)
    assert _searched(gallery.snapshot()) == before
    assert Snapshot.open(intact.path).items(range(len(intact))) == items


def test_deleted_snapshots_are_made_again_with_the_same_arrays(gallery: Gallery) -> None:
    before = gallery.snapshot()
    arrays = [np.array(before.embeddings), np.array(before.neighbor_ids), _searched(before)]
    shutil.rmtree(gallery.path / "versions")
    again = gallery.snapshot()
    for expected, actual in zip(
        arrays, [again.embeddings, again.neighbor_ids, _searched(again)], strict=True
    ):
        assert np.array_equal(expected, actual)
    assert again.manifest == before.manifest


def test_thumbnail_is_found_by_any_id_and_by_no_other(gallery: Gallery) -> None:
    revision = gallery.snapshot().manifest.revision
    for item_id in ODD_IDS:
        assert gallery.thumbnail(revision, item_id) == f"thumbnail of {item_id}".encode()
    for item_id in ("absent", "", "'", "' OR 1 = 1 --", "it"):
        with pytest.raises(ItemNotFoundError) as caught:
            gallery.thumbnail(revision, item_id)
        assert (caught.value.gallery, caught.value.item_id) == ("shoes", item_id)


def test_second_writer_is_refused_until_the_first_is_done(tmp_path: Path) -> None:
    first, second = Gallery(tmp_path / "shoes"), Gallery(tmp_path / "shoes")
    with first.writing(), pytest.raises(GalleryError, match="being written by another job"), second.writing():
        pytest.fail("two writers at once")
    with second.writing():
        assert second.path.is_dir()


@pytest.mark.slow
def test_lock_is_held_across_processes_and_released_when_the_holder_is_killed(tmp_path: Path) -> None:
    gallery = Gallery(tmp_path / "shoes")
    command = [sys.executable, "-c", HOLD_THE_LOCK, str(gallery.path)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(GalleryError, match="another job"), gallery.writing():
                pytest.fail("two writers at once")
        finally:
            holder.kill()
    with gallery.writing():
        assert (gallery.path / "writer.lock").is_file()


def test_a_deletion_that_died_leaves_no_half_gallery(
    live_gallery: Gallery,
    rows: Callable[..., pa.Table],
    unit: Callable[..., FloatArray],
    publish: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def die(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vicinal.indexer.gallery.shutil.rmtree", die)
    with pytest.raises(KeyboardInterrupt):
        live_gallery.delete()
    monkeypatch.undo()
    root = live_gallery.path.parent
    assert (list_galleries(root), len(list(root.glob("*.deleted")))) == ([], 1)
    publish(live_gallery, rows(["new"], unit(1)))
    live_gallery.delete()
    # The room that removals take is kept for all galleries.
    assert [path.name for path in root.iterdir()] == [".reserve"]

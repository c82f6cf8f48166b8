"""Gallery: versions that are searched, made again from the table, locked while written, and deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.mappings import is_read_at_random
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer import Gallery, list_galleries
from vicinal.indexer.errors import GalleryError, GalleryNotFoundError, ItemNotFoundError
from vicinal.indexer.gallery import read_ahead
from vicinal.indexer.graph.gpu import IndexDevices
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.reader import GalleryReader
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

SEARCH = """
import sys
from vicinal.indexer import Gallery
from vicinal.indexer.reader import GalleryReader
view = GalleryReader(Gallery(sys.argv[1])).view()
view.nearest(view.vectors(view.positions(["100%_"])), 3)
print("lance" in sys.modules)
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


@pytest.mark.parametrize("name", ["shoes", "0", "a-b_c", "x" * 64])
def test_plain_name_is_accepted(tmp_path: Path, name: str) -> None:
    assert Gallery(tmp_path / name).name == name


@pytest.mark.parametrize("name", ["Shoes", "a b", "-a", "_a", ".hidden", "x" * 65, "schuhe!", "ä", "shoes\n"])
def test_name_that_is_no_file_name_everywhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(GalleryError, match="is no gallery name"):
        Gallery(tmp_path / name)


def test_path_that_climbs_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GalleryError, match="is no gallery name"):
        Gallery(f"{tmp_path}/shoes/..")


def test_naming_a_gallery_makes_nothing(tmp_path: Path) -> None:
    assert Gallery(tmp_path / "shoes").active_version is None
    assert list(tmp_path.iterdir()) == []


def test_open_of_an_unknown_gallery_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(GalleryNotFoundError, match="'shoes': make one with `index`"):
        Gallery.open(tmp_path / "shoes")


def test_snapshot_of_a_gallery_without_versions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GalleryNotFoundError, match="never indexed"):
        Gallery(tmp_path / "shoes").snapshot()


def test_published_items_keep_their_order_over_several_commits(gallery: Gallery) -> None:
    snapshot = Gallery.open(gallery.path).snapshot()
    assert [item["id"] for item in snapshot.items(range(len(snapshot)))] == ODD_IDS
    assert np.array_equal(snapshot.embeddings, _embeddings(len(ODD_IDS), seed=0))


def test_published_version_is_active_and_the_older_one_stays(gallery: Gallery) -> None:
    first = gallery.active_version
    second = _publish(gallery, ["a", "b", "c"], seed=1)
    assert gallery.versions() == [first, second]
    assert gallery.active_version == second
    assert (len(gallery.snapshot(first)), len(gallery.snapshot())) == (7, 3)


def test_version_numbers_are_ordered_as_numbers(gallery: Gallery) -> None:
    for name in ("10", "9", "11.partial", "notes"):
        (gallery.path / "versions" / name).mkdir()
    assert gallery.versions()[-2:] == [9, 10]


def test_activate_rolls_back_to_an_older_version(gallery: Gallery) -> None:
    first = gallery.versions()[0]
    _publish(gallery, ["a", "b", "c"], seed=1)
    gallery.pointer.activate(first)
    assert gallery.snapshot().manifest.version == first


def test_activate_of_an_unknown_version_changes_nothing(gallery: Gallery) -> None:
    before = gallery.active_version
    with pytest.raises(GalleryNotFoundError, match="has no version 99, only"):
        gallery.pointer.activate(99)
    assert gallery.active_version == before


def test_opened_snapshot_outlives_the_next_version(gallery: Gallery) -> None:
    snapshot = gallery.snapshot()
    before = _searched(snapshot)
    _publish(gallery, ["a", "b", "c"], seed=1)
    assert _searched(snapshot) == before


@pytest.mark.parametrize("version", [0, 2, 99])
def test_version_that_was_never_published_is_refused(gallery: Gallery, version: int) -> None:
    """The table has a revision 2: it holds the first rows only, or all without neighbors."""
    with pytest.raises(GalleryNotFoundError, match=f"has no version {version}, only 1"):
        gallery.snapshot(version)


def test_versions_are_numbered_one_by_one_whatever_the_table_counts(gallery: Gallery) -> None:
    assert [_publish(gallery, ["a", "b"], seed) for seed in (1, 2)] == [2, 3]
    assert gallery.versions() == [1, 2, 3]
    revisions = [gallery.pointer.revision_of(version) for version in (1, 2, 3)]
    assert revisions == sorted(revisions)
    assert revisions[0] > 1


@pytest.mark.slow
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


def test_rows_of_a_version_are_found_by_its_number_after_its_files_are_gone(gallery: Gallery) -> None:
    _publish(gallery, ["a", "b", "c"], seed=1)
    gallery.forget({1})
    assert gallery.table.columns(gallery.pointer.revision_of(1), ["id"])["id"].to_pylist() == ODD_IDS
    gallery.pointer.keep_only(())
    with pytest.raises(GalleryNotFoundError, match="has no version 1, only 2"):
        gallery.pointer.revision_of(1)


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"version": null}', '{"version": 3}', "\x00"])
def test_damaged_active_version_is_refused(gallery: Gallery, content: str) -> None:
    (gallery.path / "active.json").write_text(content, encoding="utf-8")
    with pytest.raises(GalleryError, match=r"active\.json' is damaged"):
        _ = Gallery.open(gallery.path).activation


@pytest.mark.slow
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


def test_damaged_table_behind_a_deleted_snapshot_is_refused(gallery: Gallery) -> None:
    shutil.rmtree(gallery.path / "versions")
    shutil.rmtree(gallery.path / "items.lance")
    with pytest.raises(GalleryError, match="cannot be read"):
        gallery.snapshot()


@pytest.mark.slow
@pytest.mark.parametrize("item_id", ODD_IDS)
def test_thumbnail_is_found_by_any_id(gallery: Gallery, item_id: str) -> None:
    revision = gallery.snapshot().manifest.revision
    assert gallery.thumbnail(revision, item_id) == f"thumbnail of {item_id}".encode()


@pytest.mark.slow
@pytest.mark.parametrize("item_id", ["absent", "", "'", "' OR 1 = 1 --", "it"])
def test_thumbnail_of_an_unknown_item_is_refused(gallery: Gallery, item_id: str) -> None:
    with pytest.raises(ItemNotFoundError) as caught:
        gallery.thumbnail(gallery.snapshot().manifest.revision, item_id)
    assert (caught.value.gallery, caught.value.item_id) == ("shoes", item_id)


def test_thumbnail_comes_from_the_asked_version(gallery: Gallery) -> None:
    first, second = gallery.versions()[0], _publish(gallery, ["a", "b", "c"], seed=1)
    before, after = (gallery.pointer.revision_of(version) for version in (first, second))
    assert gallery.thumbnail(before, "it's") == b"thumbnail of it's"
    with pytest.raises(ItemNotFoundError):
        gallery.thumbnail(after, "it's")


def test_thumbnail_of_an_unknown_version_is_refused(gallery: Gallery) -> None:
    with pytest.raises(GalleryError, match="99"):
        gallery.thumbnail(99, "it's")


def test_columns_come_in_gallery_order(gallery: Gallery) -> None:
    columns = gallery.table.columns(gallery.snapshot().manifest.revision, ["uri", "id"])
    assert columns.column_names == ["uri", "id"]
    assert columns["id"].to_pylist() == ODD_IDS


def test_report_is_kept_beside_its_version(gallery: Gallery) -> None:
    gallery.reports.save(7, {"n_items": 3})
    assert gallery.reports.of(7) == {"n_items": 3}
    assert gallery.reports.of(8) == {}


def test_second_writer_is_refused_until_the_first_is_done(tmp_path: Path) -> None:
    first, second = Gallery(tmp_path / "shoes"), Gallery(tmp_path / "shoes")
    with first.writing(), pytest.raises(GalleryError, match="being written by another job"), second.writing():
        pytest.fail("two writers at once")
    with second.writing():
        assert second.path.is_dir()


def test_lock_is_released_when_its_job_fails(tmp_path: Path) -> None:
    gallery = Gallery(tmp_path / "shoes")
    with pytest.raises(ZeroDivisionError), gallery.writing():
        raise ZeroDivisionError
    with gallery.writing():
        assert gallery.path.is_dir()


def test_galleries_are_written_independently(tmp_path: Path) -> None:
    with Gallery(tmp_path / "shoes").writing(), Gallery(tmp_path / "hats").writing():
        assert len(list(tmp_path.iterdir())) == 2


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


def test_searches_go_on_while_a_job_writes(gallery: Gallery) -> None:
    with gallery.writing():
        gallery.start(_rows(["a", "b"], _embeddings(2, 1)), bundle="0" * 16, bundle_name="tiny")
        assert len(Gallery.open(gallery.path).snapshot()) == len(ODD_IDS)


def test_list_names_finished_galleries_in_order(gallery: Gallery) -> None:
    root = gallery.path.parent
    _publish(Gallery(root / "hats"), ["a", "b", "c"])
    (root / "unfinished" / "items.lance").mkdir(parents=True)
    (root / "Not A Gallery").mkdir()
    (root / "file").touch()
    assert [found.name for found in list_galleries(root)] == ["hats", "shoes"]


def test_list_of_a_folder_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert list_galleries(tmp_path / "absent") == []


def test_deleted_gallery_is_gone(gallery: Gallery) -> None:
    gallery.delete()
    assert not gallery.path.exists()
    assert list_galleries(gallery.path.parent) == []


def test_gallery_that_is_being_written_is_not_deleted(gallery: Gallery) -> None:
    with Gallery(gallery.path).writing(), pytest.raises(GalleryError, match="another job"):
        gallery.delete()
    assert len(gallery.snapshot()) == len(ODD_IDS)


def test_name_can_be_used_again_after_delete(gallery: Gallery) -> None:
    gallery.delete()
    version = _publish(gallery, ["a", "b", "c"], seed=1)
    assert gallery.versions() == [version]
    assert len(gallery.snapshot()) == 3


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


@pytest.mark.slow
def test_a_server_reads_single_rows_and_a_job_reads_ahead(gallery: Gallery) -> None:
    served = GalleryReader(gallery, IndexDevices("cpu")).view().snapshot
    assert is_read_at_random(served.embeddings)
    assert is_read_at_random(served.neighbor_similarities)
    assert not is_read_at_random(GalleryReader(gallery).view().snapshot.embeddings)


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that the disk was told to read."""
    names: list[str] = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda file, *_: names.append(Path(f"/proc/self/fd/{file}").readlink().name)
    )
    return names


def test_what_is_compared_whole_of_the_active_version_is_read_ahead(
    gallery: Gallery, advised: list[str]
) -> None:
    _publish(gallery, ODD_IDS, seed=1)
    read_ahead(gallery.path.parent)
    assert advised == ["initial.index", "items.arrow"]


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["active.json", "versions/1/initial.index", "versions/1"])
def test_reading_ahead_leaves_what_is_damaged_to_whoever_opens_it(
    gallery: Gallery, advised: list[str], gone: str
) -> None:
    whole = Gallery(gallery.path.with_name("whole"))
    _publish(whole, ODD_IDS)
    path = gallery.path / gone
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.write_bytes(b"{") if gone == "active.json" else path.unlink()
    read_ahead(gallery.path.parent)
    assert advised == ["initial.index", "items.arrow"]


def test_reading_ahead_of_no_folder_reads_nothing(tmp_path: Path, advised: list[str]) -> None:
    read_ahead(tmp_path / "nowhere")
    assert advised == []


@pytest.mark.slow
def test_lance_is_loaded_for_live_changes_and_not_for_a_version_as_it_was_built(gallery: Gallery) -> None:
    def is_lance_loaded() -> str:
        command = [sys.executable, "-c", SEARCH, str(gallery.path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert is_lance_loaded() == "False"
    remove_items(GalleryReader(gallery), ["naïve 日本"])
    assert is_lance_loaded() == "True"

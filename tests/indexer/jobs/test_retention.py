"""Retention: what is kept can be searched and rolled back to, what is not leaves the disk."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import GalleryBusyError, GalleryNotFoundError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import add_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.retention import RetentionPolicy, prune
from vicinal.indexer.reader import GalleryReader

BUNDLE = "0123456789abcdef"
NOTHING_OLD = RetentionPolicy(versions=1, days=0.0)
AT_ONCE = timedelta(0)
Rows = Callable[..., pa.Table]
Unit = Callable[..., FloatArray]


def ids_of(gallery: Gallery) -> list[str]:
    return [item["id"] for _, item in GalleryReader(gallery).view().page(None, 1000)]


def folder_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@pytest.fixture
def gallery(live_gallery: Gallery, rows: Rows, unit: Unit) -> Gallery:
    """Three versions: indexed, compacted after an addition, compacted after a removal; and a later change."""
    reader = GalleryReader(live_gallery)
    add_items(reader, rows(["first"], unit(1, seed=1)), bundle=BUNDLE)
    compact(reader)
    remove_items(reader, ["0", "1"])
    compact(reader)
    add_items(reader, rows(["last"], unit(1, seed=2)), bundle=BUNDLE)
    return live_gallery


def test_going_back_gives_a_version_with_its_changes_or_as_it_was_built(gallery: Gallery) -> None:
    first, second, third = gallery.versions()
    gallery.pointer.activate(first)
    assert ids_of(gallery) == [*(str(i) for i in range(40)), "first"]
    gallery.pointer.activate(first, as_built=True)
    assert ids_of(gallery) == [str(i) for i in range(40)]
    gallery.pointer.activate(second, as_built=True)
    assert len(ids_of(gallery)) == 41
    gallery.pointer.activate(third)
    assert ids_of(gallery)[-1] == "last"


def test_what_a_policy_does_not_keep_leaves_the_disk(gallery: Gallery) -> None:
    before, expected = folder_bytes(gallery.path), ids_of(gallery)
    first, second, third = gallery.versions()
    pruned = prune(gallery, NOTHING_OLD, grace=AT_ONCE)
    assert pruned.versions == [first, second]
    assert gallery.versions() == [third]
    # Some rows were written again.
    assert pruned.bytes_freed >= before - folder_bytes(gallery.path) > 0
    assert ids_of(gallery) == expected
    with pytest.raises(GalleryNotFoundError):
        gallery.pointer.activate(first)
    with pytest.raises(GalleryNotFoundError):
        gallery.snapshot(first)


@pytest.mark.parametrize(
    ("policy", "n_left"),
    [
        (RetentionPolicy(versions=2, days=0.0), 2),
        (RetentionPolicy(versions=5, days=0.0), 3),
        (RetentionPolicy(versions=1, days=1.0), 3),
    ],
)
def test_versions_stay_by_number_or_by_age(gallery: Gallery, policy: RetentionPolicy, n_left: int) -> None:
    prune(gallery, policy, grace=AT_ONCE)
    assert len(gallery.versions()) == n_left
    for version in gallery.versions():
        gallery.pointer.activate(version)
        assert ids_of(gallery)


def test_rows_of_a_protected_version_can_still_be_compared_with(gallery: Gallery) -> None:
    first, second, third = gallery.versions()
    prune(gallery, NOTHING_OLD, protected=[first], grace=AT_ONCE)
    assert gallery.n_common(first, third) == (38, 40)
    assert gallery.n_common(second, third) is None
    prune(gallery, NOTHING_OLD, grace=AT_ONCE)
    assert gallery.n_common(first, third) is None


def test_a_reader_with_an_older_view_goes_on_and_comes_up_to_date(
    gallery: Gallery, rows: Rows, unit: Unit
) -> None:
    reader = GalleryReader(gallery)
    held = reader.view()
    before = held.nearest(unit(3), 10).tolist()
    add_items(GalleryReader(gallery), rows(["a"], unit(1, seed=5)), bundle=BUNDLE)
    add_items(GalleryReader(gallery), rows(["b"], unit(1, seed=6)), bundle=BUNDLE)
    prune(gallery, NOTHING_OLD, grace=AT_ONCE)
    assert held.nearest(unit(3), 10).tolist() == before
    assert [item["id"] for _, item in reader.view().page(None, 1000)] == ids_of(gallery)
    assert ids_of(gallery)[-2:] == ["a", "b"]


@pytest.mark.parametrize("lock", ["writing", "compacting"])
def test_nothing_is_removed_while_another_job_works(gallery: Gallery, lock: str) -> None:
    with getattr(Gallery(gallery.path), lock)(), pytest.raises(GalleryBusyError):
        prune(gallery, NOTHING_OLD)
    assert len(gallery.versions()) == 3


@pytest.fixture
def changed(live_gallery: Gallery) -> Gallery:
    """Forty items less one, whose removal is in no built version."""
    remove_items(GalleryReader(live_gallery), ["3"])
    return live_gallery


def test_an_index_job_that_died_costs_no_live_change(changed: Gallery, rows: Rows, unit: Unit) -> None:
    changed.start(rows(["other"], unit(1, seed=2)), bundle=BUNDLE, bundle_name="tiny")
    prune(changed, NOTHING_OLD, grace=AT_ONCE)
    assert ids_of(changed) == [str(i) for i in range(40) if i != 3]

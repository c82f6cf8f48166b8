"""Conflicts: an item that is there stays as it is, unless somebody says that it shall be replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs import changes
from vicinal.indexer.jobs.changes import (
    OnConflict,
    Outcome,
    add_items,
    digests_of,
    outcomes_of,
    remove_items,
)
from vicinal.indexer.reader import GalleryReader

BUNDLE = "0123456789abcdef"
Rows = Callable[..., pa.Table]
Unit = Callable[..., FloatArray]
Contents = dict[str, tuple[bytes, str | None]]

IDS = st.sampled_from("abc")
DIGESTS = st.sampled_from([b"1", b"2"])
CHOICES = st.sampled_from(["error", "replace", "skip"])
# Ids that the gallery has and lacks, with one of three images each.
IMAGES = st.lists(st.tuples(st.sampled_from(["0", "1", "a", "b"]), st.integers(0, 2)), min_size=1, max_size=4)


@pytest.fixture
def reader(live_gallery: Gallery) -> GalleryReader:
    return GalleryReader(live_gallery)


def contents(gallery: Gallery) -> Contents:
    """Embedding and label of every item, as a reader sees them that was not there before."""
    view = GalleryReader(Gallery(gallery.path)).view()
    items = [item for _, item in view.page(None, 1000)]
    vectors = view.vectors(view.positions([item["id"] for item in items]))
    return {
        item["id"]: (vector.tobytes(), item["label"]) for item, vector in zip(items, vectors, strict=True)
    }


def lost(before: Contents, after: Contents) -> list[str]:
    """Ids of items that are gone or are no longer what they were."""
    return [item_id for item_id, held in before.items() if after.get(item_id) != held]


@pytest.mark.parametrize(
    ("conflict", "free", "same", "other"),
    [
        ("error", "added", "unchanged", "refused"),
        ("skip", "added", "unchanged", "skipped"),
        ("replace", "added", "replaced", "replaced"),
    ],
)
def test_what_becomes_of_an_image_depends_on_what_has_its_id(
    conflict: OnConflict, free: Outcome, same: Outcome, other: Outcome
) -> None:
    outcomes = outcomes_of(["a", "b", "c"], [b"1", b"1", b"1"], {"b": b"1", "c": b"2"}, conflict)
    assert outcomes == [free, same, other]


@given(images=st.lists(st.tuples(IDS, DIGESTS)), held=st.dictionaries(IDS, DIGESTS), conflict=CHOICES)
def test_images_together_fare_as_they_do_one_by_one(
    images: list[tuple[str, bytes]], held: dict[str, bytes], conflict: OnConflict
) -> None:
    present, one_by_one = dict(held), []
    for item_id, digest in images:
        (outcome,) = outcomes_of([item_id], [digest], present, conflict)
        if outcome in ("added", "replaced"):
            present[item_id] = digest
        one_by_one.append(outcome)
    ids, digests = [image[0] for image in images], [image[1] for image in images]
    assert outcomes_of(ids, digests, held, conflict) == one_by_one


def test_digests_are_told_of_what_is_there_alone(reader: GalleryReader, rows: Rows, unit: Unit) -> None:
    new = unit(2, seed=9)
    add_items(reader, rows(["new", "gone"], new), bundle=BUNDLE)
    remove_items(reader, ["gone"])
    found = digests_of(reader.gallery, reader.view(), ["new", "gone", "7", "never", "new"])
    assert found == {"new": new[0].tobytes()[:32], "7": unit(40)[7].tobytes()[:32]}


def _after(
    gallery: Gallery, rows: Rows, unit: Unit, steps: Sequence[tuple[list[tuple[str, int]], OnConflict]]
) -> list[Contents]:
    """The gallery's contents before the steps and after each of them."""
    reader, states = GalleryReader(gallery), [contents(gallery)]
    for images, conflict in steps:
        vectors = np.concatenate([unit(1, seed=100 + image) for _, image in images])
        labels = [f"label {image}" for _, image in images]
        new = rows([item_id for item_id, _ in images], vectors, labels=labels)
        add_items(reader, new, bundle=BUNDLE, conflict=conflict)
        states.append(contents(gallery))
    return states


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(IMAGES, st.sampled_from(["error", "skip"])), min_size=1, max_size=4))
def test_no_sequence_of_additions_loses_or_changes_an_item(
    tmp_path_factory: pytest.TempPathFactory,
    publish: Callable[..., int],
    rows: Rows,
    unit: Unit,
    steps: list[tuple[list[tuple[str, int]], OnConflict]],
) -> None:
    gallery = Gallery(tmp_path_factory.mktemp("property") / "shoes")
    publish(gallery, rows([str(i) for i in range(5)], unit(5)))
    states = _after(gallery, rows, unit, steps)
    losses = [lost(before, after) for before, after in pairwise(states)]
    assert losses == [[]] * len(steps)
    sent = {item_id for images, _ in steps for item_id, _ in images}
    assert states[-1].keys() == states[0].keys() | sent


def test_the_check_for_losses_sees_a_replaced_item(live_gallery: Gallery, rows: Rows, unit: Unit) -> None:
    """Negative control of the property."""
    before, after = _after(live_gallery, rows, unit, [([("0", 1), ("a", 2)], "replace")])
    assert lost(before, after) == ["0"]


def _race(gallery: Gallery, rows: Rows, unit: Unit, n: int, conflict: OnConflict) -> list[Outcome]:
    """What becomes of other images that n writers add under one id at the same time."""
    start = threading.Barrier(n)

    def add(turn: int) -> Outcome:
        reader = GalleryReader(Gallery(gallery.path))
        reader.view()
        start.wait()
        new = rows(["new"], unit(1, seed=turn), labels=[f"writer {turn}"])
        return add_items(reader, new, bundle=BUNDLE, conflict=conflict).outcomes[0]

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(add, range(n)))


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(3))
def test_of_writers_at_the_same_time_exactly_one_gets_the_id(
    live_gallery: Gallery, rows: Rows, unit: Unit, turn: int
) -> None:
    outcomes = _race(live_gallery, rows, unit, 2 + turn, "error")
    assert sorted(outcomes) == ["added"] + ["refused"] * (1 + turn)
    assert contents(live_gallery)["new"][1] == f"writer {outcomes.index('added')}"


def test_a_decision_that_was_made_before_the_lock_would_lose_an_item(
    live_gallery: Gallery, rows: Rows, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control of the race: what nobody had when the writers began is what they all write."""
    monkeypatch.setattr(changes, "digests_of", lambda *_: {})
    assert _race(live_gallery, rows, unit, 2, "error") == ["added", "added"]
    assert len(GalleryReader(Gallery(live_gallery.path)).view()) == 41

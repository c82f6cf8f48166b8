"""Nothing that a person said or set of a gallery is lost on any way out of a data folder, or into one."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service.answering.test_sharing import files_with
from tests.service.answering.test_store import a_search
from tests.service.kept_searches import keep_searches
from tests.service.types import View
from vicinal.calibration import Target
from vicinal.calibration.lda import LabelScatter, label_sums
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import Patch, patch_items, remove_items
from vicinal.indexer.jobs.set_aside import listed_aside, set_aside
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.home import Mirror
from vicinal.indexer.storage.home.joining import join
from vicinal.indexer.transfer.archive import export_gallery, import_gallery
from vicinal.indexer.transfer.moving import copy_gallery, rename_gallery
from vicinal.models.embedder import Embedder
from vicinal.service.answering.different import CalledDifferent
from vicinal.service.answering.sharing import SharedSearches
from vicinal.service.answering.store import SearchStore
from vicinal.service.duplicates.verdicts import CopyVerdicts
from vicinal.service.labelling.session import LabelSession
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.label_scores import forget_beside, keep_beside, labels_beside

DAYS, TABLES = 30.0, ("searches", "answers", "different")


@pytest.fixture
def said(gallery: Gallery, matcher: Matcher, view: View) -> Iterator[Gallery]:
    """A gallery of which everything was said that can be; one search went by its age since."""
    store, reader = SearchStore(gallery.path), GalleryReader(gallery)
    searches = keep_searches(matcher, view, n=4)
    best = [one.candidates[0].id for one in searches]
    for one, item in zip(searches[:2], best, strict=False):
        store.answer(one.id, "wrong", by="eve", item_id=item, different={item: None})
    with store.changing() as file:
        old = (datetime.now(UTC) - timedelta(days=2 * DAYS)).timestamp()
        file.execute("update searches set at = ? where id = ?", (old, searches[0].id))
    store.let_go(most=1000, days=DAYS)
    ids = [item["id"] for _, item in reader.view().page(None, 60) if item["id"] not in best]
    patch_items(reader, {ids[0]: Patch(label="by hand", metadata={"note": "mine"})})
    set_aside(reader, [ids[1]], reason="blurred", by="eve")
    remove_items(reader, [ids[2]])
    CopyVerdicts(gallery).add(reader.view(), ids[3], [ids[4]], by="eve")
    matcher.thresholds.set_by_hand(matcher.pipeline, 0.625)
    batches = [(np.eye(6, matcher.embedder.bundle.dim), np.arange(6) // 2)]
    sums = label_sums(iter(batches), 3, matcher.embedder.bundle.dim)
    scatter = LabelScatter.of(iter(batches), *sums)
    keep_beside(gallery.path, matcher.embedder.bundle.fingerprint, scatter)
    LabelSession.start(matcher, Target(rate="precision", value=0.9)).answer(0, True)
    # What was said last is in no file of its own yet, but in what lies beside it.
    with store.opened():
        store.answer(searches[1].id, "label", by="eve", label="plain")
        yield gallery


def heard(gallery: Gallery, embedder: Embedder) -> dict[str, Any]:
    """All that is known of what persons said and set."""
    matcher, store = Matcher(gallery, embedder), SearchStore(gallery.path)
    session = LabelSession.current(matcher)
    beside = labels_beside(gallery.path, embedder.bundle.fingerprint)
    pictures = np.array([one.embedding for one in store.different()])
    with store.opened() as file:
        kept = {name: set(file.execute(f"select * from {name}")) for name in TABLES}
    return {
        **kept,
        "items": {one["id"]: (one["label"], one["metadata"]) for _, one in matcher.view.page(None, 100)},
        "set aside": listed_aside(GalleryReader(gallery)),
        "removed": gallery.removals.read().items,
        "left out": [len(one) for one in CalledDifferent(gallery).of(pictures, matcher.view) or ()],
        "copies": CopyVerdicts(gallery).all(),
        "threshold": matcher.thresholds.in_force(matcher.pipeline).value,
        "pairs": session and (session.head, session.answers()),
        "beside": beside and beside.to_bytes(),
    }


def exported(gallery: Gallery, to: Path) -> Gallery:
    archive = io.BytesIO()
    export_gallery(gallery, archive, with_searches=True)
    archive.seek(0)
    return import_gallery(to / "galleries", archive)[0]


def settled(*mirrors: Mirror | None) -> None:
    """Let replicas tell each other all, as their servers do."""
    for mirror in filter(None, (*mirrors, *mirrors)):
        mirror.pull()
        for folder in (mirror.data_dir / "galleries").iterdir():
            SharedSearches(SearchStore(folder), mirror).settle(most=None, days=DAYS, thorough=True)


def joined(gallery: Gallery, to: Path) -> Gallery:
    """The gallery on a replica without one, in the home of a data folder that has joined it."""
    home, data_dir = str(to.with_name("home")), gallery.path.parents[1]
    settled(join(data_dir, home), join(to, home))
    return Gallery(to / "galleries" / gallery.name)


def restored_to_replicas(gallery: Gallery, to: Path) -> Gallery:
    """The gallery, which replicas had before, on another one than it was restored on."""
    joined(gallery, to / "first" / "before")
    restored = exported(gallery, join(to / "one", str(to / "home")).data_dir)
    return joined(restored, to / "other")


WAYS: dict[str, Callable[[Gallery, Path], Gallery]] = {
    "rename": lambda gallery, _: rename_gallery(gallery, "boots"),
    "copy": lambda gallery, _: copy_gallery(gallery, "boots"),
    "export and import": exported,
    "join": joined,
    "restore to replicas": restored_to_replicas,
    "copy on a replica": lambda gallery, to: copy_gallery(joined(gallery, to), "boots"),
}


@pytest.mark.parametrize("way", WAYS)
def test_all_that_was_said_is_there_afterwards(
    said: Gallery, embedder: Embedder, tmp_path: Path, way: str
) -> None:
    before = heard(said, embedder)
    assert before["left out"] == [1, 1]
    assert heard(WAYS[way](said, tmp_path / "elsewhere"), embedder) == before


def test_what_one_replica_deletes_or_forgets_is_gone_from_all(
    said: Gallery, embedder: Embedder, tmp_path: Path
) -> None:
    picture = random.Random(1).randbytes(9000)
    SearchStore(said.path).keep([(a_search(1, id="a"), picture)], most=1000, days=DAYS)
    there = joined(said, tmp_path / "elsewhere")
    assert files_with(tmp_path / "home", picture)
    forget_beside(there.path)
    SearchStore(there.path).delete()
    settled(Mirror.of(there.path), Mirror.of(said.path))
    after = heard(said, embedder)
    assert (after["beside"], after["searches"], after["different"]) == (None, set(), set())
    assert files_with(tmp_path, picture) == []

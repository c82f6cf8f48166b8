"""Nothing that a person said or set of a gallery is lost on any way out of a data folder, or into one."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service.kept_searches import keep_searches
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
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.answering.different import CalledDifferent
from vicinal.service.answering.sharing import SharedSearches
from vicinal.service.answering.store import SearchStore
from vicinal.service.duplicates.verdicts import CopyVerdicts
from vicinal.service.labelling.session import LabelSession
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.label_scores import forget_beside, keep_beside, labels_beside

Way = Callable[[Gallery, Path], Gallery]
DAYS = 30.0


@pytest.fixture
def said(gallery: Gallery, matcher: Matcher, view: Any) -> Gallery:
    """A gallery of which everything was said that can be; one search went by its age since."""
    ids = [item["id"] for _, item in matcher.view.page(None, 60)]
    store = SearchStore(gallery.path)
    old, *searches = keep_searches(matcher, view, n=4)
    best = [one.candidates[0].id for one in (old, *searches)]
    store.draw([one.id for one in searches], asked=[searches[2].id], by="eve")
    for one, item in ((old, best[0]), (searches[0], best[1])):
        store.answer(one.id, "wrong", by="eve", item_id=item, different={item: None})
    store.answer(searches[0].id, "label", by="eve", label="plain")
    store.mark_added(searches[1].id, ids[1])
    with store.changing() as file:
        before = (datetime.now(UTC) - timedelta(days=2 * DAYS)).timestamp()
        file.execute("update searches set at = ? where id = ?", (before, old.id))
    store.let_go(most=1000, days=DAYS)
    free = [one for one in ids if one not in best]
    reader = GalleryReader(gallery)
    patch_items(reader, {free[0]: Patch(label="by hand", metadata={"note": "mine"})})
    set_aside(reader, [free[1]], reason="blurred", by="eve")
    remove_items(reader, [free[2]])
    CopyVerdicts(gallery).add(reader.view(), free[3], [free[4]], by="eve")
    matcher = matcher.at(reader.view())
    matcher.thresholds.set_by_hand(matcher.pipeline, 0.625)
    embeddings, codes = np.eye(6, matcher.embedder.bundle.dim), np.arange(6) // 2
    sums = label_sums(iter([(embeddings, codes)]), 3, embeddings.shape[1])
    scatter = LabelScatter.of(iter([(embeddings, codes)]), *sums)
    keep_beside(gallery.path, matcher.snapshot.manifest.bundle, scatter)
    LabelSession.start(matcher, Target(rate="precision", value=0.9)).answer(0, True)
    return gallery


def heard(gallery: Gallery, embedder: Embedder) -> dict[str, Any]:
    """All that is known of what persons said and set."""
    matcher, store = Matcher(gallery, embedder), SearchStore(gallery.path)
    view, bundle = matcher.view, embedder.bundle.fingerprint
    different, session = CalledDifferent(gallery), LabelSession.current(matcher)
    beside = labels_beside(gallery.path, bundle)
    assert session is not None
    assert beside is not None
    pictures = np.array([one.embedding for one in store.different()])
    return {
        "items": {one["id"]: (one["label"], one["metadata"]) for _, one in view.page(None, 100)},
        "set aside": [(one.id, one.reason, one.by, one.at) for one in listed_aside(GalleryReader(gallery))],
        "removed": gallery.removals.read().items,
        "searches": {(one.id, one.item_id, store.picture(one.id)) for one in store.searches()},
        "drawn": {one.id for one in store.searches() if one.drawn_at},
        "asked": [(one.search, one.by, one.at) for one in store.asked()],
        "answers": {
            (one.search, one.kind, one.item_id, one.label, one.by, one.at) for one in store.answers()
        },
        "left out": [one.tolist() for one in different.of(pictures, view) or ()],
        "copies": CopyVerdicts(gallery).all(),
        "threshold": matcher.thresholds.in_force(matcher.pipeline).value,
        "pairs": (session.head, session.answers()),
        "beside": beside.to_bytes(),
    }


def exported(gallery: Gallery, to: Path) -> Gallery:
    archive = io.BytesIO()
    export_gallery(gallery, archive, with_searches=True)
    archive.seek(0)
    return import_gallery(to / "galleries", archive)[0]


def settled(*mirrors: Mirror | None) -> None:
    """Let replicas tell each other all, as their servers do."""
    for mirror in (*mirrors, *mirrors):
        assert mirror is not None
        mirror.pull()
        for folder in (mirror.data_dir / "galleries").iterdir():
            SharedSearches(SearchStore(folder), mirror).settle(most=None, days=DAYS, thorough=True)


def joined(gallery: Gallery, to: Path) -> Gallery:
    """The gallery on a replica without one, in the home of a data folder that has joined it."""
    home, data_dir = str(to.with_name("home")), gallery.path.parents[1]
    settled(join(data_dir, home), join(to, home))
    return Gallery(to / "galleries" / gallery.name)


def restored_to_replicas(gallery: Gallery, to: Path) -> Gallery:
    """The gallery on another replica than the one that it was restored on, once it was one of replicas."""
    joined(gallery, to / "first" / "before")
    home = str(to / "home")
    one, other = join(to / "one", home), join(to / "other", home)
    exported(gallery, one.data_dir)
    settled(one, other)
    return Gallery(other.data_dir / "galleries" / gallery.name)


def renamed_on_replicas(gallery: Gallery, to: Path) -> Gallery:
    there = joined(gallery, to)
    rename_gallery(gallery, "boots")
    settled(Mirror.of(gallery.path), Mirror.of(to))
    return Gallery(there.path.with_name("boots"))


WAYS: dict[str, Way] = {
    "rename": lambda gallery, _: rename_gallery(gallery, "boots"),
    "copy": lambda gallery, _: copy_gallery(gallery, "boots"),
    "export and import": exported,
    "join": joined,
    "restore to replicas": restored_to_replicas,
    "rename on replicas": renamed_on_replicas,
    "copy on replicas": lambda gallery, to: copy_gallery(joined(gallery, to), "boots"),
}


@pytest.mark.parametrize("way", WAYS)
def test_all_that_was_said_is_there_afterwards(
    said: Gallery, embedder: Embedder, tmp_path: Path, way: str
) -> None:
    before = heard(said, embedder)
    assert len(before["left out"]) == 2
    assert heard(WAYS[way](said, tmp_path / "elsewhere"), embedder) == before


def test_photos_that_one_replica_forgets_are_forgotten_by_all(
    said: Gallery, tmp_path: Path, tiny_bundle: ModelBundle
) -> None:
    there = joined(said, tmp_path / "elsewhere")
    forget_beside(there.path)
    settled(Mirror.of(said.path), Mirror.of(there.path))
    assert labels_beside(said.path, tiny_bundle.fingerprint) is None

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
from tests.service.types import View
from vicinal.calibration import Target
from vicinal.calibration.lda import LabelScatter, label_sums
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import Patch, patch_items, remove_items
from vicinal.indexer.jobs.set_aside import listed_aside, set_aside
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.state import schema
from vicinal.indexer.transfer.archive import export_gallery, import_gallery
from vicinal.indexer.transfer.moving import copy_gallery, rename_gallery
from vicinal.models.embedder import Embedder
from vicinal.service.answering.different import CalledDifferent
from vicinal.service.answering.store import SearchStore
from vicinal.service.duplicates.verdicts import CopyVerdicts
from vicinal.service.labelling.session import LabelSession
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.label_scores import keep_beside, labels_beside

DAYS = 30.0


@pytest.fixture
def said(gallery: Gallery, matcher: Matcher, view: View) -> Gallery:
    """A gallery of which everything was said that can be; one search went by its age since."""
    store, reader = SearchStore(gallery.path), GalleryReader(gallery)
    searches = keep_searches(matcher, view, n=4)
    best = [one.candidates[0].id for one in searches]
    for one, item in zip(searches[:2], best, strict=False):
        store.answer(one.id, "wrong", by="eve", item_id=item, different={item: None})
    old = (datetime.now(UTC) - timedelta(days=2 * DAYS)).timestamp()
    with store.state.changing() as rows:
        rows.change(schema.searches, schema.searches.c.id == searches[0].id, at=old)
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
    store.answer(searches[1].id, "label", by="eve", label="plain")
    return gallery


def heard(gallery: Gallery, embedder: Embedder) -> dict[str, Any]:
    """All that is known of what persons said and set."""
    matcher, store = Matcher(gallery, embedder), SearchStore(gallery.path)
    session = LabelSession.current(matcher)
    beside = labels_beside(gallery.path, embedder.bundle.fingerprint)
    pictures = np.array([one.embedding for one in store.different()])
    with store.state.reading() as rows:
        kept = {table.name: set(rows.all(table)) for table in schema.OF_SEARCHES}
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


WAYS: dict[str, Callable[[Gallery, Path], Gallery]] = {
    "rename": lambda gallery, _: rename_gallery(gallery, "boots"),
    "copy": lambda gallery, _: copy_gallery(gallery, "boots"),
    "export and import": exported,
}


@pytest.mark.parametrize("way", WAYS)
def test_all_that_was_said_is_there_afterwards(
    said: Gallery, embedder: Embedder, tmp_path: Path, way: str
) -> None:
    before = heard(said, embedder)
    assert before["left out"] == [1, 1]
    assert heard(WAYS[way](said, tmp_path / "elsewhere"), embedder) == before


def test_others_get_no_searches_unless_that_is_asked_for(said: Gallery, tmp_path: Path) -> None:
    archive = io.BytesIO()
    export_gallery(said, archive)
    archive.seek(0)
    there = import_gallery(tmp_path / "elsewhere", archive)[0]
    with SearchStore(there.path).state.reading() as rows:
        assert [rows.count(table) for table in schema.OF_SEARCHES] == [0] * 5
    assert CopyVerdicts(there).all() == CopyVerdicts(said).all()

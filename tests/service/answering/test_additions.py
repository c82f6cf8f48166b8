"""Kept searches that become items: once, with their visit, the useful ones first, and back again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from PIL import Image

from tests.service.kept_searches import keep_searches
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.reader import GalleryReader
from vicinal.models.embedder import Embedder
from vicinal.service.answering.additions import add_confirmed, confirmed_searches, item_id_of, remove_added
from vicinal.service.answering.kept import KeptSearch
from vicinal.service.answering.store import SearchStore
from vicinal.service.errors import RequestError
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.visits import Visits, find_visits

View = Callable[[int, int], Image.Image]

ADD_UNTIL_KILLED = """
import os, signal, sys
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs import changes
from vicinal.indexer.reader import GalleryReader
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.answering import additions
from vicinal.service.answering.store import SearchStore
path, bundle, stage, what = sys.argv[1:]
def killed(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
notes = {"note": (SearchStore, "mark_added"), "over": (additions, "AddedSearch")}
places = {"commit": (changes, "_commit"), **notes}
setattr(*places[stage], killed)
reader = GalleryReader(Gallery(path))
if what == "back":
    additions.remove_added(reader, f"{0:032x}")
else:
    additions.add_confirmed(reader, Embedder(ModelBundle.open(bundle), device="cpu", threads=1))
"""


@pytest.fixture
def store(gallery: Gallery) -> SearchStore:
    return SearchStore(gallery.path)


@pytest.fixture
def reader(gallery: Gallery) -> GalleryReader:
    return GalleryReader(gallery)


@pytest.fixture
def kept(matcher: Matcher, view: View) -> list[KeptSearch]:
    """Searches for the labels 0 to 9, twice each, and for ten strangers between them."""
    return keep_searches(matcher, view, 30)


def label_of(search: KeptSearch) -> str:
    best = search.candidates[0].label
    assert best is not None
    return best


def confirm(store: SearchStore, *searches: KeptSearch, by: str = "eve") -> None:
    for one in searches:
        store.answer(one.id, "label", label=label_of(one), by=by)


def test_a_confirmed_search_becomes_an_item_with_its_own_embedding(
    store: SearchStore, reader: GalleryReader, embedder: Embedder, kept: list[KeptSearch]
) -> None:
    search = kept[0]
    confirm(store, search)
    done = add_confirmed(reader, embedder)
    assert [(one.search_id, one.item_id) for one in done.added] == [(search.id, f"search-{search.id}")]
    view = reader.view()
    position = view.positions([done.added[0].item_id])
    (item,) = view.items(position)
    assert item["label"] == label_of(search)
    assert item["metadata"] == {"source": "search", "search_visit": store.get(search.id).visit}
    assert view.vectors(position)[0].tolist() == search.embedding.tolist()
    thumbnail = reader.gallery.thumbnail(view.revision, item["id"])
    assert thumbnail.startswith(b"\xff\xd8")
    assert store.get(search.id).item_id == item["id"]
    # Done once more, there is nothing to do.
    assert add_confirmed(reader, embedder).added == []
    assert len(reader.view()) == len(view)


def test_a_label_gets_so_many_of_different_visits_those_missed_first(
    store: SearchStore, reader: GalleryReader, embedder: Embedder, matcher: Matcher, view: View
) -> None:
    verdicts = ["match", "unsure", "no_match", "match"]
    kept = []
    for number, verdict in enumerate(verdicts):
        (one,) = keep_searches(
            matcher, lambda _, n, number=number: view(0, n + number), 1,
            verdict=verdict, id=f"{number:032x}", visit=f"v{number}",
        )  # fmt: skip
        kept.append(one)
    confirm(store, *kept)
    assert [one.answered for one in confirmed_searches(store)] == ["missed", "unsure", "found", "found"]
    first = add_confirmed(reader, embedder)
    assert [one.search_id for one in first.added] == [kept[2].id, kept[1].id]
    assert first.n_waiting == 2
    assert add_confirmed(reader, embedder).n_waiting == 2
    assert len(add_confirmed(reader, embedder, a_label=3).added) == 1
    # Who names one gets it.
    left = {one.id for one in kept} - {one.id for one in store.searches() if one.item_id}
    assert [one.search_id for one in add_confirmed(reader, embedder, only=left).added] == [*left]


def test_searches_of_one_visit_give_one_item_and_are_one_visit_of_the_gallery(
    store: SearchStore, reader: GalleryReader, embedder: Embedder, matcher: Matcher, view: View
) -> None:
    kept = []
    for number in range(2):
        (one,) = keep_searches(
            matcher, lambda _, n, number=number: view(0, n + number), 1, id=f"{number:032x}", visit="v"
        )
        kept.append(one)
    confirm(store, *kept)
    assert len(add_confirmed(reader, embedder).added) == 1
    add_confirmed(reader, embedder, only=[one.id for one in kept])
    compact(reader)
    snapshot = reader.view().snapshot
    for visits in (
        find_visits("auto", reader.gallery, snapshot),
        Visits.of(snapshot, "source"),
    ):
        assert visits is not None
        positions = reader.view().positions([item_id_of(one.id) for one in kept])
        if visits.by == "auto":
            assert len({visits.names[one] for one in positions}) == 1
            assert visits.names[positions[0]] is not None
            assert visits.members(visits.names[positions[0]]).tolist() == sorted(positions.tolist())


def test_an_addition_is_undone_and_comes_back_only_where_that_is_asked_for(
    store: SearchStore, reader: GalleryReader, embedder: Embedder, kept: list[KeptSearch]
) -> None:
    confirm(store, kept[0])
    n = len(reader.view())
    add_confirmed(reader, embedder)
    assert remove_added(reader, kept[0].id) == item_id_of(kept[0].id)
    assert len(reader.view()) == n
    assert store.get(kept[0].id).item_id is None
    with pytest.raises(RequestError, match="no item"):
        remove_added(reader, kept[0].id)
    assert add_confirmed(reader, embedder).added == []
    assert len(add_confirmed(reader, embedder, only=[kept[0].id]).added) == 1
    # Where somebody removed the item otherwise, the search has none all the same.
    remove_items(reader, [item_id_of(kept[0].id)])
    remove_added(reader, kept[0].id)
    assert store.get(kept[0].id).item_id is None


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["commit", "note", "over"])
@pytest.mark.parametrize("what", ["add", "back"])
def test_a_killed_process_adds_nothing_twice(
    store: SearchStore, gallery: Gallery, embedder: Embedder, kept: list[KeptSearch], stage: str, what: str
) -> None:
    confirm(store, *kept[:3])
    n = len(GalleryReader(gallery).view())
    if what == "back":
        add_confirmed(GalleryReader(gallery), embedder)
    command = [sys.executable, "-P", "-c", ADD_UNTIL_KILLED, gallery.path, embedder.bundle.path, stage, what]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = subprocess.run([str(one) for one in command], env=environment, check=False).returncode
    assert (code == -signal.SIGKILL) is not (stage == "over" and what == "back")
    reader = GalleryReader(gallery)
    if what == "back":
        if store.get(kept[0].id).item_id is not None:
            remove_added(reader, kept[0].id)
        assert len(reader.view()) == n + 2
        assert {one.item_id for one in store.searches() if one.item_id} == {
            item_id_of(one.id) for one in kept[1:3]
        }
        return
    add_confirmed(reader, embedder)
    assert len(reader.view()) == n + 3
    assert {one.item_id for one in store.searches() if one.item_id} == {
        item_id_of(one.id) for one in kept[:3]
    }
    assert add_confirmed(reader, embedder).added == []

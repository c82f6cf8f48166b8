"""Replicas on one database: what is said at one holds at the other, for whom it held there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.kept_searches import keep_searches
from tests.service.types import View
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.state import DatabaseAwayError, Rows
from vicinal.indexer.state.database import postgres
from vicinal.indexer.state.state import copy_rows, state_of, use_database
from vicinal.models.embedder import Embedder
from vicinal.service.answering.additions import add_confirmed, confirmed_searches
from vicinal.service.answering.different import CalledDifferent
from vicinal.service.answering.kept import KeptSearch
from vicinal.service.answering.review import SearchReview
from vicinal.service.answering.store import SearchStore
from vicinal.service.errors import AnswerNotFoundError
from vicinal.service.measuring.matcher import Matcher


@pytest.fixture
def replicas(
    tmp_path: Path, base_dir: Path, embedder: Embedder, postgres_url: str
) -> Iterator[list[Matcher]]:
    """Two replicas of a gallery, each with files and connections of its own."""
    found, databases = [], []
    for name in ("a", "b"):
        data_dir = Path(shutil.copytree(base_dir, tmp_path / name))
        databases.append(postgres(postgres_url))
        use_database(data_dir, databases[-1])
        state = state_of(data_dir / "galleries" / "shoes")
        if name == "a":
            copy_rows(state_of(base_dir / "galleries" / "shoes"), state)
        gallery = Gallery.open(state.folder)
        found.append(Matcher(gallery, embedder))
        found[-1].different = CalledDifferent(gallery)
    yield found
    for matcher, database in zip(found, databases, strict=True):
        use_database(matcher.gallery.path.parents[1], None)
        database.close()


@pytest.fixture
def searches(replicas: list[Matcher], view: View) -> list[KeptSearch]:
    """Searches that the first replica answered."""
    return keep_searches(replicas[0], view)


def left_out(matcher: Matcher, search: KeptSearch, asker: str | None) -> list[str]:
    (found,) = matcher.search(embeddings=search.embedding, askers=[asker], threshold=0.3, limit=100)
    return found.left_out


def test_a_hint_holds_everywhere_for_its_key_until_an_admin_takes_it_back(
    replicas: list[Matcher], searches: list[KeptSearch]
) -> None:
    one, other = replicas
    best = searches[0].candidates[0].id
    SearchReview(other, is_hint=True).answer(searches[0].id, "wrong", by="till", item_id=best)
    for _ in range(2):
        found = [[left_out(each, searches[0], who) for who in ("till", "eve", None)] for each in replicas]
        assert found == [[[best], [], []]] * 2
    assert [SearchStore(each.gallery.path).answers() for each in replicas] == [[], []]
    SearchReview(one).take_back_all("till")
    assert [left_out(each, searches[0], "till") for each in replicas] == [[], []]
    with pytest.raises(AnswerNotFoundError):
        SearchReview(other).take_back_all("till")


def test_what_is_said_at_one_counts_once_and_is_asked_nowhere_again(
    replicas: list[Matcher], searches: list[KeptSearch], embedder: Embedder
) -> None:
    one, other = replicas
    stores = [SearchStore(each.gallery.path) for each in replicas]
    (first,) = SearchReview(one).next(1, by="anna").questions
    (second,) = SearchReview(other).next(1, by="berta").questions
    assert first.search_id != second.search_id
    label = one.view.items([0])[0]["label"]
    for each in replicas:
        SearchReview(each).answer(first.search_id, "label", by="anna", label=label)
    numbers = [[answer.number for answer in store.answers()] for store in stores]
    assert numbers == [[2], [2]]
    assert [SearchReview(each).known().n_answered for each in replicas] == [1, 1]
    assert [len(confirmed_searches(store)) for store in stores] == [1, 1]
    added = add_confirmed(GalleryReader(one.gallery), embedder).added
    assert [item.search_id for item in added] == [first.search_id]
    assert confirmed_searches(stores[1]) == []


def test_pairs_are_read_again_only_where_these_changed(
    replicas: list[Matcher], searches: list[KeptSearch], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = replicas
    best = searches[0].candidates[0].id
    SearchReview(one).answer(searches[0].id, "wrong", by="eve", item_id=best)
    assert left_out(other, searches[0], None) == [best]
    module = "vicinal.service.answering.different.different_pairs"
    monkeypatch.setattr(module, lambda _: pytest.fail("it is read again"))
    SearchStore(one.gallery.path).draw([searches[1].id])
    assert left_out(other, searches[0], None) == [best]


def test_pairs_are_what_they_were_where_the_database_does_not_answer(
    replicas: list[Matcher], searches: list[KeptSearch], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = replicas
    best = searches[0].candidates[0].id
    SearchReview(one).answer(searches[0].id, "wrong", by="eve", item_id=best)
    assert left_out(one, searches[0], None) == [best]

    def refuse(_: Rows) -> None:
        raise DatabaseAwayError("it does not answer")

    monkeypatch.setattr("vicinal.service.answering.different.stamp_of_different", refuse)
    SearchStore(one.gallery.path).draw([searches[1].id])
    assert left_out(one, searches[0], None) == [best]

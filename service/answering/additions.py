"""Additions: kept searches of which persons say what they show become items of the gallery.

The id of the item follows from that of the search, so that what is done again adds nothing twice: a process
that ends between the addition and its note is caught up by the next call. The item says under `search_visit`
which visit it is from; items of one visit are never each other's mates (`service.measuring.visits`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
from pydantic import Field

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import ItemRefusedError
from vicinal.indexer.jobs.changes import add_items, remove_items
from vicinal.indexer.jobs.preparation import as_rows, prepare_encoded, ready_rows
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import SourceItem
from vicinal.indexer.sources.embedding_files import ReadyRows
from vicinal.indexer.views.view import GalleryView
from vicinal.models.embedder import Embedder
from vicinal.models.errors import EmbeddingError, ImageError
from vicinal.service.answering.asking import settle
from vicinal.service.answering.different import same_picture
from vicinal.service.answering.kept import KeptSearch, standing
from vicinal.service.answering.store import SearchStore
from vicinal.service.errors import RequestError
from vicinal.service.measuring.visits import SEARCH_VISIT

# Items that are added in one change.
_TOGETHER = 64
# Photos that a label gets of searches, where nobody says how many.
A_LABEL = 2
_RANKS = {"missed": 0, "unsure": 1, "found": 2}


@dataclass(frozen=True)
class ConfirmedSearch:
    """A search with its right label, and how it was answered: `missed`, `unsure` or `found`."""

    search: KeptSearch
    label: str
    answered: str

    @property
    def item_id(self) -> str:
        """Id of the item that it becomes."""
        return item_id_of(self.search.id)

    @property
    def mate_score(self) -> float:
        """Best score of its label, 0 where none is known."""
        return max((one.score for one in self.search.candidates if one.label == self.label), default=0.0)


@dataclass(frozen=True)
class AddedSearch:
    """Search that became an item."""

    search_id: str
    item_id: str
    label: str


@dataclass(frozen=True)
class PassedSearch:
    """Search that became no item, and why."""

    search_id: str
    reason: str


@dataclass(frozen=True)
class SearchAdditions:
    """Searches that became items, and confirmed ones that did not."""

    added: list[AddedSearch]
    passed: list[PassedSearch]
    n_waiting: Annotated[
        int, Field(description="Confirmed searches of labels that have as many as were asked for.")
    ] = 0


def item_id_of(search_id: str) -> str:
    """Id of the item that a search becomes."""
    return f"search-{search_id}"


def confirmed_searches(store: SearchStore) -> list[ConfirmedSearch]:
    """Searches that are no items yet, of which persons agree on a label; the most useful first.

    Those come first that the gallery did not find, then those that it was unsure of, and among them those
    that are least like what it has.
    """
    said = standing(store.answers())
    found = []
    for search in store.searches():
        answer = settle(said[search.id]) if search.id in said else None
        if search.item_id is None and answer is not None and answer.label is not None:
            found.append(_confirmed(search, answer.label))
    return sorted(found, key=lambda one: (_RANKS[one.answered], one.mate_score, one.search.id))


def add_confirmed(
    reader: GalleryReader,
    embedder: Embedder,
    *,
    a_label: int = A_LABEL,
    only: Collection[str] | None = None,
) -> SearchAdditions:
    """Add confirmed searches as items: so many a label with those that were added before, one of a visit.

    Args:
        only: Ids of searches to add, in place of a choice: these alone, whatever their label has already, and
            also where a person removed the item before.

    Raises:
        SearchNotFoundError: One of them was not kept, or has gone.
        RequestError: Nobody says what one of them shows, or persons disagree.
    """
    store = SearchStore(reader.gallery.path)
    confirmed = confirmed_searches(store)
    result = SearchAdditions([], [])
    if only is None:
        chosen = list(_chosen(store, reader, confirmed, a_label))
        result = SearchAdditions([], [], len(confirmed) - len(chosen))
    else:
        chosen = _named(store, confirmed, only)
    for start in range(0, len(chosen), _TOGETHER):
        _add(reader, embedder, store, chosen[start : start + _TOGETHER], result)
    return result


def remove_added(reader: GalleryReader, search_id: str) -> str:
    """Remove the item that a search became; the item's id."""
    store = SearchStore(reader.gallery.path)
    item_id = store.get(search_id).item_id
    if item_id is None:
        raise RequestError(f"search '{search_id}' has become no item of gallery '{reader.gallery.name}'")
    # First: what was noted says which item to remove.
    if (reader.view().positions([item_id]) >= 0).any():
        remove_items(reader, [item_id])
    store.mark_added(search_id, None)
    return item_id


def _confirmed(search: KeptSearch, label: str) -> ConfirmedSearch:
    best = search.candidates[0].label if search.candidates else None
    if search.verdict == "match":
        return ConfirmedSearch(search, label, "found" if best == label else "missed")
    return ConfirmedSearch(search, label, "unsure" if search.verdict == "unsure" else "missed")


def _chosen(
    store: SearchStore, reader: GalleryReader, confirmed: Sequence[ConfirmedSearch], a_label: int
) -> Iterator[ConfirmedSearch]:
    removed = reader.gallery.removals.read()
    added = {one.item_id: one for one in store.searches() if one.item_id is not None}
    view = reader.view()
    there = view.positions(list(added))
    items = view.items(there[there >= 0])
    n_of = Counter(one["label"] for one in items)
    visits = {(one["label"], added[one["id"]].visit) for one in items}
    for one in confirmed:
        key = one.label, one.search.visit
        # What a person removed comes back only where that is asked for.
        if n_of[one.label] < a_label and key not in visits and not removed.of_id(one.item_id):
            n_of[one.label] += 1
            visits.add(key)
            yield one


def _named(
    store: SearchStore, confirmed: Sequence[ConfirmedSearch], only: Collection[str]
) -> list[ConfirmedSearch]:
    known = {one.search.id: one for one in confirmed}
    for search_id in only:
        search = store.get(search_id)
        if search_id not in known and search.item_id is None:
            raise RequestError(
                f"search '{search_id}' cannot become an item: nobody says which label it has, or persons "
                "disagree"
            )
    return [known[one] for one in dict.fromkeys(only) if one in known]


def _add(
    reader: GalleryReader,
    embedder: Embedder,
    store: SearchStore,
    chosen: Sequence[ConfirmedSearch],
    result: SearchAdditions,
) -> None:
    """Add some in one change, and note them."""
    rows: list[pa.Table] = []
    ready: list[ConfirmedSearch] = []
    taken: list[FloatArray] = []
    for one in chosen:
        try:
            row, embedding = _row(embedder, store, one)
            _require_new(reader.view(), one.item_id, embedding, taken)
        except (ImageError, EmbeddingError, ItemRefusedError, RequestError) as error:
            result.passed.append(PassedSearch(one.search.id, str(error)))
            continue
        rows.append(row)
        ready.append(one)
        taken.append(embedding)
    if not rows:
        return
    change = add_items(reader, pa.concat_tables(rows), bundle=embedder.bundle.fingerprint, conflict="skip")
    for one, outcome in zip(ready, change.outcomes, strict=True):
        if outcome == "skipped":
            result.passed.append(PassedSearch(one.search.id, f"another image has the id '{one.item_id}'"))
            continue
        store.mark_added(one.search.id, one.item_id)
        result.added.append(AddedSearch(one.search.id, one.item_id, one.label))


def _row(embedder: Embedder, store: SearchStore, one: ConfirmedSearch) -> tuple[pa.Table, FloatArray]:
    """Row of the gallery table, and its (d,) embedding: the query's own, made of all its pixels."""
    search, bundle = one.search, embedder.bundle
    is_own = search.bundle == bundle.fingerprint
    metadata = {"source": "search", SEARCH_VISIT: search.visit or search.id}
    if bundle.manifest.space:
        if not is_own:
            raise RequestError("its embedding is of another space than the gallery's")
        ready = ReadyRows(
            ids=pa.array([one.item_id]),
            labels=pa.array([one.label]),
            uris=pa.array([""]),
            metadata=pa.array([json.dumps(metadata)]),
            embeddings=np.array(search.embedding, np.float32)[None],
        )
        return ready_rows(ready), ready.embeddings[0]
    picture = store.picture(search.id)
    if picture is None:
        raise RequestError("it was for an embedding: there is no picture that the item could show")
    prepared = prepare_encoded(
        SourceItem(one.item_id, Path(one.item_id), one.label, metadata), picture, embedder
    )
    if is_own:
        embedding = np.array(search.embedding, np.float32)[None]
    else:
        embedding = embedder.finish(embedder.infer([prepared.tensor]))
    return as_rows([prepared], embedding), embedding[0]


def _require_new(view: GalleryView, item_id: str, embedding: FloatArray, taken: Sequence[FloatArray]) -> None:
    """Refuse a picture that the gallery holds, unless as this very item."""
    near = view.nearest(embedding[None], 2)[0] if len(view) else np.empty(0, np.int64)
    near = near[near >= 0]
    same = near[same_picture(embedding[None], view.vectors(near))]
    held = [one["id"] for one in view.items(same)]
    if any(one != item_id for one in held):
        raise RequestError(f"item '{held[0]}' is this very picture")
    if any(same_picture(embedding, one) for one in taken):
        raise RequestError("another search of this very picture becomes an item")

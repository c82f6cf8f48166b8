"""Exactness: after any changes a search equals one in a gallery that was built from scratch.

The scorer of the service runs on both. Without re-ranking the answers are equal at any time. With it they are
equal after a compaction; in between they are those of a slow loop over the neighbor lists as documented: an
item's list was made when it was built or added, and dead items are left out of it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS, build_neighbor_graph
from vicinal.indexer.jobs.changes import Patch, add_items, patch_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.item_table import as_fixed_lists
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import exact_similarities, normalize
from vicinal.service.search.pipeline import Pipeline, Rerank
from vicinal.service.search.scorer import Scorer

BUNDLE = "0123456789abcdef"
OFF = Pipeline(rerank=Rerank(method="off"))
CONTEXTUAL = Pipeline(rerank=Rerank(k=3, beta=0.5, eps=0.1))
N_POOL, DIM = 24, 4
# Few directions, so that exact duplicates and ties come up.
POOL = normalize(np.random.default_rng(0).normal(size=(N_POOL, DIM)))
IDS = [f"item {i}" for i in range(14)]
Scores = list[tuple[str, float]]


@dataclass(frozen=True)
class Item:
    """An item as the test remembers it.

    Attributes:
        number: Different for every embedding that was ever added.
        listed: Numbers and similarities of its neighbor list, nearest first.
    """

    number: int
    embedding: FloatArray
    label: str | None
    metadata: dict[str, Any]
    listed: list[tuple[int, float]] = field(default_factory=list)


def neighbors_of(embedding: FloatArray, others: list[Item]) -> list[tuple[int, float]]:
    found = [(one.number, float(exact_similarities(embedding, one.embedding[None])[0])) for one in others]
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:N_NEIGHBORS]


def kth_of(item: Item, alive: set[int], k: int) -> float:
    """Similarity of an item to its k-th neighbor, itself the first, along its list without dead ones."""
    left = [similarity for number, similarity in item.listed if number in alive]
    if len(item.listed) == N_NEIGHBORS:
        left += [item.listed[-1][1]] * (N_NEIGHBORS - len(left))
    similarities = [1.0, *left, *[-np.inf] * k]
    return similarities[k - 1]


def contextual_by_loop(query: FloatArray, items: dict[str, Item], rerank: Rerank) -> dict[str, float]:
    """Final score of every item on the gallery and the query, along the items' lists."""
    k, slack, alive = rerank.k, rerank.eps / 2.0, {item.number for item in items.values()}
    near = {name: float(exact_similarities(query, item.embedding[None])[0]) for name, item in items.items()}
    ordered = sorted(near.values(), reverse=True)
    own_radius = ordered[k - 2] if len(ordered) > k - 2 else -np.inf
    around = [name for name in items if near[name] >= own_radius - slack]
    scores = {}
    for name, item in items.items():
        # The query itself may push the item's k-th neighbor out.
        radius = max(kth_of(item, alive, k), min(kth_of(item, alive, k - 1), near[name])) - slack
        shared = float(near[name] >= radius)
        for other in around:
            pair = float(exact_similarities(item.embedding, items[other].embedding[None])[0])
            shared += other == name or pair >= radius
        contextual = shared / (len(around) + 1) if name in around else 0.0
        scores[name] = rerank.beta * contextual + (1 - rerank.beta) * np.exp(2 * near[name] - 2)
    return scores


def rows_of(named: dict[str, Item]) -> pa.Table:
    embeddings = np.array([item.embedding for item in named.values()], np.float32).reshape(-1, DIM)
    return pa.table(
        {
            "id": pa.array(list(named), pa.string()),
            "label": pa.array([item.label for item in named.values()], pa.string()),
            "uri": pa.array(list(named), pa.string()),
            "metadata": pa.array([json.dumps(item.metadata) for item in named.values()], pa.string()),
            "thumbnail": pa.array([b""] * len(named), pa.binary()),
            "source": pa.nulls(len(named), pa.string()),
            "file_size": pa.nulls(len(named), pa.int64()),
            "modified_at": pa.nulls(len(named), pa.timestamp("us", tz="UTC")),
            "content_sha256": pa.array([bytes(32)] * len(named), pa.binary(32)),
            "embedding": as_fixed_lists(embeddings),
        }
    )


def publish(path: Path, named: dict[str, Item]) -> Gallery:
    gallery = Gallery(path)
    gallery.start(rows_of(named), bundle=BUNDLE, bundle_name="tiny")
    gallery.publish(build_neighbor_graph(gallery.pending_embeddings()))
    return gallery


def search(gallery: GalleryView | Snapshot, queries: FloatArray, pipeline: Pipeline) -> list[Scores]:
    scored = Scorer(gallery, pipeline).score(queries, 100)
    found = []
    for positions, scores in zip(scored.positions, scored.scores, strict=True):
        names = [item["id"] for item in gallery.items(positions[positions >= 0])]
        found.append(list(zip(names, scores[positions >= 0].tolist(), strict=True)))
    return found


class ChangedGallery(RuleBasedStateMachine):
    """A gallery on disk beside what it should hold."""

    @initialize(names=st.lists(st.sampled_from(IDS), min_size=1, max_size=10, unique=True), data=st.data())
    def index(self, names: list[str], data: st.DataObject) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.count = 0
        self.stale = False
        self.items: dict[str, Item] = {}
        for name in names:
            self._put(name, data.draw(st.integers(0, N_POOL - 1)))
        self._relist()
        self.reader = GalleryReader(publish(self.folder / "live", self.items))

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def _put(self, name: str, direction: int) -> None:
        """Add or replace: what is replaced loses its place."""
        self.items.pop(name, None)
        embedding = POOL[direction]
        listed = neighbors_of(embedding, list(self.items.values()))
        self.items[name] = Item(self.count, embedding, f"label {direction}", {"n": direction}, listed)
        self.count += 1

    def _relist(self) -> None:
        everyone = list(self.items.values())
        for name, item in self.items.items():
            others = [other for other in everyone if other.number != item.number]
            self.items[name] = replace(item, listed=neighbors_of(item.embedding, others))
        self.stale = False

    @rule(
        additions=st.lists(
            st.tuples(st.sampled_from(IDS), st.integers(0, N_POOL - 1)),
            min_size=1,
            max_size=6,
            unique_by=lambda pair: pair[0],
        )
    )
    def add(self, additions: list[tuple[str, int]]) -> None:
        for name, direction in additions:
            self._put(name, direction)
        new = {name: self.items[name] for name, _ in additions}
        add_items(self.reader, rows_of(new), bundle=BUNDLE, conflict="replace")
        self.stale = True

    @precondition(lambda self: self.items)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(sorted(self.items)), min_size=1, max_size=5, unique=True))
        remove_items(self.reader, gone)
        for name in gone:
            del self.items[name]
        self.stale = True

    @precondition(lambda self: self.items)
    @rule(data=st.data(), label=st.sampled_from([None, "boots"]), value=st.integers(0, 3))
    def patch(self, data: st.DataObject, label: str | None, value: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.items)))
        patch_items(self.reader, {name: Patch(label=label, metadata={"extra": value})})
        item = self.items[name]
        self.items[name] = replace(item, label=label, metadata={**item.metadata, "extra": value})

    @rule()
    def compact(self) -> None:
        compact(self.reader)
        self._relist()
        assert self.reader.view().graph_staleness == 0.0

    @rule()
    def open_again(self) -> None:
        self.reader = GalleryReader(Gallery(self.folder / "live"))

    @rule(directions=st.lists(st.integers(0, N_POOL - 1), min_size=1, max_size=3), nudge=st.booleans())
    def search(self, directions: list[int], nudge: bool) -> None:
        view = self.reader.view()
        queries = normalize(POOL[directions] + (0.1 if nudge else 0.0))
        scratch = publish(self.folder / "scratch", self.items)
        built = scratch.snapshot()
        scratch.delete()
        assert search(view, queries, OFF) == search(built, queries, OFF)
        for query, found in zip(queries, search(view, queries, CONTEXTUAL), strict=True):
            expected = contextual_by_loop(query, self.items, CONTEXTUAL.rerank)
            assert dict(found) == pytest.approx(expected, abs=1e-9)
        if not self.stale:
            assert search(view, queries, CONTEXTUAL) == search(built, queries, CONTEXTUAL)

    @rule()
    def list_items(self) -> None:
        page = [item for _, item in self.reader.view().page(None, 100)]
        assert [one["id"] for one in page] == list(self.items)
        assert [(one["label"], one["metadata"]) for one in page] == [
            (item.label, item.metadata) for item in self.items.values()
        ]


# Every step writes to the disk, so that shrinking a failure would take minutes.
THOROUGH = settings(
    stateful_step_count=25,
    phases=(Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("n_examples", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_search_equals_one_in_a_gallery_built_from_scratch(n_examples: int) -> None:
    run_state_machine_as_test(ChangedGallery, settings=settings(THOROUGH, max_examples=n_examples))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (GalleryView, "is_dead", lambda _self, positions: np.zeros(np.shape(positions), bool)),
        (GalleryView, "neighbor_positions", lambda _self, at: np.zeros((*at.shape, N_NEIGHBORS), np.int64)),
    ],
    ids=["tombstones ignored", "dead neighbors kept in lists"],
)
def test_a_wrong_view_is_noticed(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, wrong: Any) -> None:
    """Negative control, on the same walks each time: some sixty others would not meet the fault."""
    monkeypatch.setattr(owner, name, wrong)
    same = settings(THOROUGH, phases=(Phase.generate,), max_examples=60, derandomize=True, database=None)
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        run_state_machine_as_test(ChangedGallery, settings=same)

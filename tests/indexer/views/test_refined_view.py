"""Refined view: added items are refined with their own neighbors, and what is gone refines nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import BundleMismatchError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS, build_neighbor_graph
from vicinal.indexer.jobs.changes import add_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.refinement import open_refined, refine_gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views.refined_snapshot import RefinementPlan, refinements
from vicinal.indexer.views.refined_view import RefinedSpace, RefinedView
from vicinal.indexer.views.view import GalleryView
from vicinal.models.bundle import ModelBundle
from vicinal.models.similarity import exact_similarities
from vicinal.refine.context_refiner import ContextRefiner

Rows = Callable[..., pa.Table]
Unit = Callable[..., FloatArray]
DIM, N = 24, 60


@pytest.fixture(scope="module")
def plan(refiner_bundle: ModelBundle) -> RefinementPlan:
    return RefinementPlan(ContextRefiner(refiner_bundle), 3)


@pytest.fixture
def gallery(tmp_path: Path, plan: RefinementPlan, rows: Rows, unit: Unit) -> Gallery:
    """Sixty items `0`, `1` and so on, refined."""
    gallery = Gallery(tmp_path / "galleries" / "shoes", refinement=plan)
    index_items(gallery, rows([str(i) for i in range(N)], unit(N, dim=DIM)), plan)
    return gallery


def index_items(gallery: Gallery, rows: pa.Table, plan: RefinementPlan) -> None:
    gallery.start(rows, bundle=plan.refiner.bundle.fingerprint, bundle_name="tiny")
    gallery.publish(build_neighbor_graph(gallery.pending_embeddings()))


def add(reader: GalleryReader, rows: pa.Table, plan: RefinementPlan) -> None:
    add_items(reader, rows, bundle=plan.refiner.bundle.fingerprint)


def space_of(view: GalleryView, plan: RefinementPlan) -> RefinedSpace:
    return open_refined("shoes", view.snapshot, plan)


def refined_by_loop(view: GalleryView, plan: RefinementPlan, position: int) -> FloatArray:
    """An added item refined with the nearest of those that came before it and are there."""
    own = view.vectors(np.array([position]))[0]
    before = [i for i in range(position) if not view.is_dead(np.array([i]))[0]]
    similarities = exact_similarities(own, view.vectors(np.array(before)))
    nearest = np.array(before)[np.argsort(-similarities, kind="stable")[: plan.refiner.n_neighbors]]
    return plan.refiner.attend(own[None], view.vectors(nearest)[None]).steps[0, -1]


def lists_by_loop(refined: RefinedView, position: int) -> tuple[list[int], list[float]]:
    """The nearest others of an item among all live ones, by comparing it with each of them."""
    everyone = np.arange(refined.view.n_positions)
    others = everyone[~refined.view.is_dead(everyone) & (everyone != position)]
    similarities = exact_similarities(refined.vectors(np.array([position]))[0], refined.vectors(others))
    order = np.lexsort((others, -similarities))[:N_NEIGHBORS]
    return others[order].tolist(), similarities[order].tolist()


def test_a_removed_item_leaves_the_contexts_of_added_items_at_once(
    gallery: Gallery, plan: RefinementPlan, rows: Rows, unit: Unit
) -> None:
    reader = GalleryReader(gallery)
    add(reader, rows(["a", "b"], unit(2, seed=1, dim=DIM)), plan)
    before = reader.view()
    space = space_of(before, plan)
    nearest = before.neighbor_positions(np.array([N]))[0, 0]
    vector = space.view(before).vectors(np.array([N]))
    remove_items(reader, [str(nearest)])
    after = reader.view()
    found = space.view(after).vectors(np.array([N]))
    np.testing.assert_array_equal(found[0], refined_by_loop(after, plan, N))
    assert not np.array_equal(found, vector)


def test_a_process_that_opens_later_sees_the_same_vectors_and_lists(
    gallery: Gallery, plan: RefinementPlan, rows: Rows, unit: Unit
) -> None:
    """Whatever it has not seen of the changes in between."""
    reader = GalleryReader(gallery)
    space = space_of(reader.view(), plan)
    for seed, gone in ((1, ["3", "a1"]), (2, ["7", "b2"])):
        names = [f"{'ab'[seed - 1]}{i}" for i in range(4)]
        add(reader, rows(names, unit(4, seed=seed, dim=DIM)), plan)
        space.view(reader.view())
        remove_items(reader, gone)
    one = space.view(reader.view())
    late = GalleryReader(Gallery.open(gallery.path)).view()
    other = space_of(late, plan).view(late)
    added = late.positions([f"{part}{i}" for part in "ab" for i in range(4)])
    added = added[added >= 0]
    ours = reader.view().positions([item["id"] for item in late.items(added)])
    np.testing.assert_array_equal(one.vectors(ours), other.vectors(added))
    np.testing.assert_array_equal(one.neighbor_similarities(ours), other.neighbor_similarities(added))


def test_neighbor_lists_hold_added_items_and_no_removed_ones(
    gallery: Gallery, plan: RefinementPlan, rows: Rows, unit: Unit
) -> None:
    reader = GalleryReader(gallery)
    add(reader, rows([f"a{i}" for i in range(6)], unit(6, seed=1, dim=DIM)), plan)
    remove_items(reader, ["2", "40", "a3"])
    view = reader.view()
    refined = space_of(view, plan).view(view)
    for position in (0, 10, N, N + 5):
        ids = refined.neighbor_positions(np.array([position]))[0]
        similarities = refined.neighbor_similarities(np.array([position]))[0]
        expected_ids, expected = lists_by_loop(refined, position)
        # A stored list that lost some neighbors knows fewer than it holds.
        n_known = int(np.argmax(ids < 0)) if (ids < 0).any() else N_NEIGHBORS
        assert n_known >= N_NEIGHBORS - 2
        assert ids[:n_known].tolist() == expected_ids[:n_known]
        assert similarities[:n_known].tolist() == expected[:n_known]
        assert (similarities >= np.array(expected, np.float32)).all()


def test_a_gallery_of_another_bundle_is_not_refined(live_gallery: Gallery, plan: RefinementPlan) -> None:
    with pytest.raises(BundleMismatchError):
        refine_gallery(live_gallery, plan)
    live_gallery.refinement = plan
    live_gallery.repair(live_gallery.active_version)
    assert refinements(live_gallery.snapshot_path(live_gallery.active_version)) == []


def test_a_compaction_makes_what_an_index_job_would_make(
    gallery: Gallery, plan: RefinementPlan, rows: Rows, unit: Unit, tmp_path: Path
) -> None:
    reader = GalleryReader(gallery)
    old, added = unit(N, dim=DIM), unit(6, seed=1, dim=DIM)
    add(reader, rows([f"a{i}" for i in range(6)], added), plan)
    remove_items(reader, ["2", "40"])
    compact(reader)
    kept = [i for i in range(N) if i not in (2, 40)]
    names = [*map(str, kept), *(f"a{i}" for i in range(6))]
    scratch = Gallery(tmp_path / "galleries" / "scratch", refinement=plan)
    index_items(scratch, rows(names, np.concatenate([old[kept], added])), plan)
    compacted, built = (space_of(GalleryReader(one).view(), plan).built.stored for one in (gallery, scratch))
    np.testing.assert_array_equal(compacted.embeddings, built.embeddings)
    np.testing.assert_array_equal(compacted.graph.ids, built.graph.ids)
    np.testing.assert_array_equal(compacted.graph.similarities, built.graph.similarities)

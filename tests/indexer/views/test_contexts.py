"""Contexts: those of many queries are what a slow loop finds for each alone, whatever is excluded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import add_items, remove_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views.contexts import context_radii, query_contexts
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import exact_similarities

BUNDLE = "0123456789abcdef"
N, N_QUERIES, K = 400, 70, 6
NOBODY = np.empty(0, np.int64)


@pytest.fixture(scope="module", params=["Flat", "IVF4,SQ8"])
def view(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    publish: Callable[..., int],
    rows: Callable[..., pa.Table],
    unit: Callable[..., FloatArray],
) -> GalleryView:
    """400 built and 30 added items, some of both removed."""
    gallery = Gallery(Path(tmp_path_factory.mktemp("galleries")) / "shoes")
    publish(gallery, rows([str(i) for i in range(N)], unit(N)), index=request.param)
    reader = GalleryReader(gallery)
    add_items(reader, rows([f"new {i}" for i in range(30)], unit(30, seed=1)), bundle=BUNDLE)
    remove_items(reader, ["3", "4", "new 7"])
    return GalleryReader(Gallery(gallery.path)).view()


@pytest.fixture(scope="module")
def queries(unit: Callable[..., FloatArray]) -> FloatArray:
    return unit(N_QUERIES, seed=2)


@pytest.fixture(scope="module")
def excluded(view: GalleryView, queries: FloatArray) -> list[Any]:
    """For every third query nobody, for the others one or two of its nearest."""
    nearest = query_contexts(view, queries, K, [NOBODY] * N_QUERIES)
    return [np.sort(row[: i % 3]) for i, row in enumerate(nearest)]


def context_by_loop(view: GalleryView, query: FloatArray, out: Any) -> list[int]:
    live = [i for i in range(view.n_positions) if not view.is_dead(np.array([i]))[0] and i not in out]
    similarities = exact_similarities(query, view.vectors(np.array(live)))
    ranked = sorted(zip(live, similarities.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))
    return [position for position, _ in ranked[:K]]


def test_contexts_are_the_nearest_of_a_slow_loop(
    view: GalleryView, queries: FloatArray, excluded: list[Any]
) -> None:
    contexts = query_contexts(view, queries, K, excluded)
    expected = [context_by_loop(view, query, out) for query, out in zip(queries, excluded, strict=True)]
    assert contexts.tolist() == expected


def test_a_context_and_its_radii_are_the_same_alone_and_among_others(
    view: GalleryView, queries: FloatArray, excluded: list[Any]
) -> None:
    together = query_contexts(view, queries, K, excluded)
    alone = [query_contexts(view, queries[i : i + 1], K, excluded[i : i + 1]) for i in range(N_QUERIES)]
    np.testing.assert_array_equal(together, np.concatenate(alone))
    radii = [context_radii(view, one, [out]) for one, out in zip(alone, excluded, strict=True)]
    np.testing.assert_array_equal(context_radii(view, together, excluded), np.concatenate(radii))


def test_an_item_among_queries_has_the_context_of_its_list(view: GalleryView) -> None:
    items = np.array([10, N + 5, 11])
    excluded = [np.array([item]) for item in items]
    contexts = query_contexts(view, view.vectors(items), K, excluded, items)
    np.testing.assert_array_equal(contexts[0], view.neighbor_positions(items)[0, :K])
    alone = query_contexts(view, view.vectors(items[1:2]), K, excluded[1:2], items[1:2])
    np.testing.assert_array_equal(contexts[1:2], alone)


def test_an_item_whose_list_runs_out_is_searched_for_without_itself(view: GalleryView) -> None:
    item = np.array([10])
    listed = view.neighbor_positions(item)[0]
    query = view.vectors(item)
    found = query_contexts(view, query, K, [listed[listed >= 0]], item)[0].tolist()
    assert found == context_by_loop(view, query[0], {10, *listed.tolist()})


def test_where_few_are_left_a_context_ends_with_nobody(view: GalleryView, queries: FloatArray) -> None:
    left = [20, 21]
    out = np.array([i for i in range(view.n_positions) if i not in left])
    contexts = query_contexts(view, queries[:2], K, [out, NOBODY])
    assert sorted(contexts[0, :2].tolist()) == left
    assert contexts[0, 2:].tolist() == [-1] * (K - 2)
    np.testing.assert_array_equal(context_radii(view, contexts[:1], [out])[0, 2:], 0.0)

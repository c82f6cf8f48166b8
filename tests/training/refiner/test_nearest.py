"""Nearest items and training contexts against a loop."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.models.similarity import normalize
from vicinal.training.refiner import embedding_set
from vicinal.training.refiner.embedding_set import EmbeddingSet, nearest_items


def by_loop(queries, items, k, query_groups, item_groups) -> list[list[int]]:
    """Every similarity in float64, sorted as a whole."""
    lists = []
    for query, group in zip(queries.astype(float), query_groups, strict=True):
        allowed = [j for j, other in enumerate(item_groups) if other != group]
        ranked = sorted(allowed, key=lambda j: (-np.float32(query @ items[j].astype(float)), j))[:k]
        lists.append(ranked + [-1] * (k - len(ranked)))
    return lists


@pytest.mark.parametrize("k", [1, 4, 40])
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_nearest_items_equal_the_loop(k: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With duplicates, whose order is that of their positions, and in blocks of any size."""
    monkeypatch.setattr(embedding_set, "_ROWS", rows)
    rng = np.random.default_rng(0)
    items = normalize(rng.normal(size=(30, 6)))
    items[20:25] = items[3]
    groups, queries = rng.integers(0, 4, 30), items[rng.permutation(30)[:11]]
    query_groups = rng.integers(-1, 4, 11)
    found, similarities = nearest_items(queries, items, k, query_groups=query_groups, item_groups=groups)
    assert found.tolist() == by_loop(queries, items, k, query_groups, groups)
    assert ((similarities == -np.inf) == (found < 0)).all()


@pytest.fixture
def items() -> EmbeddingSet:
    rng = np.random.default_rng(1)
    return EmbeddingSet.of(rng.normal(size=(24, 5)), np.repeat(list("abcdef"), 4), np.repeat([0, 1], 12))


def test_contexts_without_mates_hold_no_item_of_the_class(items: EmbeddingSet) -> None:
    without = items.nearest(9, items.class_ids)[0]
    assert (items.spaces[without[:, :8]] == items.spaces[:, None]).all()
    assert not (items.labels[without[:, :8]] == items.labels[:, None]).any()
    # A space has 8 items of other classes.
    assert (without[:, 8] == -1).all()

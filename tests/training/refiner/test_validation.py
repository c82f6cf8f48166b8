"""Validation of a refiner: roles, rates and the verdict, against slow ways and cases with a known end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vicinal.refine.errors import RefinerTrainingError
from vicinal.refine.reranking import dense_contextual_scores
from vicinal.training.evaluation import fnir_at_fpir, retrieval_metrics
from vicinal.training.refiner.config import ValidationConfig
from vicinal.training.refiner.embedding_set import EmbeddingSet
from vicinal.training.refiner.validation import Line, SideFigures, Validation, choose_sides


def blobs(
    n_classes: int = 30, size: int = 6, noise: float = 0.8, dim: int = 12, seed: int = 0
) -> EmbeddingSet:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), size)
    return EmbeddingSet.of(
        rng.normal(size=(n_classes, dim))[labels] + noise * rng.normal(size=(len(labels), dim)), labels
    )


def validate(items: EmbeddingSet, **changes: Any) -> Validation:
    return Validation(items, 4, ValidationConfig(**changes), seed=0)


def unchanged(rows: Any, _neighbors: Any, **_: bool) -> Any:
    return rows


def test_contexts_are_gallery_items_other_than_the_item_itself() -> None:
    items = blobs()
    (search,) = validate(items, draws=1)._searches
    rows = np.concatenate([search.gallery, search.queries])
    assert not (search.gallery[search.contexts] == rows[:, None]).any()
    similarities = items.embeddings[rows] @ items.embeddings[search.gallery].T
    similarities[rows[:, None] == search.gallery] = -np.inf
    assert (search.contexts[:, 0] == similarities.argmax(axis=1)).all()


def test_figures_of_one_search_are_those_of_a_loop() -> None:
    items = blobs(noise=1.5)
    validation = validate(items, draws=1)
    (search,) = validation._searches
    gallery, labels = items.embeddings[search.gallery], items.labels[search.gallery]
    best_mates, best_absent = [], []
    for number, query in enumerate(search.queries):
        similarities = gallery @ items.embeddings[query]
        if number < search.n_known:
            best_mates.append(
                max(s for s, label in zip(similarities, labels, strict=True) if label == items.labels[query])
            )
        else:
            best_absent.append(max(similarities))
    known = search.queries[: search.n_known]
    expected = retrieval_metrics(
        items.embeddings[known], items.labels[known], gallery_embeddings=gallery, gallery_labels=labels
    )
    figures = validation.measure(unchanged)["off"]
    assert figures.fnir == pytest.approx(fnir_at_fpir(best_mates, best_absent, 0.05))
    assert figures.map_at_r == pytest.approx(expected.map_at_r)
    assert figures.hit_rate_1 == expected.hit_rate[1]


def test_each_side_is_refined_where_it_is_named() -> None:
    """A refiner that turns its embeddings around: matching needs both sides turned, or neither."""
    figures = validate(blobs(noise=0.3)).measure(lambda rows, _neighbors, **_: -rows)
    assert figures["both"] == figures["off"]
    assert figures["off"].hit_rate_1 > 0.95
    assert max(figures["gallery"].hit_rate_1, figures["query"].hit_rate_1) < 0.05


def test_a_refiner_that_knows_the_classes_is_used_and_one_that_spoils_is_not() -> None:
    items = blobs(noise=1.5)
    centers = {
        tuple(one): items.embeddings[items.labels == label].mean(axis=0)
        for one, label in zip(items.embeddings, items.labels, strict=True)
    }

    def informed(rows: Any, _neighbors: Any, **_: bool) -> Any:
        moved = np.array([centers[tuple(row)] for row in rows])
        return moved / np.linalg.norm(moved, axis=1, keepdims=True)

    rng = np.random.default_rng(0)

    def spoiling(rows: Any, _neighbors: Any, **_: bool) -> Any:
        noisy = rows + rng.normal(size=rows.shape).astype(np.float32)
        return noisy / np.linalg.norm(noisy, axis=1, keepdims=True)

    validation = validate(items)
    assert validation.decide(informed, validation.measure(informed)).sides == "both"
    assert validation.decide(spoiling, validation.measure(spoiling)).sides == "off"


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"off": (0.2, 0.5), "gallery": (0.2, 0.5), "query": (0.2, 0.5), "both": (0.2, 0.5)}, "off"),
        ({"off": (0.2, 0.5), "gallery": (0.2, 0.6), "query": (0.2, 0.5), "both": (0.2, 0.5)}, "gallery"),
        ({"off": (0.2, 0.9), "gallery": (0.2, 0.9), "query": (0.1, 0.1), "both": (0.2, 0.9)}, "query"),
        ({"off": (0.2, 0.9), "gallery": (0.1, 0.3), "query": (0.1, 0.2), "both": (0.1, 0.4)}, "both"),
    ],
)
def test_sides_are_chosen_by_fnir_then_map_then_least_work(figures: Any, expected: str) -> None:
    assert choose_sides({name: SideFigures(*one, 0.0, 0.8) for name, one in figures.items()}) == expected


def test_reranked_scores_are_those_of_the_dense_formula() -> None:
    """On the gallery and one query, for every query."""
    items = blobs(n_classes=12, noise=1.2)
    validation = validate(items, draws=1, fpir=0.5, rerank={"k": 4, "beta": 0.3, "eps": 0.05})
    (search,) = validation._searches
    gallery, queries = items.embeddings[search.gallery], items.embeddings[search.queries]
    line = Line("off", "contextual")
    found = validation.outcomes(None, [line])[line]
    rows = []
    for query in queries:
        members = np.vstack([gallery, query])
        dense = dense_contextual_scores(members @ members.T, 4, 0.3, 0.05)
        rows.append(dense[-1, :-1])
    dense, n = np.array(rows), search.n_known
    mates = items.labels[search.queries[:n], None] == items.labels[search.gallery]
    expected = np.where(mates, dense[:n], -np.inf).max(axis=1)
    np.testing.assert_allclose(found.mates, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.others, dense[n:].max(axis=1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_classes", [1, 4])
def test_too_few_validation_classes_are_refused(n_classes: int) -> None:
    with pytest.raises(RefinerTrainingError, match=r"at least 20: hold out a larger share"):
        validate(blobs(n_classes=n_classes, size=4), draws=1).require_queries()

"""Controls against loops over single neighbors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.refiner.controls import alpha_query_expansion, mean_of_neighbors, softmax_query_expansion

Control = Callable[..., np.ndarray]


def last_of_softmax(*inputs: Any) -> np.ndarray:
    return softmax_query_expansion(*inputs)[:, -1]


CONTROLS = [mean_of_neighbors, alpha_query_expansion, last_of_softmax]


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def by_loop(queries: Any, contexts: Any, mask: Any, weights_of: Callable[..., Any]) -> np.ndarray:
    refined = []
    for query, context, there in zip(queries, contexts, mask, strict=True):
        neighbors = [c.astype(np.float64) for c, one in zip(context, there, strict=True) if one]
        weights = weights_of(query.astype(np.float64), neighbors) if neighbors else []
        total = query + sum((w * c for w, c in zip(weights, neighbors, strict=True)), np.zeros(len(query)))
        refined.append(unit(total))
    return np.array(refined)


def softmax(logits: list[float]) -> np.ndarray:
    powers = np.exp(logits)
    return powers / powers.sum()


@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
def test_alpha_expansion_equals_the_loop(make_contexts: Callable[..., Any], alpha: float) -> None:
    queries, contexts, mask = make_contexts(9)
    contexts[:, 1] *= -1.0
    expected = by_loop(
        queries,
        contexts,
        mask,
        lambda q, neighbors: [(q @ c) ** alpha if q @ c > 0 else 0.0 for c in neighbors],
    )
    refined = alpha_query_expansion(queries, contexts, mask, alpha=alpha)
    np.testing.assert_allclose(refined, expected, rtol=0, atol=1e-6)


def test_softmax_expansion_equals_the_loop_step_by_step(make_contexts: Callable[..., Any]) -> None:
    queries, contexts, mask = make_contexts(9)
    steps = softmax_query_expansion(queries, contexts, mask, temperature=0.3, weight=0.5, n_steps=3)
    current = queries
    for step in range(3):
        current = by_loop(
            current, contexts, mask, lambda q, neighbors: 0.5 * softmax([q @ c / 0.3 for c in neighbors])
        )
        np.testing.assert_allclose(steps[:, step], current, rtol=0, atol=1e-6)


@pytest.mark.parametrize("control", CONTROLS)
def test_an_embedding_without_neighbors_stays(control: Control, make_contexts: Callable[..., Any]) -> None:
    queries, contexts, mask = make_contexts(4)
    refined = control(queries, contexts, mask)
    np.testing.assert_array_equal(refined[-1], queries[-1])
    assert (refined[0] != queries[0]).any()


@pytest.mark.parametrize("control", CONTROLS)
def test_what_is_hidden_does_not_matter(control: Control, make_contexts: Callable[..., Any]) -> None:
    queries, contexts, mask = make_contexts(6)
    filled = np.where(mask[..., None], contexts, np.float32(np.nan))
    np.testing.assert_array_equal(control(queries, filled, mask), control(queries, contexts, mask))

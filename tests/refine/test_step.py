"""Gates and level against a loop over single embeddings, and what is promised of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from benchmarks.refiner.controls import softmax_query_expansion  # noqa: E402
from vicinal.refine.context_refiner import ContextRefiner, Refinement  # noqa: E402
from vicinal.refine.errors import RefinementError  # noqa: E402
from vicinal.refine.neighbor_features import gate_features, level_features  # noqa: E402
from vicinal.refine.step import LEVEL_SHARPNESS, log_lengths, moved_rows, normalized_rows  # noqa: E402
from vicinal.refine.weights import parameter_shapes  # noqa: E402
from vicinal.training.refiner.config import RefinerConfig  # noqa: E402
from vicinal.training.refiner.network import ContextRefinerNetwork  # noqa: E402

Weights = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def inputs() -> tuple[np.ndarray, ...]:
    """Eight embeddings e^0, near and far neighbors with zeros where there is none, and the mask."""
    rng = np.random.default_rng(3)
    query, noise = rng.normal(size=(8, 24)), rng.normal(size=(8, 5, 24))
    mask = rng.random((8, 5)) < 0.7
    mask[:, 2] = True
    near = query[:, None] + rng.uniform(0.2, 2.0, size=(8, 5, 1)) * noise
    context = normalized_rows(near.astype(np.float32)) * mask[..., None]
    return normalized_rows(query.astype(np.float32)), context, mask


@pytest.fixture(scope="module")
def weights(gated: RefinerConfig) -> Weights:
    """Gates and a level that change much."""
    rng = np.random.default_rng(0)
    shapes = parameter_shapes(gated.architecture(24))
    drawn = {name: (0.3 * rng.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}
    scalars = {"expansion_scale": 5.0, "expansion_weight": 0.5, "level_scale": 0.8, "level_bias": 2.5}
    return drawn | {name: np.array([value], np.float32) for name, value in scalars.items()}


@pytest.fixture(scope="module")
def refiner(make_bundle: Any, gated: RefinerConfig) -> ContextRefiner:
    return ContextRefiner(make_bundle(gated))


def gated_step(
    weights: Weights, rows: np.ndarray, initial: np.ndarray, context: np.ndarray, mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(n, 1, d) embeddings after a step, and (n, k) attention."""
    architecture = RefinerConfig(form="gated", init="softmax_qe", temperature=0.2).architecture(24)
    moved, attention = moved_rows(
        np, weights, architecture, rows, initial, context, mask.astype(np.float32), together=False
    )
    return normalized_rows(moved), attention


def wide(weights: Weights) -> Weights:
    return {name: one.astype(np.float64) for name, one in weights.items()}


def hidden_by_loop(weights: Weights, name: str, features: np.ndarray) -> list[np.ndarray]:
    """What the small network makes of each of the neighbors that are there."""
    first = [np.maximum(one @ weights[f"{name}_in"] + weights[f"{name}_in_bias"], 0.0) for one in features]
    mean = sum(first) / len(first)
    matrix, bias = weights[f"{name}_out"], weights[f"{name}_out_bias"]
    return [np.maximum(np.concatenate([one, mean]) @ matrix + bias, 0.0) for one in first]


def features_of_one(current: np.ndarray, initial: np.ndarray, neighbors: np.ndarray) -> np.ndarray:
    """(k, 11); `test_neighbor_features.py` holds these to a loop."""
    every = np.ones((1, len(neighbors)))
    similarities = (neighbors @ current)[None], (neighbors @ initial)[None], (neighbors @ neighbors.T)[None]
    features: np.ndarray = gate_features(np, *similarities, every)[0]
    return features


def attention_by_loop(
    weights: Weights, current: np.ndarray, initial: np.ndarray, neighbors: np.ndarray
) -> tuple[np.ndarray, float]:
    """Attention to the neighbors of one embedding, and the weight of what it gathers."""
    hidden = hidden_by_loop(weights, "gate", features_of_one(current, initial, neighbors))
    scale, logit = weights["expansion_scale"][0], weights["gate_logit"]
    powers = [np.exp(scale * (current @ c) + h @ logit) for c, h in zip(neighbors, hidden, strict=True)]
    mean = sum(hidden) / len(hidden)
    return np.array(powers) / sum(powers), weights["expansion_weight"][0] + mean @ weights["gate_weight"]


def step_by_loop(weights: Weights, current: Any, initial: Any, context: Any, mask: Any) -> np.ndarray:
    """(n, d) embeddings after a step."""
    refined = []
    for e, start, neighbors, there in zip(current, initial, context, mask, strict=True):
        present = neighbors[there].astype(np.float64)
        attention, weight = attention_by_loop(wide(weights), e.astype(np.float64), start, present)
        moved = e + weight * sum(a * c for a, c in zip(attention, present, strict=True))
        refined.append(moved / np.linalg.norm(moved))
    return np.array(refined)


def length_by_loop(
    weights: Weights,
    embeddings: tuple[np.ndarray, np.ndarray],
    gathered: np.ndarray,
    neighbors: np.ndarray,
    radii: np.ndarray,
) -> float:
    """Length of one query."""
    initial, refined = embeddings
    m = gathered / np.linalg.norm(gathered)
    before, after = max(initial @ m, 0.02), max(refined @ m, 0.02)
    gates = features_of_one(refined, initial, neighbors)
    seen = level_features(
        np, gates[None], np.array([initial @ refined]), np.ones((1, len(neighbors))), radii[None]
    )
    hidden = hidden_by_loop(weights, "level", seen[0])
    z = weights["level_scale"][0] * np.log(before / after) + weights["level_bias"][0]
    z += sum(hidden) / len(hidden) @ weights["level_residual"]
    return float((1.0 + np.exp(-10.0 * z)) ** -0.1)


def gathered_by(attention: np.ndarray, context: np.ndarray) -> np.ndarray:
    return (attention[:, None] @ context)[:, 0]


def levels_of(
    weights: Weights, initial: Any, refined: Any, attention: Any, context: Any, mask: Any, radii: Any
) -> np.ndarray:
    steps, there = (initial[:, None], refined[:, None]), mask.astype(np.float32)
    return np.exp(log_lengths(np, weights, steps, attention, context, there, radii))


def lengths_by_loop(
    weights: Weights, initial: Any, refined: Any, attention: Any, context: Any, mask: Any, radii: Any
) -> np.ndarray:
    gathered = gathered_by(attention, context)
    return np.array(
        [
            length_by_loop(
                wide(weights),
                (initial[n].astype(np.float64), refined[n].astype(np.float64)),
                gathered[n],
                context[n, there].astype(np.float64),
                radii[n, there],
            )
            for n, there in enumerate(mask)
        ]
    )


def test_a_step_equals_the_loop(weights: Weights, inputs: Any) -> None:
    """Also where e^{t-1} is no longer e^0."""
    query, context, mask = inputs
    moved = normalized_rows(query + 0.5 * context[:, 0])
    refined, _ = gated_step(weights, moved[:, None], query[:, None], context, mask)
    expected = step_by_loop(weights, moved, query, context, mask)
    np.testing.assert_allclose(refined[:, 0], expected, rtol=0, atol=2e-6)


def test_the_loop_notices_gates_that_are_left_out(weights: Weights, inputs: Any) -> None:
    """Negative control."""
    query, context, mask = inputs
    plain = {**weights, "gate_logit": np.zeros_like(weights["gate_logit"])}
    refined, _ = gated_step(plain, query[:, None], query[:, None], context, mask)
    assert np.abs(refined[:, 0] - step_by_loop(weights, query, query, context, mask)).max() > 1e-3


def test_lengths_equal_the_loop(weights: Weights, inputs: Any, make_radii: Callable[..., Any]) -> None:
    query, context, mask = inputs
    refined, attention = gated_step(weights, query[:, None], query[:, None], context, mask)
    arguments = (weights, query, refined[:, 0], attention, context, mask, make_radii(len(query)))
    lengths, expected = levels_of(*arguments), lengths_by_loop(*arguments)
    assert np.ptp(expected) > 0.05
    np.testing.assert_allclose(lengths, expected, rtol=0, atol=2e-6)


def test_the_loop_notices_radii_of_other_neighbors(
    weights: Weights, inputs: Any, make_radii: Callable[..., Any]
) -> None:
    """Negative control."""
    query, context, mask = inputs
    refined, attention = gated_step(weights, query[:, None], query[:, None], context, mask)
    arguments = (weights, query, refined[:, 0], attention, context, mask)
    lengths = levels_of(*arguments, make_radii(len(query), seed=1))
    assert np.abs(lengths - lengths_by_loop(*arguments, make_radii(len(query)))).max() > 0.01


def test_gates_that_learned_nothing_are_softmax_query_expansion(make_contexts: Any) -> None:
    config = RefinerConfig(
        form="gated", init="softmax_qe", n_steps=3, temperature=0.2, expansion_weight=0.7, level=True
    )
    query, context, mask = make_contexts(6)
    with torch.inference_mode():
        steps, _ = ContextRefinerNetwork(24, config)(*map(torch.from_numpy, (query, context, mask)))
    expected = softmax_query_expansion(query, context, mask, temperature=0.2, weight=0.7, n_steps=3)
    np.testing.assert_allclose(steps, expected, rtol=0, atol=1e-6)


def plain_level(weights: Weights) -> Weights:
    """With gamma 1, no bias and no residual."""
    zeros = {name: np.zeros_like(weights[name]) for name in ("level_bias", "level_residual")}
    return {**weights, **zeros, "level_scale": np.ones(1, np.float32)}


def test_a_level_that_learned_nothing_takes_the_pull_back(
    weights: Weights, inputs: Any, make_radii: Callable[..., Any]
) -> None:
    """With its length the query is as similar to what was gathered as before, up to the softplus."""
    query, context, mask = inputs
    refined, attention = gated_step(
        {**weights, "expansion_weight": np.ones(1, np.float32)}, query[:, None], query[:, None], context, mask
    )
    lengths = levels_of(
        plain_level(weights), query, refined[:, 0], attention, context, mask, make_radii(len(query))
    )
    toward = normalized_rows(gathered_by(attention, context))
    before, after = np.vecdot(query, toward), np.vecdot(refined[:, 0] * lengths[:, None], toward)
    pulled = np.vecdot(refined[:, 0], toward)
    assert (pulled > before).all()
    assert (after <= before + 1e-6).all()
    assert (
        after >= before * (1.0 + (before / pulled) ** LEVEL_SHARPNESS) ** (-1.0 / LEVEL_SHARPNESS) - 1e-6
    ).all()
    assert (lengths < 1.0).all()


def attend(refiner: ContextRefiner, arrays: Any, part: Any = slice(None), **options: Any) -> Refinement:
    query, context, mask, radii = (one[part] for one in arrays)
    return refiner.attend(query, context, mask, radii=radii, **options)


@pytest.fixture(scope="module")
def crowd(make_contexts: Any, make_radii: Any) -> tuple[np.ndarray, ...]:
    """40 queries, the last one without neighbors."""
    return (*make_contexts(40), make_radii(40))


@settings(max_examples=25, deadline=None)
@given(rows=st.lists(st.integers(0, 39), min_size=1, max_size=40))
def test_a_query_gets_the_same_bits_alone_and_in_any_batch(
    refiner: ContextRefiner, crowd: Any, rows: list[int]
) -> None:
    together, alone = attend(refiner, crowd, rows), attend(refiner, crowd, rows[-1:])
    np.testing.assert_array_equal(together.steps[-1:], alone.steps)
    np.testing.assert_array_equal(together.attention[-1:], alone.attention)
    np.testing.assert_array_equal(together.lengths[-1:], alone.lengths)


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(5)))
def test_the_order_of_the_neighbors_does_not_matter(
    refiner: ContextRefiner, crowd: Any, order: list[int]
) -> None:
    straight = attend(refiner, crowd)
    turned = attend(refiner, (crowd[0], *(one[:, order] for one in crowd[1:])))
    np.testing.assert_allclose(turned.steps, straight.steps, rtol=0, atol=1e-6)
    np.testing.assert_allclose(turned.attention, straight.attention[..., order], rtol=0, atol=1e-6)
    np.testing.assert_allclose(turned.lengths, straight.lengths, rtol=0, atol=2e-6)


def test_lengths_are_at_most_one_and_one_without_neighbors(refiner: ContextRefiner, crowd: Any) -> None:
    refinement = attend(refiner, crowd)
    assert ((refinement.lengths > 0.0) & (refinement.lengths <= 1.0)).all()
    assert (refinement.lengths[:-1] < 1.0).any()
    np.testing.assert_array_equal(refinement.lengths[-1], 1.0)
    expected = refinement.embeddings * refinement.lengths[:, -1:]
    np.testing.assert_array_equal(refinement.queries, expected)


def test_without_radii_all_lengths_are_one(refiner: ContextRefiner, crowd: Any) -> None:
    refinement = refiner.attend(*crowd[:3])
    np.testing.assert_array_equal(refinement.lengths, np.ones((40, 2)))
    np.testing.assert_array_equal(refinement.steps, attend(refiner, crowd).steps)


@pytest.mark.parametrize("filling", [7.0, np.nan])
def test_radii_where_there_is_no_neighbor_do_not_matter(
    refiner: ContextRefiner, crowd: Any, filling: float
) -> None:
    query, context, mask, radii = crowd
    filled = np.where(mask[..., None], radii, np.float32(filling))
    actual = attend(refiner, (query, context, mask, filled))
    np.testing.assert_array_equal(actual.lengths, attend(refiner, crowd).lengths)


@pytest.mark.parametrize("shape", [(40, 5), (40, 5, 2), (39, 5, 3), (40, 4, 3)])
def test_radii_of_another_shape_are_refused(refiner: ContextRefiner, crowd: Any, shape: Any) -> None:
    with pytest.raises(
        RefinementError, match=r"expected radii \(40, 5, 3\), got .*: give each .* number 1, 4, 8$"
    ):
        refiner.attend(*crowd[:3], radii=np.zeros(shape))


def test_every_form_gives_the_lengths_that_torch_and_the_loop_give(
    every_level: RefinerConfig, make_network: Any, make_bundle: Any, inputs: Any, make_radii: Any
) -> None:
    network, radii = make_network(every_level), make_radii(len(inputs[0]))
    with torch.inference_mode():
        steps, attention, lengths = (one.numpy() for one in network(*map(torch.from_numpy, (*inputs, radii))))
    refinement = attend(ContextRefiner(make_bundle(every_level)), (*inputs, radii))
    np.testing.assert_allclose(refinement.steps, steps, rtol=0, atol=2e-6)
    np.testing.assert_allclose(refinement.lengths, lengths, rtol=0, atol=2e-6)
    query, context, mask = inputs
    for step, weights in enumerate(network.step_arrays()):
        by_loop = lengths_by_loop(weights, query, steps[:, step], attention[:, step], context, mask, radii)
        np.testing.assert_allclose(lengths[:, step], by_loop, rtol=0, atol=5e-6)

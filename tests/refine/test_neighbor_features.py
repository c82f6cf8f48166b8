"""Features of a neighborhood against loops over single neighbors, in numpy and in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vicinal.refine.neighbor_features import (
    N_GATE_FEATURES,
    N_LEVEL_FEATURES,
    gate_features,
    level_features,
    neighborhood_radii,
)

Arrays = dict[str, np.ndarray]


def neighborhoods(n: int = 7, k: int = 5, seed: int = 0) -> Arrays:
    """Similarities of random unit vectors; the last row has one neighbor, the others any number."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, k + 2, 6))
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    current, initial, context = vectors[:, 0], vectors[:, 1], vectors[:, 2:]
    mask = rng.random((n, k)) < 0.6
    mask[:, 1], mask[0], mask[-1] = True, True, np.arange(k) == 1
    made = {
        "current": np.vecdot(context, current[:, None]),
        "initial": np.vecdot(context, initial[:, None]),
        "gram": context @ context.transpose(0, 2, 1),
        "mask": mask,
        "turn": np.vecdot(current, initial),
        "radii": rng.uniform(-0.2, 1.0, size=(n, k, 3)),
    }
    return {name: one.astype(np.float32) for name, one in made.items()}


def gates_of(inputs: Arrays, xp: Any = np) -> Any:
    return gate_features(xp, *(inputs[name] for name in ("current", "initial", "gram", "mask")))


def level_of(inputs: Arrays, xp: Any = np) -> Any:
    return level_features(xp, gates_of(inputs, xp), inputs["turn"], inputs["mask"], inputs["radii"])


def gates_by_loop(current: Any, initial: Any, gram: Any, there: list[int]) -> dict[int, list[float]]:
    """What each neighbor of one embedding is described by."""
    found = {}
    firsts = [float(initial[i]) for i in there]
    mean = sum(firsts) / len(firsts)
    spread = np.sqrt(sum((one - mean) ** 2 for one in firsts) / len(firsts) + 1e-6)
    others = {j: [float(gram[j, i]) for i in there if i != j] for j in there}
    means = {j: sum(others[j]) / len(others[j]) if others[j] else 0.0 for j in there}
    for j in there:
        largest = max(others[j]) if others[j] else 0.0
        rank = sum(initial[i] > initial[j] for i in there)
        found[j] = [
            *(current[j], initial[j], means[j], largest, current[j] - means[j], rank / 8.0),
            *(mean, 3.0 * spread, max(firsts), sum(means.values()) / len(there), len(there) / 8.0),
        ]
    return found


def level_by_loop(inputs: Arrays, row: int) -> dict[int, list[float]]:
    """The features of the gates, and those of the level behind them."""
    current, mask = inputs["current"][row], inputs["mask"][row]
    there = [j for j in range(len(mask)) if mask[j]]
    gates = gates_by_loop(current, inputs["initial"][row], inputs["gram"][row], there)
    top = max(current[j] for j in there)
    return {
        j: [*gates[j], inputs["turn"][row], top, *(3.0 * (current[j] - r) for r in inputs["radii"][row, j])]
        for j in there
    }


def differences_from_the_loop(features: np.ndarray, inputs: Arrays) -> float:
    return max(
        float(np.abs(features[row, j] - expected[: features.shape[-1]]).max())
        for row in range(len(features))
        for j, expected in level_by_loop(inputs, row).items()
    )


def test_features_equal_the_loop() -> None:
    inputs = neighborhoods()
    gates, level = gates_of(inputs), level_of(inputs)
    assert (gates.shape[-1], level.shape[-1]) == (N_GATE_FEATURES, N_LEVEL_FEATURES)
    assert differences_from_the_loop(gates, inputs) < 2e-6
    assert differences_from_the_loop(level, inputs) < 2e-6


def test_the_loop_notices_a_neighbor_that_counts_among_its_own_others() -> None:
    """Negative control: the mean over all neighbors, the neighbor itself included."""
    inputs = neighborhoods()
    features, mask = gates_of(inputs), inputs["mask"]
    features[..., 2] = (inputs["gram"] * mask[:, None]).sum(2) / mask.sum(1)[:, None]
    assert differences_from_the_loop(features, inputs) > 0.05


def test_numpy_and_torch_give_the_same() -> None:
    torch = pytest.importorskip("torch")
    inputs = neighborhoods()
    tensors = {name: torch.from_numpy(one) for name, one in inputs.items()}
    np.testing.assert_allclose(level_of(tensors, torch), level_of(inputs), rtol=0, atol=1e-6)


def test_what_stands_where_there_is_no_neighbor_does_not_matter() -> None:
    inputs = neighborhoods()
    mask = inputs["mask"] > 0
    other = {name: one.copy() for name, one in inputs.items()}
    for name in ("current", "initial", "radii"):
        other[name][~mask] = 0.9
    other["gram"][~(mask[:, :, None] & mask[:, None, :])] = 0.9
    np.testing.assert_array_equal(level_of(other)[mask], level_of(inputs)[mask])


def radii_by_loop(similarities: np.ndarray) -> list[list[float]]:
    radii = []
    for row in similarities:
        known = [float(one) for one in row if np.isfinite(one)]
        radii.append([known[min(rank, len(known)) - 1] if known else 0.0 for rank in (1, 4, 8)])
    return radii


@pytest.mark.parametrize("n_listed", [1, 3, 8, 12])
def test_radii_equal_the_loop_with_every_number_of_neighbors(n_listed: int) -> None:
    rng = np.random.default_rng(n_listed)
    similarities = -np.sort(-rng.uniform(-1.0, 1.0, size=(14, n_listed)).astype(np.float32), axis=1)
    counts = np.minimum(np.arange(14), n_listed)
    similarities[np.arange(n_listed) >= counts[:, None]] = -np.inf
    radii = neighborhood_radii(similarities)
    assert radii.dtype == np.float32
    np.testing.assert_array_equal(radii, radii_by_loop(similarities))

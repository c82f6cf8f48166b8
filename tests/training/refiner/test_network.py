"""Refiner network against the reference vectors, torch's own attention, and a loop over single items."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks.refiner.controls import softmax_query_expansion  # noqa: E402
from vicinal.training.refiner.config import RefinerConfig  # noqa: E402
from vicinal.training.refiner.network import ContextRefinerNetwork  # noqa: E402

Arrays = dict[str, np.ndarray]


def refine_by_loop(network: ContextRefinerNetwork, query: Any, context: Any, mask: Any) -> np.ndarray:
    """(n, T, d): item by item, head by head, with every neighbor projected to a key and a value."""
    steps = [
        {name: array.astype(np.float64) for name, array in step.items()} for step in network.step_arrays()
    ]
    return np.stack([_refine_one(network, steps, *one) for one in zip(query, context, mask, strict=True)])


def _refine_one(network, steps, query, context, mask):
    architecture = network.architecture
    neighbors = [c.astype(np.float64) for c, there in zip(context, mask, strict=True) if there]
    if architecture.neighbors == "none":
        neighbors = [query.astype(np.float64)]
    current, results = query.astype(np.float64), []
    for step in steps:
        if neighbors:
            current = _one_step(architecture, step, current, neighbors)
        results.append(current)
    return results


def _one_step(architecture, step, current, neighbors):
    width = architecture.dim // architecture.n_heads
    projected = current @ step["query"] + step.get("query_bias", 0.0)
    heads, expansion = [], np.zeros(architecture.dim)
    for head in range(architecture.n_heads):
        own = projected[head * width : (head + 1) * width]
        keys = [step["key"][head] @ c for c in neighbors]
        values = [c @ step["value"][head] for c in neighbors]
        logits = [step["logit_scale"][0] * own @ key / math.sqrt(width) for key in keys]
        if architecture.expansion:
            pairs = zip(logits, neighbors, strict=True)
            logits = [logit + step["expansion_scale"][0] * current @ c for logit, c in pairs]
        powers = np.exp(logits)
        weights = powers / powers.sum()
        heads.append(sum(w * value for w, value in zip(weights, values, strict=True)))
        expansion += sum(w * c for w, c in zip(weights, neighbors, strict=True)) / architecture.n_heads
    added = np.concatenate(heads)
    if architecture.form != "bare":
        added = added @ step["output"] + step["output_bias"]
    refined = current + added + step.get("expansion_weight", [0.0])[0] * expansion
    if architecture.form == "attention_mlp":
        hidden = np.maximum(refined @ step["hidden"] + step["hidden_bias"], 0.0)
        refined = refined + hidden @ step["mlp"] + step["mlp_bias"]
    return refined / np.linalg.norm(refined)


def run(network: ContextRefinerNetwork, query: Any, context: Any, mask: Any) -> tuple[np.ndarray, np.ndarray]:
    with torch.inference_mode():
        outputs = network(*(torch.from_numpy(np.asarray(one)) for one in (query, context, mask)))
    return outputs[0].numpy(), outputs[1].numpy()


@pytest.fixture
def vectors(vectors_dir: Path) -> Arrays:
    return dict(np.load(vectors_dir / "refine.npz"))


@pytest.fixture
def reference(vectors: Arrays) -> ContextRefinerNetwork:
    """The bare refiner of the reference vectors, in float64."""
    config = RefinerConfig(n_steps=int(vectors["T"]), n_neighbors=int(vectors["k"]), n_heads=1, form="bare")
    network = ContextRefinerNetwork(16, config).double().eval()
    with torch.no_grad():
        for number, step in enumerate(network.steps):
            step.query.copy_(torch.from_numpy(vectors["WQ"][number].T))
            step.key[0].copy_(torch.from_numpy(vectors["WK"][number]))
            step.value[0].copy_(torch.from_numpy(vectors["WV"][number].T))
    return network


def _inputs(vectors: Arrays) -> tuple[Any, Any, Any]:
    query = torch.from_numpy(vectors["E0"])
    context = query[torch.from_numpy(vectors["neighbours"])]
    return query, context, torch.ones(context.shape[:2], dtype=torch.bool)


def test_bare_refiner_gives_the_reference_embeddings(
    reference: ContextRefinerNetwork, vectors: Arrays
) -> None:
    steps, attention = reference(*_inputs(vectors))
    tolerance = {"rtol": 1e-9, "atol": 1e-12}
    expected = vectors["alg1_normalised_E"].transpose(1, 0, 2)
    np.testing.assert_allclose(steps.detach().numpy(), expected, **tolerance)
    expected = vectors["alg1_normalised_attn"].transpose(1, 0, 2)
    np.testing.assert_allclose(attention.detach().numpy(), expected, **tolerance)


def test_bare_refiner_gives_the_reference_gradients(
    reference: ContextRefinerNetwork, vectors: Arrays
) -> None:
    """Keys and values that are never computed have the gradients of those that are."""
    losses = pytest.importorskip("vicinal.training.losses.published")
    params = dict(zip(("alpha", "beta", "base"), vectors.get("ms_params", (2.0, 50.0, 0.5)), strict=True))
    loss_function = losses.MultiSimilarityLoss(**params, mining_margin=None)
    loss = loss_function(reference(*_inputs(vectors))[0][:, -1], torch.from_numpy(vectors["labels"]))
    loss.backward()
    np.testing.assert_allclose(loss.item(), vectors["ms_loss_on_E_T"], rtol=1e-9)
    for number, step in enumerate(reference.steps):
        for gradient, name in (
            (step.query.grad.T, "dWQ"),
            (step.key.grad[0], "dWK"),
            (step.value.grad[0].T, "dWV"),
        ):
            np.testing.assert_allclose(gradient, vectors[name][number], rtol=1e-8, atol=1e-11)


def test_every_form_equals_the_loop(
    every_form: RefinerConfig, make_network: Callable[..., Any], make_contexts: Callable[..., Any]
) -> None:
    network, inputs = make_network(every_form), make_contexts(9)
    steps, _ = run(network, *inputs)
    np.testing.assert_allclose(steps, refine_by_loop(network, *inputs), rtol=0, atol=2e-6)


def test_the_loop_notices_a_head_that_attends_evenly(
    make_network: Callable[..., Any], make_contexts: Callable[..., Any], small: RefinerConfig
) -> None:
    """Negative control."""
    network, inputs = make_network(small), make_contexts(9)
    expected = refine_by_loop(network, *inputs)
    with torch.no_grad():
        network.steps[1].key[2] = 0.0
    assert np.abs(run(network, *inputs)[0] - expected).max() > 1e-3


@pytest.mark.parametrize("form", ["bare", "attention", "attention_mlp"])
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_softmax_qe_starts_as_the_control(
    form: Any, weight: float, make_contexts: Callable[..., Any]
) -> None:
    options = {"init": "softmax_qe", "temperature": 0.2, "expansion_weight": weight}
    network = ContextRefinerNetwork(24, RefinerConfig(n_steps=3, n_heads=4, form=form, **options)).eval()
    query, context, mask = make_contexts(6)
    expected = softmax_query_expansion(query, context, mask, temperature=0.2, weight=weight, n_steps=3)
    np.testing.assert_allclose(run(network, query, context, mask)[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", [{"zero_init_output": True}, {"init": "softmax_qe", "temperature": 0.2}])
@pytest.mark.parametrize("form", ["bare", "attention", "attention_mlp"])
def test_what_starts_at_nothing_still_learns(
    form: Any, options: dict[str, Any], make_contexts: Callable[..., Any]
) -> None:
    """After two steps every parameter has had a gradient."""
    network = ContextRefinerNetwork(24, RefinerConfig(n_steps=2, n_heads=4, form=form, **options))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    query, context, _ = (torch.from_numpy(one) for one in make_contexts(6))
    moved = {name: False for name, one in network.named_parameters() if one.requires_grad}
    for _ in range(3):
        optimizer.zero_grad()
        steps, _ = network(query, context, torch.ones(6, 5, dtype=torch.bool))
        (steps[:, -1] @ steps[0, -1].detach().flip(0)).sum().backward()
        for name, parameter in network.named_parameters():
            moved[name] = moved.get(name, False) or bool(parameter.grad is not None and parameter.grad.any())
        optimizer.step()
    assert [name for name, one in moved.items() if not one and name != "log_temperature"] == []


def test_neighbor_dropout_hides_neighbors_but_never_all() -> None:
    network = ContextRefinerNetwork(24, RefinerConfig(neighbor_dropout=0.7)).train()
    some = torch.arange(8).expand(400, 8) < torch.arange(400)[:, None] % 9
    seen = network._hide_neighbors(some)
    assert not (seen & ~some).any()
    assert (seen.any(dim=1) == some.any(dim=1)).all()
    every = network._hide_neighbors(torch.ones(400, 8, dtype=torch.bool))
    assert every.float().mean().item() == pytest.approx(0.3 + 0.7**8, abs=0.04)

"""Optimizers, groups of parameters, and learning rates over the steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

torch = pytest.importorskip("torch")
pytest.importorskip("timm")

from torch import nn  # noqa: E402

from vicinal.training.backbones.backbone import (  # noqa: E402  # noqa: E402
    BackboneConfig,
    build_network,
)
from vicinal.training.optimization import (  # noqa: E402
    OptimizerConfig,
    build_optimizer,
    build_schedule,
    clip_gradients,
    parameter_groups,
)


class Proxies(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proxies = nn.Parameter(torch.ones(3, 8))


def _config(**fields: Any) -> OptimizerConfig:
    return OptimizerConfig.model_validate({"learning_rate": 2.0, "steps": 20, "warmup_steps": 4, **fields})


def _rates(config: OptimizerConfig) -> list[float]:
    """Learning rate of each step, as a share of the highest."""
    weight = nn.Parameter(torch.zeros(1))
    optimizer = build_optimizer([{"params": [weight], "lr": config.learning_rate}], config)
    schedule = build_schedule(optimizer, config)
    rates = []
    for _ in range(config.steps):
        rates.append(optimizer.param_groups[0]["lr"] / config.learning_rate)
        optimizer.step()
        schedule.step()
    return rates


def _cosine(step: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * step / 16))


AFTER_WARMUP: dict[str, tuple[Any, Callable[[int], float]]] = {
    "cosine": ("cosine", lambda step: _cosine(step - 4)),
    "constant": ("constant", lambda _: 1.0),
    "step": ({"kind": "step", "every": 5, "factor": 0.5}, lambda step: 0.5 ** ((step - 4) // 5)),
    "multistep": (
        {"kind": "multistep", "milestones": [8, 15], "factor": 0.1},
        lambda step: 0.1 ** ((step >= 8) + (step >= 15)),
    ),
}


@pytest.mark.parametrize("kind", AFTER_WARMUP)
def test_rate_rises_in_the_warm_up_and_then_follows_its_formula(kind: str) -> None:
    schedule, formula = AFTER_WARMUP[kind]
    expected = [(step + 1) / 5 for step in range(4)] + [formula(step) for step in range(4, 20)]
    assert _rates(_config(schedule=schedule)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schedule": "one_cycle"}, "one_cycle schedule has a rise of its own: leave warmup_steps out"),
        ({"schedule": {"kind": "multistep", "milestones": [3, 9]}}, "milestone 3 lies in the warm-up of 4"),
        ({"schedule": {"kind": "multistep", "milestones": [9, 9]}}, "must rise"),
        ({"schedule": "plateau"}, "does not match any of the expected tags"),
        ({"name": "lion"}, "'adamw', 'adam', 'sgd' or 'rmsprop'"),
        ({"learning_rate": float("nan")}, "greater than 0|finite"),
        ({"arguments": {"betas": "a"}}, "'adamw': betas is 'a': Input should be a valid tuple"),
        ({"name": "sgd", "arguments": {"momentum": "x"}}, "momentum is 'x': .*valid number"),
        ({"arguments": {"eps": -1.0}}, "change optimizer.arguments"),
    ],
)
def test_rates_that_cannot_be_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _config(**fields)


def test_every_parameter_is_in_one_group_with_its_rate_and_decay(tiny_backbone: BackboneConfig) -> None:
    network = build_network(tiny_backbone)
    proxies, projector = Proxies(), nn.Linear(8, 8)
    factors = {"head_learning_rate_factor": 3.0, "loss_learning_rate_factor": 10.0}
    groups = parameter_groups(network, projector, proxies, _config(weight_decay=0.1, **factors))
    found = {
        id(parameter): (group["lr"], group["weight_decay"])
        for group in groups
        for parameter in group["params"]
    }
    modules = (network, projector, proxies)
    assert sum(len(group["params"]) for group in groups) == len(found)
    assert found.keys() == {id(p) for module in modules for p in module.parameters()}
    expected = {
        network.trunk.conv1.weight: (2.0, 0.1),
        network.trunk.bn1.weight: (2.0, 0.0),
        network.head.weight: (6.0, 0.1),
        network.pooling.power: (6.0, 0.0),
        projector.bias: (6.0, 0.0),
        proxies.proxies: (20.0, 0.0),
    }
    assert {name: found[id(name)] for name in expected} == expected


@pytest.mark.parametrize(("longest", "length"), [(1.0, 1.0), (10.0, 5.0), (0.0, 5.0)])
def test_gradients_are_clipped_over_all_groups(longest: float, length: float) -> None:
    weights = [nn.Parameter(torch.zeros(1)) for _ in range(2)]
    for weight, gradient in zip(weights, (3.0, 4.0), strict=True):
        weight.grad = torch.tensor([gradient])
    clip_gradients([{"params": [weight]} for weight in weights], longest)
    actual = torch.stack([weight.grad for weight in weights]).norm().item()
    assert actual == pytest.approx(length)

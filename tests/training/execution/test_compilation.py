"""Compiled passes: the same gradients and checkpoints, and one line where there is no compiler."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")
pytest.importorskip("pytorch_metric_learning")

from torch import nn  # noqa: E402

from tests.programs import absence  # noqa: E402
from vicinal.training import trainer  # noqa: E402
from vicinal.training.backbones.backbone import build_network  # noqa: E402
from vicinal.training.config import TrainingConfig  # noqa: E402
from vicinal.training.execution import device as execution_device  # noqa: E402
from vicinal.training.execution.device import compiled  # noqa: E402
from vicinal.training.losses.config import LossConfig  # noqa: E402
from vicinal.training.losses.registry import build_loss  # noqa: E402
from vicinal.training.multistage import multistage_backward  # noqa: E402
from vicinal.training.trainer import Trainer  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_picture")]

MakeConfig = Callable[..., TrainingConfig]
NEEDS_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason=absence("g++"))


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Compiles by running what was traced as it is, which needs no compiler; names of what was compiled."""
    names: list[str] = []

    def run(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        names.append(type(graph).__name__)
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(execution_device, "_BACKEND", run)
    monkeypatch.setattr(execution_device, "_OPTIONS", None)
    monkeypatch.setattr(trainer, "require_compiler", lambda _: None)
    return names


def _weights(folder: Path) -> dict[str, Any]:
    weights: dict[str, Any] = torch.load(folder / "checkpoint.pt")["state"]["network"]
    return weights


def test_a_compiled_run_trains_the_same_weights_under_the_same_names(
    make_training_config: MakeConfig, traced: list[str], tmp_path: Path
) -> None:
    config = make_training_config(optimizer={"steps": 3})
    expected = Trainer(config).run().network.state_dict()
    assert traced == []
    result = Trainer(config.model_copy(update={"compile": True}), folder=tmp_path).run()
    assert traced
    actual = result.network.state_dict()
    assert list(actual) == list(_weights(tmp_path)) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=1e-5, atol=1e-5)
    build_network(config.backbone).load_state_dict(actual)


def _gradients(network: nn.Module, trained: nn.Module) -> torch.Tensor:
    """Of a batch of twelve in chunks of four, with dropout from a seed."""
    generator = torch.Generator().manual_seed(1)
    images, labels = torch.randn(12, 3, 8, 8, generator=generator), torch.arange(3).repeat_interleave(4)
    torch.manual_seed(7)
    loss = build_loss(LossConfig(name="multi_similarity"))
    multistage_backward(trained, images, labels, loss, chunk_size=4)
    return torch.cat([parameter.grad.flatten() for parameter in network.parameters()])


@NEEDS_COMPILER
def test_compiled_passes_give_the_gradients_of_the_network_with_dropout_on() -> None:
    """In both passes over a chunk the same items are dropped, as without compilation."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.Dropout(0.4), nn.ReLU(), nn.Linear(16, 8))
    plain = copy.deepcopy(network)
    torch._dynamo.reset()
    expected, actual = _gradients(plain, plain), _gradients(network, compiled(network))
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6)

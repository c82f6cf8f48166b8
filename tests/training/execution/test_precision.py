"""Precision: which floats are chosen, and that float16 trains with a scaled loss."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from vicinal.models.errors import ConfigError  # noqa: E402
from vicinal.training.config import TrainingConfig  # noqa: E402
from vicinal.training.execution import device as execution_device  # noqa: E402
from vicinal.training.execution.device import MixedPrecision, choose_device  # noqa: E402
from vicinal.training.optimization import OptimizerConfig  # noqa: E402
from vicinal.training.trainer import Trainer  # noqa: E402

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("device", "in_hardware", "expected"),
    [
        (CPU, False, torch.float32),
        (GPU, True, torch.bfloat16),
        (GPU, False, torch.float16),
    ],
)
def test_auto_takes_what_runs_in_hardware(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, in_hardware: bool, expected: torch.dtype
) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda **_: in_hardware)
    assert execution_device._choose_dtype("auto", device) == expected


def _change_of_one_step(config: TrainingConfig) -> torch.Tensor:
    """How one step of plain gradient descent moves all weights, against a step of next to nothing."""
    optimizer = {"name": "sgd", "arguments": {"momentum": 0.0}, "steps": 1, "weight_decay": 0, "clip_norm": 0}
    ends = []
    for rate in (0.1, 1e-20):
        one_step = OptimizerConfig.model_validate({**optimizer, "learning_rate": rate})
        trainer = Trainer(config.model_copy(update={"optimizer": one_step}))
        # From the usual 65,536 the first steps overflow until the scale has come down.
        trainer.precision.scaler = torch.amp.GradScaler(
            "cpu", init_scale=256.0, enabled=trainer.precision.scaler.is_enabled()
        )
        ends.append(list(trainer.run().network.parameters()))
    return torch.cat([(moved - start).detach().flatten() for moved, start in zip(*ends, strict=True)])


@pytest.mark.slow
@pytest.mark.parametrize("chunk_size", [None, 8])
def test_shorter_floats_give_about_the_gradient_of_float32(
    make_training_config: Callable[..., TrainingConfig], chunk_size: int | None
) -> None:
    """A scale that was not taken off again would make it 256 times as long."""
    sampler = {"batch_size": 16, "per_class": 4, "chunk_size": chunk_size}
    short, full = (
        _change_of_one_step(make_training_config(precision=one, sampler=sampler, loss="proxy_anchor"))
        for one in ("float16", "float32")
    )
    assert (short - full).norm() < 0.25 * full.norm()


@pytest.mark.slow
def test_a_float16_step_that_overflows_is_skipped_with_its_schedule(
    make_training_config: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scale that overflows at once: weights stay, and are finite."""
    config = make_training_config(precision="float16", optimizer={"steps": 2})
    trainer = Trainer(config)
    trainer.precision.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    before = Trainer(make_training_config(optimizer={"steps": 1, "learning_rate": 1e-12})).run().network
    after = trainer.run().network
    torch.testing.assert_close(after.head.weight, before.head.weight, rtol=0, atol=1e-6)


def test_bfloat16_is_refused_on_a_processor() -> None:
    with pytest.raises(ConfigError, match="bfloat16 is trained in on a GPU alone"):
        MixedPrecision("bfloat16", CPU)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(ConfigError, match="'cuda:2' was asked for, but torch sees 2 GPUs"):
        choose_device("cuda:2")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tpu", "unknown device 'tpu': use auto, cpu, cuda"),
        ("", "unknown device"),
        ("mps", "cannot be trained on"),
        ("cuda:99", r"device 'cuda:99' was asked for, but torch sees \d+ GPUs"),
    ],
)
def test_device_that_is_not_there_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose_device(name)

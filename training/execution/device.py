"""Device of a run: its floats, in which small gradients survive, random states (torch)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import torch
from torch import Tensor

from vicinal.models.errors import ConfigError

Precision = Literal["auto", "float32", "bfloat16", "float16"]


class MixedPrecision:
    """Floats of the forward passes, and the scaling of the loss that float16 needs.

    `auto` takes bfloat16 on a GPU that has it in hardware, else float16, and float32 on a CPU.
    """

    def __init__(self, wanted: Precision, device: torch.device) -> None:
        self.device = device
        self.dtype = _choose_dtype(wanted, device)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype == torch.float16)

    def autocast(self) -> torch.autocast:
        """Context of a forward pass."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)


def choose_device(name: str) -> torch.device:
    """The torch device of `auto`, the GPU where there is one, `cpu`, `cuda` or `cuda:<number>`."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"unknown device '{name}': use auto, cpu, cuda or cuda:<number>") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device '{name}' cannot be trained on: use auto, cpu, cuda or cuda:<number>")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device '{device}' was asked for, but torch sees {torch.cuda.device_count()} GPUs: "
            "use cpu, or install a torch with CUDA"
        )
    return device


def _choose_dtype(wanted: Precision, device: torch.device) -> torch.dtype:
    if wanted == "bfloat16" and device.type == "cpu":
        # Some gradients of torch's own are wrong in it there, and most networks slower.
        raise ConfigError("bfloat16 is trained in on a GPU alone: set precision to auto or float32")
    if wanted != "auto":
        return cast("torch.dtype", getattr(torch, wanted))
    if device.type == "cpu":
        return torch.float32
    # Emulated products were about ten times slower than float32.
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states by kind of device."""
    states = {"cpu": torch.get_rng_state()}
    return states | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else states


def set_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Bring the generators to these states."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)

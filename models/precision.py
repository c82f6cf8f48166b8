"""Mixed precision: in which floats the network runs, and how small gradients survive it (torch)."""

from __future__ import annotations

from typing import Literal

import torch

from models.errors import ConfigError

__all__ = ["MixedPrecision", "Precision", "choose_device", "supports_bfloat16"]

Precision = Literal["auto", "float32", "bfloat16", "float16"]


class MixedPrecision:
    """Floats of the forward passes, and the scaling of the loss that float16 needs.

    Args:
        wanted: `auto` takes bfloat16 where it runs in hardware, else float16 on a GPU and float32 on a CPU.
        device: Where the network runs.

    Attributes:
        dtype: What autocast computes in.
        scaler: Scales the loss under float16; does nothing otherwise.
    """

    def __init__(self, wanted: Precision, device: torch.device) -> None:
        self.device = device
        self.dtype = _choose_dtype(wanted, device)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype == torch.float16)

    def autocast(self) -> torch.autocast:
        """Context of a forward pass."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)


def choose_device(name: str) -> torch.device:
    """The torch device of a name; `auto` is the GPU where there is one.

    Raises:
        ConfigError: There is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"unknown device '{name}': use auto, cpu, cuda or cuda:<number>") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device '{name}' cannot be trained on: use auto, cpu, cuda or cuda:<number>")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device '{name}' was asked for, but torch sees {torch.cuda.device_count()} GPUs: "
            "use cpu, or install a torch with CUDA"
        )
    return device


def supports_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products run in hardware; emulated ones were about ten times slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    probe = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return bool(probe())


def _choose_dtype(wanted: Precision, device: torch.device) -> torch.dtype:
    if wanted == "auto":
        if supports_bfloat16(device):
            return torch.bfloat16
        return torch.float16 if device.type == "cuda" else torch.float32
    dtype: torch.dtype = getattr(torch, wanted)
    return dtype

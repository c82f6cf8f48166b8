"""Device of a run: its floats, in which small gradients survive, compiled passes, random states (torch)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from vicinal.models.errors import ConfigError

Precision = Literal["auto", "float32", "bfloat16", "float16"]
_BACKEND = "inductor"
# Two passes over a chunk must draw the same dropout, with and without a graph: torch's own generators do.
_OPTIONS: dict[str, Any] = {"fallback_random": True}


class MixedPrecision:
    """Floats of the forward passes, and the scaling of the loss that float16 needs.

    `auto` takes bfloat16 where it runs in hardware, else float16 on a GPU and float32 on a CPU; `fit` leaves
    bfloat16 again where it would be slower.
    """

    def __init__(self, wanted: Precision, device: torch.device) -> None:
        self.wanted = wanted
        self.device = device
        self.dtype = _choose_dtype(wanted, device)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype == torch.float16)

    def fit(self, network: nn.Module, input_size: int) -> str:
        """Leave bfloat16 on a CPU where it is slower than float32, or torch computes wrong gradients in it.

        Slower: training the last stages of EfficientNet-Lite0, of depthwise convolutions, took 1.5 to 1.9
        times as long in bfloat16, and a head alone gains nothing. Wrong, seen with torch 2.15 (oneDNN): the
        weights of a strided convolution over a map of one pixel get gradients from memory that nobody wrote.
        Gives what was changed, for people; empty if nothing.
        """
        if self.device.type != "cpu" or self.dtype != torch.bfloat16:
            return ""
        if self.wanted == "auto" and not _gains_by_bfloat16(network):
            self.dtype = torch.float32
            return ""
        name = _strided_over_one_pixel(network, input_size)
        if not name:
            return ""
        reason = f"torch computes wrong bfloat16 gradients on a CPU for '{name}', whose input is one pixel"
        if self.wanted == "bfloat16":
            raise ConfigError(f"{reason}: raise preprocessing.input_size, or set precision to 'float32'")
        self.dtype = torch.float32
        return f"{reason}: training in float32"

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


def supports_bfloat16(device: torch.device) -> bool:
    """Tell if bfloat16 products run in hardware; emulated ones were about ten times slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    probe = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return bool(probe())


def _gains_by_bfloat16(network: nn.Module) -> bool:
    learning = [
        one for one in network.modules() if any(p.requires_grad for p in one.parameters(recurse=False))
    ]
    convolutions = [layer for layer in learning if isinstance(layer, nn.Conv2d)]
    if any(layer.groups == layer.in_channels > 1 for layer in convolutions):
        return False
    return bool(convolutions) or sum(isinstance(layer, nn.Linear) for layer in learning) > 1


def _strided_over_one_pixel(network: nn.Module, input_size: int) -> str:
    """Name of a strided convolution that sees one pixel, or nothing."""
    found: list[str] = []

    def note(name: str, layer: nn.Conv2d, images: Tensor) -> None:
        if images.shape[-1] == 1 and layer.stride[-1] > 1 and layer.kernel_size[-1] > 1:
            found.append(name)

    hooks = [
        layer.register_forward_pre_hook(lambda layer, inputs, name=name: note(name, layer, inputs[0]))
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Conv2d)
    ]
    with torch.inference_mode():
        network.eval()(torch.zeros(1, 3, input_size, input_size))
    for hook in hooks:
        hook.remove()
    return found[0] if found else ""


def _choose_dtype(wanted: Precision, device: torch.device) -> torch.dtype:
    if wanted == "auto":
        if supports_bfloat16(device):
            return torch.bfloat16
        return torch.float16 if device.type == "cuda" else torch.float32
    dtype: torch.dtype = getattr(torch, wanted)
    return dtype


def compiled(network: nn.Module) -> nn.Module:
    """The network with compiled passes, to train by; its parameters and their names are the network's own."""
    return cast("nn.Module", torch.compile(network, backend=_BACKEND, options=_OPTIONS))


def require_compiler(device: torch.device) -> None:
    """Refuse to compile where it cannot work, by compiling next to nothing."""
    # What an earlier process compiled would need no compiler.
    options: dict[str, Any] = {"force_disable_caches": True}
    logger = logging.getLogger("torch._inductor")
    level = logger.level
    # It would say where it left its files.
    logger.setLevel(logging.CRITICAL)
    try:
        torch.compile(torch.sin, backend=_BACKEND, options=options)(torch.ones(2, device=device))
    except Exception as error:  # dynamo, inductor and Triton raise what they like
        needed = "a C++ compiler (g++)" if device.type == "cpu" else "Triton and a C compiler (gcc)"
        reason = str(error).strip().splitlines()[0][:200]
        raise ConfigError(
            f"torch.compile does not work on {device} here, it needs {needed}: install that, "
            f"or set compile to false ({reason})"
        ) from error
    finally:
        logger.setLevel(level)


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states by kind of device."""
    states = {"cpu": torch.get_rng_state()}
    return states | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else states


def set_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Bring the generators to these states."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)

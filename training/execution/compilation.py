"""Compilation of a network's forward and backward passes by `torch.compile` (torch)."""

from __future__ import annotations

import logging
from typing import Any, cast

import torch
from torch import nn

from vicinal.models.errors import ConfigError

_BACKEND = "inductor"
# Two passes over a chunk must draw the same dropout, with and without a graph: torch's own generators do.
_OPTIONS: dict[str, Any] = {"fallback_random": True}


def compiled(network: nn.Module) -> nn.Module:
    """The network with compiled passes, to train by.

    Its parameters are the network's own. Names of what is saved come from the network, which stays as it was.
    """
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

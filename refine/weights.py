"""Weights of a refiner in one flat file, which both numpy and `refiner.onnx` read.

The file is a numpy array (n,) float32: step after step, and in each step the arrays in the order of
`parameter_shapes`. A matrix maps row vectors: `x @ W`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import FloatArray
from vicinal.models.refiner_manifest import RefinerArchitecture
from vicinal.refine.errors import RefinementError
from vicinal.refine.neighbor_features import N_GATE_FEATURES, N_LEVEL_FEATURES

Weights = Mapping[str, FloatArray]


def parameter_shapes(architecture: RefinerArchitecture) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the arrays of one step, with h heads of width d/h.

    `key` maps a head's query back to the space of the embeddings, and `value` maps what a head has
    gathered there to the head's part of the output; see `refine.step`. `logit_scale`,
    `expansion_scale` and `expansion_weight` are scalars. `refine.step` says what gates and level are.
    """
    d, heads, units = architecture.dim, architecture.n_heads, architecture.gate_width
    if architecture.form == "gated":
        shapes: dict[str, tuple[int, ...]] = {
            "expansion_scale": (1,),
            "expansion_weight": (1,),
            **_network_shapes("gate", N_GATE_FEATURES, units),
            "gate_logit": (units,),
            "gate_weight": (units,),
        }
    else:
        width = d // heads
        shapes = {"query": (d, d), "key": (heads, width, d), "value": (heads, d, width), "logit_scale": (1,)}
        if architecture.form != "bare":
            shapes |= {"query_bias": (d,), "output": (d, d), "output_bias": (d,)}
        if architecture.form == "attention_mlp":
            shapes |= {"hidden": (d, d), "hidden_bias": (d,), "mlp": (d, d), "mlp_bias": (d,)}
        if architecture.expansion:
            shapes |= {"expansion_scale": (1,), "expansion_weight": (1,)}
    if architecture.level:
        network = _network_shapes("level", N_LEVEL_FEATURES, units)
        shapes |= {"level_scale": (1,), "level_bias": (1,), **network, "level_residual": (units,)}
    return shapes


def _network_shapes(name: str, n_features: int, width: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{name}_in": (n_features, width),
        f"{name}_in_bias": (width,),
        f"{name}_out": (2 * width, width),
        f"{name}_out_bias": (width,),
    }


def save_weights(path: Path, steps: Sequence[Weights], architecture: RefinerArchitecture) -> None:
    """Write the arrays of all T steps; see `parameter_shapes`."""
    names = parameter_shapes(architecture)
    flat = [np.asarray(step[name], dtype=np.float32).ravel() for step in steps for name in names]
    np.save(path, np.concatenate(flat))


def load_weights(path: Path, architecture: RefinerArchitecture) -> list[Weights]:
    """Read the arrays of all steps."""
    shapes = parameter_shapes(architecture)
    expected = architecture.n_steps * sum(math.prod(shape) for shape in shapes.values())
    try:
        flat = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise RefinementError(f"'{path}' holds no weights: copy the bundle again") from error
    if flat.shape != (expected,) or flat.dtype != np.float32:
        raise RefinementError(
            f"'{path}' holds {flat.size:,} numbers, this refiner has {expected:,}: ",
            advise("train it again with {train_refiner()}"),
        )
    return [_unpack(step, shapes) for step in np.split(flat, architecture.n_steps)]


def _unpack(step: FloatArray, shapes: Mapping[str, tuple[int, ...]]) -> Weights:
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = np.split(step, ends[:-1])
    return {
        name: np.ascontiguousarray(part).reshape(shape)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }

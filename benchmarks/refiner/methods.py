"""The methods of the refiner study: untrained controls with their settings, and recipes of refiners."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.refiner.controls import alpha_query_expansion, mean_of_neighbors, softmax_query_expansion
from benchmarks.refiner.searches import Embeddings, Method
from vicinal.refine.context_refiner import Neighbors

__all__ = ["LADDER", "SWEPT_NEIGHBORS", "SWEPT_STEPS", "BASE", "control_grid", "gated", "paper"]

SWEPT_NEIGHBORS = (2, 4, 8, 16, 32)
SWEPT_STEPS = (1, 2, 4, 8)
_CONTROL_NEIGHBORS = (2, 4, 8, 16, 32)
_TEMPERATURES = (0.05, 0.1, 0.2, 1.0)
_WEIGHTS = (0.5, 1.0, 2.0, 4.0)
_ALPHAS = (1.0, 3.0, 6.0)
_MEAN_WEIGHTS = (1.0, 4.0)

BASE = Method(lambda rows, _neighbors, _as_queries: rows, 1)


def control_grid() -> dict[str, dict[str, Method]]:
    """Settings of each control, by the control's name."""
    grid: dict[str, dict[str, Method]] = {"mean of neighbors": {}, "alpha-QE": {}, "softmax-QE": {}}
    for k in _CONTROL_NEIGHBORS:
        for weight in _MEAN_WEIGHTS:
            grid["mean of neighbors"][f"k {k}, weight {weight}"] = _mean(k, weight)
        for alpha in _ALPHAS:
            grid["alpha-QE"][f"k {k}, alpha {alpha}"] = _alpha(k, alpha)
        for temperature in _TEMPERATURES:
            for weight in _WEIGHTS:
                name = f"k {k}, temperature {temperature}, weight {weight}"
                grid["softmax-QE"][name] = _softmax(k, temperature, weight)
    return grid


def _mean(k: int, weight: float) -> Method:
    def refine(rows: Embeddings, neighbors: Neighbors, _as_queries: bool) -> Embeddings:
        return mean_of_neighbors(rows, neighbors.contexts, neighbors.mask, weight=weight)

    return Method(refine, k)


def _alpha(k: int, alpha: float) -> Method:
    def refine(rows: Embeddings, neighbors: Neighbors, _as_queries: bool) -> Embeddings:
        return alpha_query_expansion(rows, neighbors.contexts, neighbors.mask, alpha=alpha)

    return Method(refine, k)


def _softmax(k: int, temperature: float, weight: float) -> Method:
    def refine(rows: Embeddings, neighbors: Neighbors, _as_queries: bool) -> Embeddings:
        steps = softmax_query_expansion(
            rows, neighbors.contexts, neighbors.mask, temperature=temperature, weight=weight
        )
        return np.ascontiguousarray(steps[:, -1])

    return Method(refine, k)


def gated(k: int, temperature: float, weight: float, **changes: Any) -> dict[str, Any]:
    """Recipe fields of a gated refiner with a level that starts as softmax query expansion.

    Args:
        k: Neighbors.
        temperature: Of the expansion that it starts as.
        weight: Of the same.
        changes: Sections of the recipe, whose keys are set anew.
    """
    recipe: dict[str, Any] = {
        "objective": "search",
        "refiner": {
            "form": "gated",
            "n_steps": 1,
            "n_neighbors": k,
            "init": "softmax_qe",
            "temperature": temperature,
            "expansion_weight": weight,
            "level": True,
        },
        "optimizer": {"learning_rate": 2e-3, "steps": 400, "warmup_steps": 30},
        "validation": {"every": 100, "draws": 2},
    }
    return _changed(recipe, changes)


def paper(**changes: Any) -> dict[str, Any]:
    """Recipe fields of a refiner as its paper has it: 8 steps of 8 heads, 8 neighbors, multi-similarity."""
    recipe: dict[str, Any] = {
        "objective": "batch",
        "loss": {"name": "multi_similarity"},
        "batches": {"batch_size": 80, "per_class": 4},
        "refiner": {"form": "attention_mlp", "n_steps": 8, "n_neighbors": 8, "n_heads": 8},
        "optimizer": {"learning_rate": 3e-4, "steps": 600, "warmup_steps": 50},
        "validation": {"every": 150, "draws": 2},
    }
    return _changed(recipe, changes)


def _changed(recipe: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    for section, fields in changes.items():
        recipe[section] = {**recipe.get(section, {}), **fields} if isinstance(fields, dict) else fields
    return recipe


_SOFTMAX = {"init": "softmax_qe", "temperature": 0.2, "n_steps": 1, "n_heads": 1}
# What was tried on the paper's refiner, alone and together: recipe changes, and embeddings to train on.
LADDER: dict[str, tuple[dict[str, Any], str]] = {
    "as the paper": ({}, "seen"),
    "attention without neighbors": ({"refiner": {"neighbors": "none"}}, "seen"),
    "zero-initialized outputs": ({"refiner": {"zero_init_output": True}}, "seen"),
    "starts as softmax-QE": ({"refiner": _SOFTMAX}, "seen"),
    "noise": ({"batches": {"noise": 0.3}}, "seen"),
    "unseen classes": ({}, "unseen"),
    "absent queries": ({"absent": {"share": 0.3}}, "seen"),
    "all of these": (
        {"refiner": _SOFTMAX, "batches": {"noise": 0.3}, "absent": {"share": 0.3}},
        "unseen",
    ),
}

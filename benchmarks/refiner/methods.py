"""Untrained methods of the refiner study: the base as it is, and controls with their settings."""

from __future__ import annotations

import numpy as np

from benchmarks.refiner.controls import alpha_query_expansion, mean_of_neighbors, softmax_query_expansion
from benchmarks.refiner.searches import Embeddings, Method
from vicinal.refine.context_refiner import Neighbors

__all__ = ["BASE", "CONTROLS", "control_grid"]

CONTROLS = ("mean of neighbors", "alpha-QE", "softmax-QE")
_CONTROL_NEIGHBORS = (2, 4, 8, 16, 32)
_TEMPERATURES = (0.05, 0.1, 0.2, 1.0)
_WEIGHTS = (0.5, 1.0, 2.0, 4.0)
_ALPHAS = (1.0, 3.0, 6.0)
_MEAN_WEIGHTS = (1.0, 4.0)

BASE = Method(lambda rows, _neighbors, _as_queries: rows, 1)


def control_grid() -> dict[str, dict[str, Method]]:
    """Settings of each control, by the control's name."""
    grid: dict[str, dict[str, Method]] = {name: {} for name in CONTROLS}
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

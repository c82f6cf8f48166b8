"""Fixtures of the losses: reference vectors, small batches, and a loss with its gradient."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray


@pytest.fixture(scope="session")
def load_vectors(vectors_dir: Path) -> Callable[[str], dict[str, NDArray[Any]]]:
    """Reads one file of reference vectors, by its name."""

    def load(name: str) -> dict[str, NDArray[Any]]:
        with np.load(vectors_dir / f"{name}.npz") as stored:
            return dict(stored)

    return load


@pytest.fixture(scope="session")
def value_and_gradient() -> Callable[..., tuple[float, NDArray[np.float64]]]:
    """Computes a loss and its gradient with respect to the embeddings."""
    torch = pytest.importorskip("torch")

    def evaluate(
        loss: Callable[..., Any],
        embeddings: NDArray[np.float64],
        labels: NDArray[np.int64],
        dtype: str = "float64",
    ) -> tuple[float, NDArray[np.float64]]:
        leaf = torch.tensor(embeddings, dtype=getattr(torch, dtype), requires_grad=True)
        value = loss(leaf, torch.tensor(labels))
        value.backward()
        return value.item(), leaf.grad.double().numpy()

    return evaluate


@pytest.fixture(scope="session")
def make_batch() -> Callable[..., tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Makes raw embeddings of some classes, shuffled; a larger spread mixes the classes."""

    def make(
        sizes: tuple[int, ...] = (4, 4, 4, 4), *, dim: int = 6, spread: float = 1.0, seed: int = 0
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        rng = np.random.default_rng(seed)
        labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
        centers = 1.5 * rng.normal(size=(len(sizes), dim))
        return centers[labels] + spread * rng.normal(size=(len(labels), dim)), labels

    return make

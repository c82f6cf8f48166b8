"""Labels that look wrong: found among right ones, and a photo unlike all others is not one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vicinal.training.fitting.doubtful_labels import find_doubtful

N_LABELS, PER_LABEL = 12, 8


def drawn(spread: float = 0.25) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Normalized embeddings around a center a label, and their labels."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(N_LABELS), PER_LABEL)
    rows = np.eye(N_LABELS, 32)[codes] + spread * rng.normal(size=(len(codes), 32)) / np.sqrt(32) * 3
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), codes


def doubted_slowly(rows: NDArray[np.float64], codes: NDArray[np.int64]) -> dict[int, int]:
    """The rule, photo by photo."""
    own, second, looks_like = {}, {}, {}
    for i in range(len(codes)):
        near = sorted((j for j in range(len(codes)) if j != i), key=lambda j: -rows[i] @ rows[j])
        own[i] = max(rows[i] @ rows[j] for j in near if codes[j] == codes[i])
        met: set[int] = set()
        for j in near:
            if codes[j] != codes[i] and codes[j] in met:
                second[i], looks_like[i] = rows[i] @ rows[j], int(codes[j])
                break
            met.add(codes[j])
    far, needed = 1.5 * np.std(list(second.values())), np.quantile(list(own.values()), 0.4)
    return {i: looks_like[i] for i in own if second[i] >= needed and second[i] - own[i] > far}


def test_swapped_labels_are_found_and_no_others() -> None:
    rows, codes = drawn()
    swapped = codes.copy()
    swapped[[0, 20, 40]] = [5, 7, 9]
    places, looks_like, margins = find_doubtful(rows, swapped)
    assert dict(zip(places.tolist(), looks_like.tolist(), strict=True)) == doubted_slowly(rows, swapped)
    assert set(places) <= {0, 20, 40}
    assert len(places)
    assert (looks_like == codes[places]).all()
    assert (np.diff(margins) <= 0).all()
    assert not len(find_doubtful(rows, codes)[0])

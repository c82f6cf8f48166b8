"""Speed of networks in ONNX Runtime on this machine, each beside the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from vicinal.models.embedder import Embedder

_BATCH = 16
_ROUNDS = 5
_SINGLES = 5


def measure_speed(embedders: Mapping[str, Embedder]) -> dict[str, dict[str, float]]:
    """Measure how long embedding takes without decoding, on all the threads that the embedders were given.

    Gives by name `images_per_second` at batches of 16, and `milliseconds` for an image alone. The networks
    take turns, and the fastest turn counts: what else the machine does slows some turns down, and never makes
    one faster.
    """
    runs = {}
    for name, embedder in embedders.items():
        side = embedder.bundle.preprocessing.input_size
        image = np.random.default_rng(0).normal(size=(3, side, side)).astype(np.float32)
        runs[name, _BATCH] = lambda embedder=embedder, image=image: embedder.infer([image] * _BATCH)
        runs[name, 1] = lambda embedder=embedder, image=image: embedder.infer([image])
    best = {key: float("inf") for key in runs}
    for turn in range(_ROUNDS + 1):
        for key, run in runs.items():
            seconds = min(_seconds(run) for _ in range(_SINGLES if key[1] == 1 else 1))
            # The first turn finds memory, and counts for nothing.
            best[key] = min(best[key], seconds) if turn else float("inf")
    return {
        name: {
            "images_per_second": round(_BATCH / best[name, _BATCH], 1),
            "milliseconds": round(1e3 * best[name, 1], 2),
        }
        for name in embedders
    }


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started

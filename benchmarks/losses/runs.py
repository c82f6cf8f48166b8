"""The runs of the loss study."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.losses.training import Run

__all__ = [
    "BASE_LOSSES",
    "DESIGNS",
    "SEEDS",
    "SETS",
    "SIMIX_KS",
    "base_runs",
    "dependent_runs",
    "run_of",
    "with_tcm",
]

SETS = ("omniglot", "grocery", "dogfacenet")
SEEDS = (0, 1, 2)
_STEPS = {"omniglot": 300, "grocery": 300, "dogfacenet": 300}
# 33 grocery classes are left to train on: 24 a batch leave a choice.
_BATCH = {"omniglot": 128, "grocery": 96, "dogfacenet": 128}
_PER_CLASS = 4

# Arguments differ from the defaults where another was better on held-out training classes of the dogs.
BASE_LOSSES: dict[str, dict[str, Any]] = {
    "contextual": {"name": "contextual"},
    "recall_at_k": {"name": "recall_at_k"},
    "balanced_contrastive": {
        "name": "balanced_contrastive",
        "arguments": {"margin": 4.0},
    },
    "smooth_ap": {"name": "smooth_ap"},
    "multi_similarity": {"name": "multi_similarity"},
    "contrastive": {"name": "contrastive"},
    "triplet": {"name": "triplet", "arguments": {"margin": 0.2}},
    "proxy_anchor": {"name": "proxy_anchor"},
    "proxy_nca": {"name": "proxy_nca", "arguments": {"softmax_scale": 16.0}},
    "arcface": {"name": "arcface", "arguments": {"scale": 16.0, "margin": 10.0}},
    "cross_batch_memory": {
        "name": "cross_batch_memory",
        "arguments": {"loss": "contrastive", "memory_size": 256},
    },
}
# Batch designs of the balanced contrastive loss: about as many images a batch for all.
DESIGNS: dict[str, dict[str, Any]] = {
    "m2-n48": {"kind": "group", "m": 2, "n": 48},
    "m4-n24": {"kind": "group", "m": 4, "n": 24},
    "p0.1": {"kind": "random_pairs", "p": 0.1},
    "p0.5": {"kind": "random_pairs", "p": 0.5},
}
_RSK_BATCHES = (64, 128, 256, 512)
SIMIX_KS = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32)
_TCM_MARGINS = ((0.9, 0.5), (0.8, 0.3))
_TCM_WEIGHTS = (0.1,)
_NOISE = (0.1, 0.2)


def base_runs() -> list[Run]:
    """Every loss alone, seed by seed, so that a study cut short still has all losses."""
    return [
        run_of(images, "losses", name, loss, seed)
        for seed in SEEDS
        for images in SETS
        for name, loss in BASE_LOSSES.items()
    ]


def dependent_runs(margins: dict[str, dict[str, tuple[float, float]]]) -> list[Run]:
    """All other runs.

    Args:
        margins: By image set and loss, the margins m+ and m- of TCM (see `with_tcm`).
    """
    parts = [
        [run for seed in SEEDS for run in _tcm_runs(margins, seed)],
        [run for seed in SEEDS for run in _design_runs(seed)],
        [run for seed in SEEDS for run in _rsk_runs(seed)],
        [run for seed in SEEDS for run in _noise_runs(seed)],
        [run for seed in SEEDS for run in _margin_runs(margins, seed)],
    ]
    return [run for part in parts for run in part]


def with_tcm(loss: dict[str, Any], margins: tuple[float, float], weight: float = 1.0) -> dict[str, Any]:
    """A loss configuration with the threshold-consistent margin added."""
    positive, negative = margins
    arguments = {"pos_margin": round(positive, 4), "neg_margin": round(negative, 4)}
    added = {"name": "threshold_consistent_margin", "weight": weight, "arguments": arguments}
    return {**loss, "add": [added]}


def run_of(
    images: str,
    group: str,
    name: str,
    loss: dict[str, Any],
    seed: int,
    *,
    batch_size: int | None = None,
    **changes: Any,
) -> Run:
    """A run of a loss with the batches of its image set.

    Args:
        images: Name of the image set.
        group: Part of the study.
        name: What distinguishes it in its group.
        loss: Loss configuration.
        seed: Seed of all randomness.
        batch_size: Images a batch; None for what the image set has.
        changes: Other fields of the run.
    """
    size = batch_size or _BATCH[images]
    sampler = {"kind": "class_balanced", "batch_size": size, "per_class": _PER_CLASS}
    if loss["name"] == "balanced_contrastive":
        sampler = {"kind": "group", "m": _PER_CLASS, "n": size // _PER_CLASS}
        loss = {**loss, "arguments": {**loss["arguments"], "batch_design": sampler}}
    plain = Run(images, group, name, loss, seed, sampler, _STEPS[images])
    return dataclasses.replace(plain, **changes)


def _tcm_runs(margins: dict[str, dict[str, tuple[float, float]]], seed: int) -> list[Run]:
    return [
        run_of(images, "losses", f"{name}+tcm", with_tcm(loss, margins[images][name]), seed)
        for images in SETS
        for name, loss in BASE_LOSSES.items()
    ]


def _margin_runs(margins: dict[str, dict[str, tuple[float, float]]], seed: int) -> list[Run]:
    """Other margins and weights of TCM beside multi-similarity, the loss that it cost most."""
    loss = BASE_LOSSES["multi_similarity"]
    chosen = margins["omniglot"]["multi_similarity"]
    variants = {f"margins {one[0]}, {one[1]}": with_tcm(loss, one) for one in _TCM_MARGINS}
    variants |= {f"weight {weight}": with_tcm(loss, chosen, weight) for weight in _TCM_WEIGHTS}
    return [run_of("omniglot", "margins", name, variant, seed) for name, variant in variants.items()]


def _rsk_runs(seed: int) -> list[Run]:
    """As many images seen in all, whatever the batch; the step grows with the root of the batch."""
    images, runs = "omniglot", []
    seen = _STEPS[images] * _BATCH[images]
    for size in _RSK_BATCHES:
        sampler = {"kind": "class_balanced", "batch_size": size, "per_class": _PER_CLASS}
        steps, rate = seen // size, 2e-3 * (size / 128) ** 0.5
        for simix in (False, True):
            arguments = {"simix": True, "ks": list(SIMIX_KS)} if simix else {}
            loss = {"name": "recall_at_k", "arguments": arguments}
            name = f"{size}{'-simix' if simix else ''}"
            runs.append(
                run_of(images, "rsk", name, loss, seed, sampler=sampler, steps=steps, learning_rate=rate)
            )
    return runs


def _noise_runs(seed: int) -> list[Run]:
    return [
        run_of(images, "noise", f"{name}-{share:.0%}", BASE_LOSSES[name], seed, label_noise=share)
        for images in ("omniglot", "dogfacenet")
        for share in _NOISE
        for name in ("contextual", "multi_similarity")
    ]


def _design_runs(seed: int) -> list[Run]:
    """On the unbalanced dogs: with classes of one size the weights of a design are all the same."""
    runs = []
    for name, design in DESIGNS.items():
        sampler = {**design, "n_pairs": 48} if design["kind"] == "random_pairs" else design
        for weighted in (True, False):
            arguments = {"margin": 4.0, "batch_design": design, "importance": weighted}
            loss = {"name": "balanced_contrastive", "arguments": arguments}
            label = f"{name}-{'weighted' if weighted else 'plain'}"
            runs.append(Run("dogfacenet", "designs", label, loss, seed, sampler, _STEPS["dogfacenet"]))
    return runs

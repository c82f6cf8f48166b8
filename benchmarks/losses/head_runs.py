"""The runs of the study of heads: rates and TCM chosen on held-out classes, then every loss with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.losses.runs import BASE_LOSSES, run_of
from benchmarks.losses.training import Run

__all__ = [
    "HEAD_LOSSES",
    "HEAD_SEEDS",
    "HEAD_SETS",
    "NOISE",
    "NOISE_LOSSES",
    "TCM_CHOICES",
    "choose_rates",
    "choose_tcm",
    "loss_runs",
    "losses_of",
    "noise_runs",
    "rate_runs",
    "tcm_runs",
]

Record = Mapping[str, Any]

HEAD_SETS = ("grocery", "dogfacenet", "omniglot")
HEAD_SEEDS = (0, 1, 2, 3, 4)
_NOISE_SEEDS = (0,)
NOISE = (0.1, 0.2)
NOISE_LOSSES = (
    "multi_similarity",
    "contextual",
    "recall_at_k",
    "balanced_contrastive",
    "proxy_anchor",
    "proxy_nca",
)
_NOISE_SETS = ("grocery", "dogfacenet")
_STEPS = 200
_RATES = (3e-4, 1e-3, 3e-3)
# The training classes that are left out for choices: two thirds of the 38 products, 213 dogs, 101 characters.
_FOLDS = {"grocery": ((0, 3), (1, 3)), "dogfacenet": ((0, 3),), "omniglot": ((0, 8),)}

# On features of length 1 the unnormalized form trained distances that cosines do not show.
HEAD_LOSSES: dict[str, dict[str, Any]] = BASE_LOSSES | {
    "balanced_contrastive": {
        "name": "balanced_contrastive",
        "arguments": {"margin": 0.7, "normalize": True},
    }
}
_FEW = ("contextual", "recall_at_k", "balanced_contrastive", "multi_similarity")
# By name: m+ and m- as cosines measured on held-out classes without TCM, lam+ and lam-.
TCM_CHOICES: dict[str, tuple[str, str, float, float]] = {
    "range, light": ("far_1", "far_10", 0.1, 0.1),
    "high, light": ("positive_90", "positive_90", 0.3, 0.3),
    "positives": ("positive_90", "far_10", 1.0, 0.0),
    "positives, light": ("positive_90", "far_10", 0.3, 0.0),
    "negatives, light": ("far_1", "far_10", 0.0, 0.1),
}
# What TCM may cost on held-out classes; the noise of two folds is as large.
_MOST_HIT_RATE_LOST, _MOST_MAP_LOST = 0.005, 0.01


def losses_of(images: str) -> dict[str, dict[str, Any]]:
    """Losses that an image set is tried with: on characters, which frozen features suit less, only some."""
    return {name: HEAD_LOSSES[name] for name in _FEW} if images == "omniglot" else HEAD_LOSSES


def rate_runs(images: str) -> list[Run]:
    """Every loss at every learning rate."""
    return [
        run
        for name, loss in losses_of(images).items()
        for rate in _RATES
        for run in _fold_runs(images, "rates", f"{name}@{rate:g}", loss, rate)
    ]


def choose_rates(images: str, records: Sequence[Record]) -> dict[str, float]:
    """By loss, the learning rate of the best MAP@R on held-out classes."""
    return {
        name: max(
            _RATES, key=lambda rate: _mean(_of(records, images, "rates", f"{name}@{rate:g}"), "map_at_r")
        )
        for name in losses_of(images)
    }


def tcm_runs(images: str, rates: Mapping[str, float], records: Sequence[Record]) -> list[Run]:
    """Every loss with every choice of TCM, its margins from the cosines without it."""
    return [
        run
        for name, loss in losses_of(images).items()
        for choice in TCM_CHOICES
        for run in _fold_runs(
            images,
            "tcm",
            f"{name}+{choice}",
            {**loss, "add": [_tcm(choice, _base(images, name, rates, records))]},
            rates[name],
        )
    ]


def choose_tcm(images: str, rates: Mapping[str, float], records: Sequence[Record]) -> dict[str, str]:
    """By loss, the choice of TCM of the lowest OPIS on held-out classes among those that cost little there.

    Where every choice costs more, it is the one of the best MAP@R.
    """
    chosen = {}
    for name in losses_of(images):
        base = _base(images, name, rates, records)
        tried = {choice: _of(records, images, "tcm", f"{name}+{choice}") for choice in TCM_CHOICES}
        cheap = [choice for choice, own in tried.items() if _is_cheap(own, base)]
        if cheap:
            chosen[name] = min(cheap, key=lambda choice: _mean(tried[choice], "opis"))
        else:
            chosen[name] = max(tried, key=lambda choice: _mean(tried[choice], "map_at_r"))
    return chosen


def loss_runs(images: str, records: Sequence[Record]) -> list[Run]:
    """Every loss on all training classes, without and with TCM."""
    return _twins(images, "heads", tuple(losses_of(images)), records)


def noise_runs(images: str, records: Sequence[Record]) -> list[Run]:
    """Some losses with wrong labels, without and with TCM; on photos only."""
    shares = NOISE if images in _NOISE_SETS else ()
    return [
        run
        for seed in _NOISE_SEEDS
        for share in shares
        for run in _twins(
            images, f"noise-{share:.0%}", NOISE_LOSSES, records, seeds=(seed,), label_noise=share
        )
    ]


def _twins(
    images: str,
    group: str,
    names: Sequence[str],
    records: Sequence[Record],
    seeds: Sequence[int] = HEAD_SEEDS,
    **changes: Any,
) -> list[Run]:
    """Seed by seed, so that a study cut short still has all losses."""
    rates = choose_rates(images, records)
    added = {
        name: _tcm(choice, _base(images, name, rates, records))
        for name, choice in choose_tcm(images, rates, records).items()
    }
    common = {"steps": _STEPS, **changes}
    return [
        run_of(
            images,
            group,
            f"{name}{suffix}",
            {**HEAD_LOSSES[name], "add": add},
            seed,
            learning_rate=rates[name],
            **common,
        )
        for seed in seeds
        for name in names
        for suffix, add in (("", []), ("+tcm", [added[name]]))
    ]


def _fold_runs(images: str, group: str, name: str, loss: dict[str, Any], rate: float) -> list[Run]:
    return [
        run_of(images, group, name, loss, fold[0], learning_rate=rate, steps=_STEPS, fold=fold)
        for fold in _FOLDS[images]
    ]


def _tcm(choice: str, base: Sequence[Record]) -> dict[str, Any]:
    positive, negative, pull, push = TCM_CHOICES[choice]
    arguments = {
        "pos_margin": round(_mean(base, positive), 3),
        "neg_margin": round(_mean(base, negative), 3),
        "pos_weight": pull,
        "neg_weight": push,
    }
    return {"name": "threshold_consistent_margin", "arguments": arguments}


def _is_cheap(own: Sequence[Record], base: Sequence[Record]) -> bool:
    lost = {metric: _mean(base, metric) - _mean(own, metric) for metric in ("hit_rate_1", "map_at_r")}
    return lost["hit_rate_1"] <= _MOST_HIT_RATE_LOST and lost["map_at_r"] <= _MOST_MAP_LOST


def _base(images: str, name: str, rates: Mapping[str, float], records: Sequence[Record]) -> list[Record]:
    return _of(records, images, "rates", f"{name}@{rates[name]:g}")


def _of(records: Sequence[Record], images: str, group: str, name: str) -> list[Record]:
    wanted = {"images": images, "group": group, "name": name}
    return [one for one in records if all(one[key] == value for key, value in wanted.items())]


def _mean(records: Sequence[Record], metric: str) -> float:
    return float(np.mean([one["held_out"][metric] for one in records]))

"""The runs on a pretrained network: rates and TCM chosen on held-out classes, then every loss with them.

A plan says what is tried where. `HEADS` teaches heads on frozen features, `TUNING` the last stages as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.losses.runs import BASE_LOSSES, SIMIX_KS, run_of
from benchmarks.losses.training import Run

__all__ = ["HEADS", "TCM_CHOICES", "TUNING", "Plan", "Trial", "lowest_opis"]

Record = Mapping[str, Any]

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
_NOISE_SEEDS = 3


@dataclass(frozen=True)
class Trial:
    """A loss and what is changed for it.

    Attributes:
        loss: Loss configuration, as in a recipe.
        changes: Fields of its runs, such as sampler and steps; the others are those of the image set.
        tcm: Those of `TCM_CHOICES` to choose from; one alone is taken without a try.
        like: Trial whose learning rate and TCM it takes; None chooses its own.
    """

    loss: dict[str, Any]
    changes: dict[str, Any] = field(default_factory=dict)
    tcm: Sequence[str] = tuple(TCM_CHOICES)
    like: str | None = None


@dataclass(frozen=True)
class Plan:
    """What is tried, and what choices are made of.

    Attributes:
        name: Name of the raw result, and of its page.
        group: Group of the final runs, which names their tables.
        untrained: Name of the run in which nothing learns.
        trials: By image set and name.
        seeds: Seeds of the final runs.
        rates: Learning rates to choose from.
        folds: By image set, the training classes that are left out for choices.
        changes: Fields of every run.
        noise: Shares of wrong labels; on photos only, and with three seeds.
        noise_names: Trials to run with wrong labels.
    """

    name: str
    group: str
    untrained: str
    trials: Mapping[str, Mapping[str, Trial]]
    seeds: Sequence[int]
    rates: Sequence[float]
    folds: Mapping[str, Sequence[tuple[int, int]]]
    changes: Mapping[str, Any] = field(default_factory=dict)
    noise: Sequence[float] = ()
    noise_names: Sequence[str] = ()

    @property
    def sets(self) -> tuple[str, ...]:
        """Image sets."""
        return tuple(self.trials)

    def rate_runs(self, images: str) -> list[Run]:
        """Every loss at every learning rate."""
        return [
            run
            for name in self._chosen_for(images)
            for rate in self.rates
            for run in self._fold_runs(images, "rates", name, f"{name}@{rate:g}", [], rate)
        ]

    def choose_rates(self, images: str, records: Sequence[Record]) -> dict[str, float]:
        """By loss, the learning rate of the best MAP@R on held-out classes."""
        return {
            name: max(
                self.rates,
                key=lambda rate: _mean(_of(records, images, "rates", f"{name}@{rate:g}"), "map_at_r"),
            )
            for name in self._chosen_for(images)
        }

    def tcm_runs(self, images: str, records: Sequence[Record]) -> list[Run]:
        """Every loss with every choice of TCM, its margins from the cosines without it."""
        return [
            run
            for name, rate in self.choose_rates(images, records).items()
            for choice in self._tried(images, name)
            for run in self._fold_runs(
                images,
                "tcm",
                name,
                f"{name}+{choice}",
                [_tcm(choice, _base(images, name, rate, records))],
                rate,
            )
        ]

    def choose_tcm(self, images: str, records: Sequence[Record]) -> dict[str, str]:
        """By loss, the choice of TCM by `lowest_opis`."""
        chosen = {name: trial.tcm[0] for name, trial in self._chosen_for(images).items()}
        for name, rate in self.choose_rates(images, records).items():
            if not self._tried(images, name):
                continue
            tried = {
                choice: _of(records, images, "tcm", f"{name}+{choice}")
                for choice in self._tried(images, name)
            }
            chosen[name] = lowest_opis(_base(images, name, rate, records), tried)
        return chosen

    def loss_runs(self, images: str, records: Sequence[Record]) -> list[Run]:
        """Every loss on all training classes, without and with TCM; seed by seed.

        So a study cut short still has all losses.
        """
        names = tuple(self.trials[images])
        return [run for seed in self.seeds for run in self._twins(images, self.group, names, records, seed)]

    def noise_runs(self, images: str, records: Sequence[Record]) -> list[Run]:
        """Some losses with wrong labels, without and with TCM."""
        shares = () if images == "omniglot" else self.noise
        return [
            run
            for share in shares
            for seed in self.seeds[:_NOISE_SEEDS]
            for run in self._twins(
                images, f"noise-{share:.0%}", self.noise_names, records, seed, label_noise=share
            )
        ]

    def _twins(
        self,
        images: str,
        group: str,
        names: Sequence[str],
        records: Sequence[Record],
        seed: int,
        **changes: Any,
    ) -> list[Run]:
        rates = self.choose_rates(images, records)
        chosen = self.choose_tcm(images, records)
        added = {name: _tcm(chosen[name], _base(images, name, rates[name], records)) for name in rates}
        return [
            self._run(images, group, name, f"{name}{suffix}", add, seed, rates[like], **changes)
            for name in names
            for like in [self.trials[images][name].like or name]
            for suffix, add in (("", []), ("+tcm", [added[like]]))
        ]

    def _chosen_for(self, images: str) -> dict[str, Trial]:
        """Trials that get a learning rate and TCM of their own."""
        return {name: trial for name, trial in self.trials[images].items() if trial.like is None}

    def _tried(self, images: str, name: str) -> Sequence[str]:
        tcm = self.trials[images][name].tcm
        return tcm if len(tcm) > 1 else ()

    def _fold_runs(
        self, images: str, group: str, trial: str, name: str, add: list[dict[str, Any]], rate: float
    ) -> list[Run]:
        return [
            self._run(images, group, trial, name, add, fold[0], rate, fold=fold)
            for fold in self.folds[images]
        ]

    def _run(
        self,
        images: str,
        group: str,
        trial: str,
        name: str,
        add: list[dict[str, Any]],
        seed: int,
        rate: float,
        **changes: Any,
    ) -> Run:
        own = self.trials[images][trial]
        settings = {**self.changes, **own.changes, **changes}
        return run_of(images, group, name, {**own.loss, "add": add}, seed, learning_rate=rate, **settings)


def lowest_opis(base: Sequence[Record], tried: Mapping[str, Sequence[Record]]) -> str:
    """The choice of the lowest OPIS on held-out classes among those that cost the base little there.

    Where every choice costs more, it is the one of the best MAP@R.
    """
    cheap = [choice for choice, own in tried.items() if _is_cheap(own, base)]
    if cheap:
        return min(cheap, key=lambda choice: _mean(tried[choice], "opis"))
    return max(tried, key=lambda choice: _mean(tried[choice], "map_at_r"))


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


def _base(images: str, name: str, rate: float, records: Sequence[Record]) -> list[Record]:
    return _of(records, images, "rates", f"{name}@{rate:g}")


def _of(records: Sequence[Record], images: str, group: str, name: str) -> list[Record]:
    wanted = {"images": images, "group": group, "name": name}
    return [one for one in records if all(one[key] == value for key, value in wanted.items())]


def _mean(records: Sequence[Record], metric: str) -> float:
    return float(np.mean([one["held_out"][metric] for one in records]))


# On features of length 1 the unnormalized form trained distances that cosines do not show.
_BALANCED = {"name": "balanced_contrastive", "arguments": {"margin": 0.7, "normalize": True}}
_HEAD_TRIALS = {
    name: Trial(loss) for name, loss in {**BASE_LOSSES, "balanced_contrastive": _BALANCED}.items()
}
# On characters, which frozen features suit less, only some.
_FEW = ("contextual", "recall_at_k", "balanced_contrastive", "multi_similarity")
# The training classes that are left out for choices: two thirds of the 38 products, 213 dogs, 101 characters.
HEADS = Plan(
    name="pretrained_heads",
    group="heads",
    untrained="no head",
    trials={
        "grocery": _HEAD_TRIALS,
        "dogfacenet": _HEAD_TRIALS,
        "omniglot": {name: _HEAD_TRIALS[name] for name in _FEW},
    },
    seeds=(0, 1, 2, 3, 4),
    rates=(3e-4, 1e-3, 3e-3),
    folds={"grocery": ((0, 3), (1, 3)), "dogfacenet": ((0, 3),), "omniglot": ((0, 8),)},
    changes={"steps": 200},
    noise=(0.1, 0.2),
    noise_names=(
        "multi_similarity",
        "contextual",
        "recall_at_k",
        "balanced_contrastive",
        "proxy_anchor",
        "proxy_nca",
    ),
)

# A run sees as many images whatever its batch.
_SEEN, _BATCH, _CHUNK = 4_800, 64, 64
# What the study of heads chose on held-out classes.
_TCM = {
    "grocery": {
        "multi_similarity": "positives, light",
        "contextual": "high, light",
        "recall_at_k": "positives, light",
        "balanced_contrastive": "positives",
    },
    "dogfacenet": {
        "multi_similarity": "positives, light",
        "contextual": "positives, light",
        "recall_at_k": "positives",
        "balanced_contrastive": "high, light",
    },
}


def _tuning_trials(images: str, batch_size: int, per_class: int) -> dict[str, Trial]:
    """The papers' losses, and recall@k with a large batch as well."""
    sampler = {
        "kind": "class_balanced",
        "batch_size": batch_size,
        "per_class": per_class,
        "chunk_size": _CHUNK,
    }
    large = {"sampler": sampler, "steps": _SEEN // batch_size}
    simix = {"name": "recall_at_k", "arguments": {"simix": True, "ks": list(SIMIX_KS)}}
    unweighted = {**_BALANCED, "arguments": {**_BALANCED["arguments"], "importance": False}}
    tcm = {name: (choice,) for name, choice in _TCM[images].items()}
    return {
        **{name: Trial(HEADS.trials[images][name].loss, tcm=own) for name, own in tcm.items()},
        "recall_at_k, large batch": Trial(BASE_LOSSES["recall_at_k"], large, tcm["recall_at_k"]),
        "recall_at_k, large batch, SiMix": Trial(simix, large, like="recall_at_k, large batch"),
        "balanced_contrastive, no importance": Trial(unweighted, like="balanced_contrastive"),
    }


TUNING = Plan(
    name="pretrained_tuning",
    group="tuning",
    untrained="not trained",
    # 25 products are left to learn from where rates are chosen.
    trials={
        "grocery": _tuning_trials("grocery", 192, 8),
        "dogfacenet": _tuning_trials("dogfacenet", 256, 4),
    },
    seeds=(0, 1, 2),
    rates=(1e-4, 3e-4),
    folds={"grocery": ((0, 3),), "dogfacenet": ((0, 3),)},
    changes={"batch_size": _BATCH, "steps": _SEEN // _BATCH},
)

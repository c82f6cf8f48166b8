"""What is measured: a study is a set of bases and an order of measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.losses.runs import SEEDS, SETS
from benchmarks.refiner.bases import BASES
from benchmarks.refiner.embedded import Base
from benchmarks.refiner.pretrained import PRETRAINED_BASES, TUNED_BASES
from benchmarks.refiner.recipes import (
    GATES,
    LADDER,
    LONG,
    LONG_FROM_ZERO,
    PAPER_FORMS,
    SWEPT_NEIGHBORS,
    SWEPT_STEPS,
)

__all__ = ["PRETRAINED", "SCRATCH", "STUDIES", "TUNED", "Study", "Task"]

_SWEEPS = (
    ("neighbors", [str(k) for k in SWEPT_NEIGHBORS]),
    ("steps", [str(t) for t in SWEPT_STEPS]),
    ("steps", [f"paper {t}" for t in SWEPT_STEPS]),
    ("neighbors", [f"paper {k}" for k in SWEPT_NEIGHBORS]),
)
# Rungs of the ladder with all seeds; the others have one.
_THRICE = ["as the paper", "all of these"]
_QUICKEST_FIRST = ("dogfacenet", "grocery", "omniglot")
_PHOTOS = ("dogfacenet", "grocery")
_PAPER_FIRST = ("1 step", "1 step, without neighbors", "8 steps")


@dataclass(frozen=True)
class Task:
    """One measurement.

    Attributes:
        images: Image set.
        base: Name of the base embeddings.
        seed: Seed of base and refiner.
        group: `controls`, or a group of `recipes.VARIANTS`.
        name: What distinguishes it in its group.
    """

    images: str
    base: str
    seed: int
    group: str
    name: str

    @property
    def key(self) -> str:
        """Name of its file."""
        return f"{self.images}--{self.base}--seed{self.seed}--{self.group}--{self.name.replace(' ', '_')}"


@dataclass(frozen=True)
class Study:
    """Bases, and what is measured on them.

    Attributes:
        result: Name of the raw result.
        bases: Bases by name.
        tasks: All measurements, those first that matter most.
        reranks: Whether base and refiners are also re-ranked, and fused with the initial similarity.
        steps_share: Factor on the steps of a training.
    """

    result: str
    bases: Mapping[str, Base]
    tasks: tuple[Task, ...]
    reranks: bool
    steps_share: float = 1.0


def _over(
    bases: Sequence[str],
    seeds: Sequence[int],
    group: str,
    names: Sequence[str],
    sets: Sequence[str] = SETS,
) -> Iterator[Task]:
    return (
        Task(images, base, seed, group, name)
        for base in bases
        for seed in seeds
        for name in names
        for images in sets
    )


def _scratch_tasks() -> tuple[Task, ...]:
    first, *others = BASES
    one_seed = SEEDS[:1]
    further = ["gated, no level", "gated, untrained level", "gated, seen classes"]
    sweeps = [task for group, names in _SWEEPS for task in _over([first], one_seed, group, names)]
    rungs = [name for name in LADDER if name not in _THRICE]
    return (
        *_over([first], SEEDS, "refiner", ["gated"]),
        *_over([first], SEEDS, "controls", ["controls"]),
        *_over([first], SEEDS, "ladder", _THRICE),
        *_over([first], SEEDS, "refiner", further),
        *_over(others, SEEDS, "refiner", ["gated"]),
        *_over(others, SEEDS, "controls", ["controls"]),
        *sweeps,
        *_over([first], one_seed, "ladder", rungs),
    )


def _pretrained_tasks() -> tuple[Task, ...]:
    one_seed, other_seeds = SEEDS[:1], SEEDS[1:]

    def over(sets: Sequence[str], base: str, group: str, *names: str) -> Iterator[Task]:
        return _over([base], one_seed, group, names, sets)

    def again(sets: Sequence[str], base: str, group: str, *names: str) -> Iterator[Task]:
        return _over([base], other_seeds, group, names, sets)

    return (
        *over(_QUICKEST_FIRST, "classifier", "controls", "controls"),
        *over(_QUICKEST_FIRST, "head", "controls", "controls"),
        *over(_QUICKEST_FIRST, "classifier", "attention", "attention and level"),
        *over(_QUICKEST_FIRST, "head", "refiner", "gated"),
        *over(_QUICKEST_FIRST, "classifier", "refiner", "gated"),
        *again(_PHOTOS, "head", "controls", "controls"),
        *again(_PHOTOS, "head", "refiner", "gated"),
        *again(_PHOTOS, "classifier", "refiner", "gated"),
        *over(_PHOTOS, "classifier", "paper", "1 step", "1 step, without neighbors"),
        *over(_PHOTOS, "head", "gates", *GATES),
        *over(_PHOTOS, "classifier", "attention", "attention and level, low rate"),
        *over(_PHOTOS, "features", "controls", "controls"),
        *over(["dogfacenet"], "features", "refiner", "gated"),
        *(
            task
            for group, names in _SWEEPS[:2]
            for task in _over(["classifier"], one_seed, group, names, ["dogfacenet"])
        ),
        *over(["grocery"], "features", "refiner", "gated"),
        *again(["omniglot"], "head", "controls", "controls"),
        *again(["omniglot"], "head", "refiner", "gated"),
        *again(_PHOTOS, "classifier", "attention", "attention and level"),
        *again(["omniglot"], "classifier", "attention", "attention and level"),
        *over(["omniglot"], "classifier", "paper", "1 step", "1 step, without neighbors"),
        *over(_PHOTOS, "classifier", "refiner", "gated, no level", "gated, untrained level"),
        *over(_PHOTOS, "classifier", "paper", "8 steps"),
        *over(_PHOTOS, "head", "attention", "attention and level, low rate"),
        *(
            task
            for group, names in _SWEEPS[2:]
            for task in _over(["classifier"], one_seed, group, names, ["dogfacenet"])
        ),
        *over(_PHOTOS, "classifier", "paper", *(name for name in PAPER_FORMS if name not in _PAPER_FIRST)),
    )


def _tuned_tasks() -> tuple[Task, ...]:
    bases = list(TUNED_BASES)
    parts = (("controls", ["controls"], bases), ("long", LONG, bases), ("long", LONG_FROM_ZERO, bases[:1]))
    return tuple(
        task
        for group, names, own in parts
        for name in names
        for task in _over(own, SEEDS[:1], group, [name], _PHOTOS)
    )


SCRATCH = Study("refiner_study", BASES, _scratch_tasks(), reranks=True)
PRETRAINED = Study(
    "refiner_pretrained", PRETRAINED_BASES, _pretrained_tasks(), reranks=False, steps_share=0.5
)
TUNED = Study("refiner_tuned", TUNED_BASES, _tuned_tasks(), reranks=False)
STUDIES = {"scratch": SCRATCH, "pretrained": PRETRAINED, "tuned": TUNED}

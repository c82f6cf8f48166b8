"""The refiners of the study: what is trained, and on which embeddings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "GATES",
    "LADDER",
    "LONG",
    "LONG_FROM_ZERO",
    "PAPER_FORMS",
    "SWEPT_NEIGHBORS",
    "SWEPT_STEPS",
    "VARIANTS",
    "Start",
    "Variant",
    "recipe_of",
]

Changes = dict[str, dict[str, Any]]

SWEPT_NEIGHBORS = (2, 4, 8, 16, 32)
SWEPT_STEPS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Start:
    """What a recipe takes from the embeddings.

    Attributes:
        n_neighbors: Neighbors of the softmax query expansion that refinement starts from.
        temperature: Of the same.
        weight: Of the same.
        n_candidates: Items that a query's losses are computed with.
        batch_size: Items a batch, with the objective `batch`.
        steps_share: Factor on the steps of a training.
    """

    n_neighbors: int
    temperature: float
    weight: float
    n_candidates: int
    batch_size: int
    steps_share: float = 1.0


@dataclass(frozen=True)
class Variant:
    """A refiner that is tried.

    Attributes:
        form: `gated` corrects the attention of softmax query expansion by similarities; `attention` has the
            paper's matrices beside the expansion; both learn a level, by searches. `paper` is the paper's.
        changes: Sections of the recipe, whose keys are set anew.
        trained_on: `seen` or `unseen` embeddings of the training classes, or `all sets`: the unseen ones of
            every image set, each in spaces of its own.
        starts_by: What the softmax query expansion that it starts as is best in, on held-out classes:
            `map_at_r` or `fnir_at_fpir_5`.
        n_networks: Networks of different seeds, whose refined embeddings are averaged.
    """

    form: Literal["gated", "attention", "paper"] = "gated"
    changes: Changes = field(default_factory=dict)
    trained_on: Literal["seen", "unseen", "all sets"] = "unseen"
    starts_by: Literal["map_at_r", "fnir_at_fpir_5"] = "map_at_r"
    n_networks: int = 1


_SOFTMAX = {"init": "softmax_qe", "temperature": 0.2, "n_steps": 1, "n_heads": 1}
# What was tried on the paper's refiner, alone and together.
LADDER = {
    "as the paper": Variant("paper", {}, "seen"),
    "attention without neighbors": Variant("paper", {"refiner": {"neighbors": "none"}}, "seen"),
    "zero-initialized outputs": Variant("paper", {"refiner": {"zero_init_output": True}}, "seen"),
    "starts as softmax-QE": Variant("paper", {"refiner": _SOFTMAX}, "seen"),
    "noise": Variant("paper", {"batches": {"noise": 0.3}}, "seen"),
    "unseen classes": Variant("paper"),
    "absent queries": Variant("paper", {"absent": {"share": 0.3}}, "seen"),
    "all of these": Variant(
        "paper", {"refiner": _SOFTMAX, "batches": {"noise": 0.3}, "absent": {"share": 0.3}}
    ),
}
_UNTRAINED = {"optimizer": {"steps": 1, "warmup_steps": 0, "learning_rate": 1e-12}}
_REFINERS = {
    "gated": Variant(),
    "gated, no level": Variant("gated", {"refiner": {"level": False}}),
    "gated, untrained level": Variant("gated", _UNTRAINED),
    "gated, seen classes": Variant("gated", {}, "seen"),
}
# What was tried from pretrained features.
_ATTENTION = {
    "attention and level": Variant("attention"),
    "attention and level, low rate": Variant("attention", {"optimizer": {"learning_rate": 1e-4}}),
    "attention and level, 8 heads": Variant("attention", {"refiner": {"n_heads": 8}}),
    "attention without MLP, level": Variant("attention", {"refiner": {"form": "attention"}}),
    "attention, no level": Variant("attention", {"refiner": {"level": False}}),
}
GATES = {
    "gated, all sets": Variant("gated", {}, "all sets"),
    "gated, starts by FNIR": Variant(starts_by="fnir_at_fpir_5"),
    "gated, 3 networks": Variant(n_networks=3),
    "gated, 2 steps": Variant("gated", {"refiner": {"n_steps": 2}}),
    "gated, 16 neighbors": Variant("gated", {"refiner": {"n_neighbors": 16}}),
    "gated, hardest absent": Variant("gated", {"search": {"hardest": 0.05}}),
}
_ONE_STEP = {"n_steps": 1}
# The paper's form with fewer weights; a step at 384 numbers has 0.9 million.
PAPER_FORMS = {
    "8 steps": Variant("paper"),
    "2 steps": Variant("paper", {"refiner": {"n_steps": 2}}),
    "1 step": Variant("paper", {"refiner": _ONE_STEP}),
    "1 step, without MLP": Variant("paper", {"refiner": _ONE_STEP | {"form": "attention"}}),
    "1 step, bare": Variant("paper", {"refiner": _ONE_STEP | {"form": "bare"}}),
    "1 step, 1 head": Variant("paper", {"refiner": _ONE_STEP | {"n_heads": 1}}),
    "1 step, without neighbors": Variant("paper", {"refiner": _ONE_STEP | {"neighbors": "none"}}),
    "1 step, absent queries": Variant("paper", {"refiner": _ONE_STEP, "absent": {"share": 0.3}}),
}
_NEIGHBORS = {
    f"{prefix}{k}": Variant(form, {"refiner": {"n_neighbors": k}}, kind)
    for prefix, form, kind in (("", "gated", "unseen"), ("paper ", "paper", "seen"))
    for k in SWEPT_NEIGHBORS
}
_STEPS = {
    f"{prefix}{t}": Variant(form, {"refiner": {"n_steps": t}}, kind)
    for prefix, form, kind in (("", "gated", "unseen"), ("paper ", "paper", "seen"))
    for t in SWEPT_STEPS
}
# The paper's form with as many steps as it needs, on embeddings of classes that its base was tuned on.
_LONG = {"optimizer": {"steps": 2000}, "validation": {"every": 250}}
LONG = {
    **{f"{t} blocks": Variant("paper", _LONG | {"refiner": {"n_steps": t}}, "seen") for t in SWEPT_STEPS},
    "1 block, without neighbors": Variant(
        "paper", _LONG | {"refiner": _ONE_STEP | {"neighbors": "none"}}, "seen"
    ),
    "1 block, unseen classes": Variant("paper", _LONG | {"refiner": _ONE_STEP}),
}
# The same, but it starts as the embedding that it refines.
LONG_FROM_ZERO = {
    f"{t} blocks, zero start": Variant(
        "paper", _LONG | {"refiner": {"n_steps": t, "zero_init_output": True}}, "seen"
    )
    for t in (1, 8)
}
# By group and name of a task.
VARIANTS: dict[str, dict[str, Variant]] = {
    "refiner": _REFINERS,
    "attention": _ATTENTION,
    "gates": GATES,
    "paper": PAPER_FORMS,
    "ladder": LADDER,
    "neighbors": _NEIGHBORS,
    "steps": _STEPS,
    "long": LONG | LONG_FROM_ZERO,
}


def recipe_of(variant: Variant, start: Start) -> dict[str, Any]:
    """Recipe fields of a variant.

    Args:
        variant: What is tried.
        start: What follows from the embeddings.
    """
    made = {"gated": _gated, "attention": _attention, "paper": _paper}[variant.form](start)
    for section, fields in variant.changes.items():
        made[section] = {**made.get(section, {}), **fields}
    optimizer = made["optimizer"]
    optimizer["steps"] = max(1, round(optimizer["steps"] * start.steps_share))
    if variant.form != "paper":
        # All steps together pull as much as the expansion does in one.
        made["refiner"]["expansion_weight"] = start.weight / made["refiner"]["n_steps"]
    return made


def _gated(start: Start) -> dict[str, Any]:
    """A gated refiner with a level that starts as softmax query expansion."""
    return {
        "objective": "search",
        "search": {"n_candidates": start.n_candidates},
        "refiner": {
            "form": "gated",
            "n_steps": 1,
            "n_neighbors": start.n_neighbors,
            "init": "softmax_qe",
            "temperature": start.temperature,
            "level": True,
        },
        "optimizer": {"learning_rate": 2e-3, "steps": 400, "warmup_steps": 30},
        "validation": {"every": 100, "draws": 2},
    }


def _attention(start: Start) -> dict[str, Any]:
    """The paper's attention and MLP, trained as a gated refiner is."""
    made = _gated(start)
    made["refiner"] |= {"form": "attention_mlp", "n_heads": 1}
    made["optimizer"] = {"learning_rate": 5e-4, "steps": 300, "warmup_steps": 30}
    return made


def _paper(start: Start) -> dict[str, Any]:
    """A refiner as its paper has it: 8 steps of 8 heads, 8 neighbors, multi-similarity."""
    return {
        "objective": "batch",
        "loss": {"name": "multi_similarity"},
        "batches": {"batch_size": start.batch_size, "per_class": 4},
        "refiner": {"form": "attention_mlp", "n_steps": 8, "n_neighbors": 8, "n_heads": 8},
        "optimizer": {"learning_rate": 3e-4, "steps": 600, "warmup_steps": 50},
        "validation": {"every": 150, "draws": 2},
    }

"""Own refiner: query expansion with a level; a gallery's labels say what it refines, if anything (numpy).

It has the form `gated` with shut gates. Its numbers were chosen on other labels, see
`benchmarks/refiner/own.py`; so all that labels decide are the sides, which each fold of them leaves to the
other folds, and whether to refine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.models.bundle import MANIFEST_FILE, ModelBundle, sha256_of
from vicinal.models.refiner_manifest import REFINER_WEIGHTS_FILE, RefinerArchitecture, RefinerManifest, Sides
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.refine.errors import RefinerTrainingError
from vicinal.refine.weights import Weights, parameter_shapes, save_weights
from vicinal.training.refiner.config import ValidationConfig
from vicinal.training.refiner.embedding_set import EmbeddingSet
from vicinal.training.refiner.validation import Gain, Line, Outcomes, Validation, measure_gain, refine_by

FEWEST_LABELS = 16
"""Labels with two items that are needed."""

_FOLDS = 5
_VALIDATION = ValidationConfig(draws=2)
_SIDES: tuple[Sides, ...] = ("gallery", "both")


@dataclass(frozen=True)
class Numbers:
    """Numbers of the refiner, see `refine.step`; the level's scale is that of queries."""

    n_neighbors: int = 8
    temperature: float = 0.1
    weight: float = 2.0
    level: float = 4.0


@dataclass(frozen=True)
class OwnRefiner:
    """Verdict of the labels on it.

    Attributes:
        bundle: Whose embeddings it refines.
        sides: What it is to refine.
        over_none: Gain over searches that refine nothing, on labels for which the others chose the sides.
        over_present: The same over searches with the bundle's own refiner; over none without one.
        figures: FNIR, MAP@R, R@1 and threshold by what is refined, on all labels.
        n_items: Items with a label.
        n_labels: Labels with two of them.
    """

    bundle: ModelBundle
    sides: Sides
    over_none: Gain
    over_present: Gain
    figures: dict[str, dict[str, float]]
    n_items: int
    n_labels: int

    @property
    def helps(self) -> bool:
        """Tell whether searches are better with it than with none and than with the bundle's own."""
        return is_better(self.over_none) and is_better(self.over_present)

    def write(self, folder: Path) -> ModelBundle:
        """Write it into a folder, weights and the bundle's manifest, which is all that a gallery keeps."""
        folder.mkdir(parents=True, exist_ok=True)
        architecture, weights = _network(self.bundle.dim, Numbers())
        file = folder / REFINER_WEIGHTS_FILE
        save_weights(file, [weights], architecture)
        gains = {"none": self.over_none, "present": self.over_present}
        section = RefinerManifest(
            architecture=architecture,
            sides=self.sides,
            rerank="off",
            validation=self.figures | {f"gain_over_{name}": gain.flat() for name, gain in gains.items()},
            training={"items": self.n_items, "classes": self.n_labels, "judged_on": "labels of the gallery"},
            backbone_fingerprint=self.bundle.fingerprint,
            files={REFINER_WEIGHTS_FILE: sha256_of(file)},
        )
        manifest = self.bundle.manifest.model_copy(update={"refiner": section})
        (folder / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2), encoding="utf-8")
        return self.bundle.refined_by(folder)


def is_better(gain: Gain) -> bool:
    """Tell whether FNIR falls with certainty, or MAP@R rises where the interval of FNIR holds 0."""
    return gain.fnir.high < 0.0 or (gain.fnir.low <= 0.0 and gain.map_at_r.low > 0.0)


def choose_refiner(bundle: ModelBundle, items: EmbeddingSet, *, seed: int = 0) -> OwnRefiner:
    """Choose by their labels how the embeddings of a bundle are refined, and judge it on labels held out.

    Items of one visit are never each other's mates. A refiner that the bundle has is what is searched with at
    present.

    Raises:
        RefinerTrainingError: Too few labels have two items.
    """
    if items.n_paired_classes < FEWEST_LABELS:
        raise RefinerTrainingError(
            f"{items.n_paired_classes} labels have two items or more, and at least {FEWEST_LABELS} are "
            "needed to choose by some and measure on the others"
        )
    validation = Validation(items, Numbers().n_neighbors, _VALIDATION, seed=seed)
    validation.require_queries()
    off = Line("off")
    plain = validation.outcomes(None, [off])[off]
    lines = [Line(sides) for sides in _SIDES]
    found = validation.outcomes(refine_by(own_refiner(bundle)), lines)
    section, present = bundle.manifest.refiner, plain
    if section is not None:
        line, refiner = Line(section.sides, section.rerank), ContextRefiner(bundle)
        present = validation.outcomes(refine_by(refiner), [line], n_neighbors=refiner.n_neighbors)[line]
    classes, dealt = items.class_ids, items.deal_classes(_FOLDS, seed)
    folds = [np.unique(classes[dealt == fold]) for fold in range(_FOLDS)]
    judged = _judged(found, folds)

    def gain(before: Outcomes) -> Gain:
        return measure_gain(_judged({off: before}, folds), judged, _VALIDATION.fpir, seed=seed)

    chosen = _best(found)
    return OwnRefiner(
        bundle=bundle,
        sides=chosen.sides,
        over_none=gain(plain),
        over_present=gain(present),
        figures={
            line.sides: asdict(one.figures(_VALIDATION.fpir)) for line, one in {off: plain, **found}.items()
        },
        n_items=len(items),
        n_labels=items.n_paired_classes,
    )


def own_refiner(bundle: ModelBundle, numbers: Numbers | None = None) -> ContextRefiner:
    """The refiner for the embeddings of a bundle, before anything is written."""
    architecture, weights = _network(bundle.dim, numbers or Numbers())
    section = RefinerManifest(
        architecture=architecture,
        sides="off",
        rerank="off",
        backbone_fingerprint=bundle.fingerprint,
        files={REFINER_WEIGHTS_FILE: ""},
    )
    manifest = bundle.manifest.model_copy(update={"refiner": section})
    return ContextRefiner(ModelBundle(bundle.path, manifest), weights=[weights])


def _judged(found: Mapping[Line, Outcomes], folds: Sequence[Ints]) -> Outcomes:
    """Answers to the queries of each fold of the classes by what the other folds chose, as scores above the
    threshold of those: scores of different sides cannot be compared.
    """
    parts = []
    for own in folds:
        rest = np.setdiff1d(np.concatenate(folds), own)
        others = {line: one.of_classes(rest) for line, one in found.items()}
        chosen = _best(others)
        bar = others[chosen].figures(_VALIDATION.fpir).threshold
        answers = found[chosen].of_classes(own)
        parts.append(replace(answers, mates=answers.mates - bar, others=answers.others - bar))
    return Outcomes.join(parts)


def _best(found: Mapping[Line, Outcomes]) -> Line:
    return min(found, key=lambda line: found[line].figures(_VALIDATION.fpir).order)


def _network(dim: int, numbers: Numbers) -> tuple[RefinerArchitecture, Weights]:
    """Architecture, and arrays of its step: shut gates, and a level without a network."""
    architecture = RefinerArchitecture(
        dim=dim,
        n_steps=1,
        n_neighbors=numbers.n_neighbors,
        n_heads=1,
        form="gated",
        expansion=True,
        level=True,
        gate_width=1,
    )
    arrays: dict[str, FloatArray] = {
        name: np.zeros(shape, np.float32) for name, shape in parameter_shapes(architecture).items()
    }
    arrays["expansion_scale"][:] = 1.0 / numbers.temperature
    arrays["expansion_weight"][:] = numbers.weight
    arrays["level_scale"][:] = numbers.level
    return architecture, arrays

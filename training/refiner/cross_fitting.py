"""Cross-fitting: a refiner from all classes, measured on classes that it never saw (torch).

Classes are dealt into folds. A refiner is trained without each fold, and measured by searches for the classes
of that fold in galleries that also hold all items of the other folds. The searches of all folds are counted
together. A fold never decides on its own step: it is measured at the step that the other folds like best. The
refiner that is kept is trained on all classes, with the number of steps that all folds together like best.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from vicinal.calibration.arrays import Mask
from vicinal.models.bundle import ModelBundle
from vicinal.models.refiner_manifest import Sides
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.refine.errors import RefinerTrainingError
from vicinal.training.refiner.embedding_set import EmbeddingSet
from vicinal.training.refiner.network import ContextRefinerNetwork
from vicinal.training.refiner.trainer import RefinerTrainer, TrainingRecord, TrainingResult, refine_with
from vicinal.training.refiner.validation import (
    SIDES,
    Gain,
    Line,
    Outcomes,
    Refine,
    SideFigures,
    Validation,
    Verdict,
    choose_sides,
    measure_gain,
    refine_by,
    verdict_of,
)

# Classes with two items that each fold has at least.
_FEWEST_A_FOLD = 4


@dataclass(frozen=True)
class PresentLine:
    """Way to search without the refiner that is trained: a line, and the refiner used so far, if any."""

    line: Line
    refiner: ContextRefiner | None = None

    @classmethod
    def of(cls, bundle: ModelBundle) -> PresentLine:
        """The way a bundle searches where nobody asks for anything else."""
        section = bundle.manifest.refiner
        if section is None:
            return cls(Line("off", "contextual"))
        return cls(Line(section.sides, section.rerank), ContextRefiner(bundle))

    def outcomes(self, validation: Validation) -> Outcomes:
        """Answers to the queries of a validation."""
        if self.refiner is None:
            return validation.outcomes(None, [self.line])[self.line]
        refine, k = refine_by(self.refiner), self.refiner.n_neighbors
        return validation.outcomes(refine, [self.line], n_neighbors=k)[self.line]


def cross_fit(
    trainer: RefinerTrainer, items: EmbeddingSet, present: PresentLine | None = None
) -> TrainingResult:
    """Train on all classes, and measure on classes that were held out of trainings like it.

    The network is the one of all classes; records, verdict and gains are those of the folds. Of the gains
    `unrefined` compares refinement alone with none, `present` the line of the verdict with the present one,
    by default searches without refinement.
    """
    config = trainer.recipe.validation
    needed = max(_FEWEST_A_FOLD * config.folds, int(np.ceil(1.0 / config.fpir)))
    if items.n_paired_classes < needed:
        raise RefinerTrainingError(
            f"{items.n_paired_classes} labels have two items or more, and at least {needed} are needed to "
            "train on some and measure on the others: label more"
        )
    with tempfile.TemporaryDirectory() as folder:
        return _CrossFitting(trainer, items, Path(folder)).run(present or PresentLine(Line("off")))


@dataclass
class _Fold:
    """Fold of the classes, and the answers at each look at the network that was trained without it."""

    number: int
    validation: Validation
    folder: Path
    losses: list[float] = field(default_factory=list)
    found: list[dict[Sides, Outcomes]] = field(default_factory=list)

    def look(self, network: ContextRefinerNetwork, loss: float) -> dict[Sides, Outcomes]:
        """Measure the network, and keep it."""
        torch.save(network.state_dict(), self._path(len(self.found)))
        self.found.append(self.validation.outcomes_by_side(refine_with(network)))
        self.losses.append(loss)
        return self.found[-1]

    def at(self, look: int, network: ContextRefinerNetwork) -> Refine:
        """The network as it was at a look, put into another one."""
        network.load_state_dict(torch.load(self._path(look), weights_only=True))
        return refine_with(network)

    def _path(self, look: int) -> Path:
        return self.folder / f"{self.number}-{look}.pt"


class _CrossFitting:
    """All trainings of one cross-fitting."""

    def __init__(self, trainer: RefinerTrainer, items: EmbeddingSet, folder: Path) -> None:
        self.trainer, self.recipe, self.items, self.folder = trainer, trainer.recipe, items, folder
        self.steps: list[int] = []

    def run(self, present: PresentLine) -> TrainingResult:
        n_folds = self.recipe.validation.folds
        dealt = self.items.deal_classes(n_folds, self.recipe.seed)
        folds = [self._fit(number, dealt == number) for number in range(n_folds)]
        records = [self._record(folds, look) for look in range(len(self.steps))]
        best = min(records, key=lambda one: one.order)
        whole = self.trainer.begin(self.items)
        verdict, gains = self._judge(folds, copy.deepcopy(whole.network), present)
        for _ in whole.checkpoints(self._reporter(n_folds), until=best.step):
            pass
        network = whole.network.eval()
        return TrainingResult(network, records, best, verdict, len(self.items), whole.n_classes, gains)

    def _fit(self, number: int, held: Mask) -> _Fold:
        """Train without a fold, and look how it does on it."""
        recipe, kept = self.recipe, self.items.subset(~held)
        validation = Validation(
            self.items.subset(held),
            recipe.refiner.n_neighbors,
            recipe.validation,
            seed=recipe.seed,
            beside=kept,
        )
        fold, training = _Fold(number, validation, self.folder), self.trainer.begin(kept)
        self.steps = []
        for step, loss in training.checkpoints(self._reporter(number)):
            found = fold.look(training.network, loss)
            self.steps.append(step)
            if self.trainer.on_record:
                self.trainer.on_record(TrainingRecord(step, loss, self._figures([found])))
        return fold

    def _judge(
        self, folds: Sequence[_Fold], network: ContextRefinerNetwork, present: PresentLine
    ) -> tuple[Verdict, dict[str, Gain]]:
        """Measure each fold at the step that the others like."""
        looks = [self._best_look([other for other in folds if other is not one]) for one in folds]
        found = [fold.found[look] for fold, look in zip(folds, looks, strict=True)]
        figures = self._figures(found)
        line = Line(choose_sides(figures), "contextual")
        reranked = Outcomes.join(
            [
                fold.validation.outcomes(fold.at(look, network), [line])[line]
                for fold, look in zip(folds, looks, strict=True)
            ]
        )
        before = Outcomes.join([present.outcomes(fold.validation) for fold in folds])
        fpir, seed = self.recipe.validation.fpir, self.recipe.seed
        verdict = verdict_of(figures, reranked, fpir)
        refined = Outcomes.join([one[line.sides] for one in found])
        unrefined = Outcomes.join([one["off"] for one in found])
        chosen = refined if verdict.rerank == "off" else reranked
        return verdict, {
            "unrefined": measure_gain(unrefined, refined, fpir, seed=seed),
            "present": measure_gain(before, chosen, fpir, seed=seed),
        }

    def _best_look(self, folds: Sequence[_Fold]) -> int:
        return min(range(len(self.steps)), key=lambda look: self._record(folds, look).order)

    def _record(self, folds: Sequence[_Fold], look: int) -> TrainingRecord:
        loss = float(np.mean([fold.losses[look] for fold in folds]))
        return TrainingRecord(self.steps[look], loss, self._figures([fold.found[look] for fold in folds]))

    def _figures(self, found: Sequence[dict[Sides, Outcomes]]) -> dict[Sides, SideFigures]:
        fpir = self.recipe.validation.fpir
        return {sides: Outcomes.join([one[sides] for one in found]).figures(fpir) for sides in SIDES}

    def _reporter(self, number: int) -> Callable[[int, int], None]:
        """Counts the steps of one training among those of all."""
        n_steps, report = self.recipe.optimizer.steps, self.trainer.on_step
        total = (self.recipe.validation.folds + 1) * n_steps

        def count(step: int, last: int) -> None:
            if report is not None:
                # The last training may be shorter.
                report(total if number and step == last < n_steps else number * n_steps + step, total)

        return count

"""Run of a fitting (torch): look at the machine's speed, try without some labels, learn from all, report."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import HalfFloats
from vicinal.models.bundle import ModelBundle, read_fingerprint
from vicinal.models.errors import ConfigError
from vicinal.models.probe import write_probe
from vicinal.models.progress import OnProgress, no_progress
from vicinal.training.backbones.front_maps import (
    MAPS_FILE,
    PROGRESS_FILE,
    EarlierMaps,
    discard_maps,
    no_earlier_maps,
)
from vicinal.training.backbones.weights import PACKAGED_WEIGHTS
from vicinal.training.card import write_card, write_notice
from vicinal.training.checkpoint import CHECKPOINT_FILE
from vicinal.training.config import TrainingConfig
from vicinal.training.datasets import list_images
from vicinal.training.datasets.layouts.demo_catalog import DemoCatalogConfig
from vicinal.training.export.choice import give_form
from vicinal.training.export.network import export_network
from vicinal.training.export.sample import Sample
from vicinal.training.files import write_text
from vicinal.training.fitting.labelled_images import LabelledImages, Split
from vicinal.training.fitting.plan import (
    MOST_TRIED_ON,
    SECONDS_OF_AN_EXPORT,
    SHARE_PLANNED,
    FitPlan,
    FitSize,
    plan_fit,
    steps_in,
)
from vicinal.training.fitting.recipe import PHOTOS_FILE, FitRecipe
from vicinal.training.fitting.report import FitReport, PhotosUsed
from vicinal.training.fitting.speed import Watcher, look_at_speed, threads_of_torch
from vicinal.training.fitting.trial import FitTrial, carry_refiner, search_held_out
from vicinal.training.recipe import RUN_FILES, Start, bundle_fields, files_of_run
from vicinal.training.trainer import Trainer, TrainingResult

PLAN_FILE = "fit-plan.json"
REPORT_FILE = "fit.json"
# Network and measurements without the held-out labels; the folder goes when the bundle is there.
TRIAL_FOLDER = "trial"
TRIAL_FILE = "trial.json"

# Photos that the form of the final network is tried on.
_AGREED_ON = 200
# A machine that looks so much slower or faster than it was is believed.
_SLOWER, _FASTER = 4.0, 0.5


class Fitting:
    """Adaptation of the model to photos.

    The refiner of the bundle `before`, which is used so far, is carried over where it fits. `report` gets the
    progress in the stages `try`, `views`, `trial` and `measure`, then `views` again, `train` and `export`;
    `on_plan` what is learned from, as soon as that is known. The minutes count from `began`, by
    `time.monotonic`.
    """

    def __init__(
        self,
        photos: LabelledImages,
        split: Split,
        output: Path,
        before: ModelBundle,
        *,
        minutes: float = 15.0,
        seed: int = 0,
        recipe: Path | None = None,
        report: OnProgress = no_progress,
        began: float | None = None,
        on_plan: Callable[[PhotosUsed], None] = lambda _: None,
    ) -> None:
        self.photos, self.output, self.before = photos, output, before
        self.minutes, self.seed = minutes, seed
        self.report, self.on_plan = report, on_plan
        self.recipe = FitRecipe.of(photos, split, before, output, seed=seed, path=recipe)
        self.split = split
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic() if began is None else began
        # Seconds of a step of the trial.
        self._step: float | None = None

    def run(self, start: Start = "new") -> FitReport:
        """Train without the held-out labels, measure on them, then train on all in the same way."""
        self._prepare(start)
        plan = self.plan = self._plan()
        if start == "resume" and (self.output / REPORT_FILE).is_file():
            self._clean()
            return FitReport.model_validate_json((self.output / REPORT_FILE).read_bytes())
        self.on_plan(self.photos.used(self.split))
        with threads_of_torch(plan.speed.threads):
            trial = self._trial(plan, is_resumed=start == "resume")
            bundle = self._learn_all(trial, is_resumed=start == "resume")
        report = self._report(bundle, plan, trial)
        write_notice(bundle)
        write_card(bundle)
        write_probe(bundle)
        write_text(self.output / REPORT_FILE, report.model_dump_json(indent=2) + "\n")
        self._clean()
        return report

    def _clean(self) -> None:
        """Remove what only a run that goes on needs."""
        discard_maps(self.output)
        (self.output / CHECKPOINT_FILE).unlink(missing_ok=True)
        shutil.rmtree(self.output / TRIAL_FOLDER, ignore_errors=True)

    def _prepare(self, start: Start) -> None:
        if self.recipe.others and self.output.absolute().name == DemoCatalogConfig.name:
            raise ConfigError("drawn products go by the name 'demo': ", advise("choose another {output}"))
        files = (*RUN_FILES, PHOTOS_FILE, PLAN_FILE, REPORT_FILE, TRIAL_FOLDER)
        found = files_of_run(self.output, files, start)
        if start == "overwrite" and found:
            if not (self.output / PLAN_FILE).is_file() and read_fingerprint(self.output) is None:
                raise ConfigError(f"'{self.output}' is no bundle and is not overwritten: choose another")
            shutil.rmtree(self.output)
        self.output.mkdir(parents=True, exist_ok=True)

    def _plan(self) -> FitPlan:
        """The plan of the run: made now, or that of the run that is resumed."""
        path = self.output / PLAN_FILE
        asked: dict[str, str | int | float] = {
            "photos": self.photos.digest,
            "minutes": self.minutes,
            "seed": self.seed,
            "bundle": self.before.fingerprint,
            "recipe": self.recipe.digest,
        }
        if path.is_file():
            plan = FitPlan.model_validate_json(path.read_bytes())
            if others := [name for name, value in asked.items() if plan.asked.get(name) != value]:
                raise ConfigError(
                    f"the run in '{self.output}' was begun with other {', '.join(others)}: ",
                    advise("bring them back, start anew with {overwrite}, or write elsewhere"),
                )
            self.split = self._narrowed(plan)
            return plan
        if (self.output / REPORT_FILE).is_file():
            raise ConfigError(
                f"nothing tells what the run in '{self.output}' was begun with: ",
                advise("start anew with {overwrite}, or write elsewhere"),
            )
        with self._timed("try"):
            self.report("try", 0, 1)
            speed = look_at_speed(self.recipe)
            self.report("try", 1, 1)
        _, sizes = np.unique(self.photos.codes[self.split.training], return_counts=True)
        plan = plan_fit(
            sizes,
            int(self.split.held_out.sum()),
            self.recipe.n_drawn,
            speed,
            minutes=self.minutes,
            spent=time.monotonic() - self._began,
            asked=asked,
            n_losses=len(self.recipe.losses()),
        )
        self.split = self._narrowed(plan)
        self.photos.write_manifest(self.output / PHOTOS_FILE, self.split)
        write_text(path, plan.model_dump_json(indent=2) + "\n")
        return plan

    def _narrowed(self, plan: FitPlan) -> Split:
        if plan.per_label is None:
            return self.split
        return self.photos.at_most(plan.per_label, self.split, self.seed)

    def _trial(self, plan: FitPlan, *, is_resumed: bool) -> FitTrial:
        """Ask the held-out labels, or read what an earlier start of the run found."""
        folder = self.output / TRIAL_FOLDER
        path = folder / TRIAL_FILE
        if path.is_file():
            return FitTrial.model_validate_json(path.read_bytes())
        config, result, steps = self._train("trial", plan.steps, True, is_resumed=is_resumed)
        held_out = list_images(config.validation_datasets[0])
        with self._timed("form"):
            bundle = export_network(result.network, folder, bundle_fields(config, result))
            some = sorted(held_out.files, key=lambda file: str(file.label))[:MOST_TRIED_ON]
            sample = Sample(replace(held_out, files=tuple(some)), is_labelled=True)
            bundle = give_form(bundle, "auto", sample)
        with self._timed("measure"):
            figures, verdict = search_held_out(
                self.before,
                bundle,
                held_out,
                list_images(config.datasets[0]),
                seed=self.seed,
                on_embedded=lambda done, total: self.report("measure", done, total),
            )
        trial = FitTrial(
            share=result.share,
            steps=steps,
            form=bundle.manifest.precision or "float32",
            verdict=verdict,
            figures=figures,
        )
        write_text(path, trial.model_dump_json(indent=2) + "\n")
        return trial

    def _learn_all(self, trial: FitTrial, *, is_resumed: bool) -> ModelBundle:
        """The bundle of a network that learned from all labels as the trial says."""
        # All the way is no point between the ends.
        share = trial.share if trial.share < 1.0 else False
        config, result, _ = self._train("train", trial.steps, share, is_resumed=is_resumed)
        torch.save(result.network.state_dict(), self.output / "weights.pt")
        with self._timed("export"):
            self.report("export", 0, 1)
            fields = bundle_fields(config.with_steps(self.plan.decided["train"]), result)
            fields["training"]["loss"] = ", ".join(self._losses)
            packaged = PACKAGED_WEIGHTS.get(config.backbone.name)
            if config.backbone.weights == "package" and packaged is not None:
                licence = config.licence if config.licence != "unknown" else packaged.licence
                fields |= {"licence": licence, "source": packaged.source}
            bundle = export_network(result.network, self.output, fields)
            # Searches among photos that it learned from would flatter every form, so that none is measured.
            listing = list_images(config.datasets[0])
            some = listing.files[:: max(1, len(listing) // _AGREED_ON)]
            bundle = give_form(bundle, trial.form, Sample(replace(listing, files=some)))
            bundle = carry_refiner(self.before, bundle, trial.verdict)
            self.report("export", 1, 1)
        return bundle

    @property
    def _losses(self) -> list[str]:
        """Losses that there is time for."""
        return self.recipe.losses()[: self.plan.n_losses]

    def _train(
        self, stage: Literal["trial", "train"], steps: int, interpolate: bool | float, *, is_resumed: bool
    ) -> tuple[TrainingConfig, TrainingResult, int]:
        """Train with each loss and average the weights; the last configuration, the result, the best step."""
        part: Literal["trial", "all"] = "trial" if stage == "trial" else "all"
        folder = self.output / TRIAL_FOLDER if stage == "trial" else self.output
        earlier = self._earlier() if stage == "train" else no_earlier_maps
        averaged: list[Mapping[str, Tensor]] = []
        best = 0
        with self._timed(stage):
            for number, loss in enumerate(self._losses, start=1):
                own = folder if number == 1 else _beside(folder, self.output / TRIAL_FOLDER / stage / loss)
                own.mkdir(exist_ok=True)
                config = self.recipe.config(self.output, part, views=self.plan.views, steps=steps, loss=loss)
                is_last = number == len(self._losses)
                config = config.model_copy(update={"interpolate": interpolate if is_last else False})
                others = tuple(averaged) if is_last else ()
                watcher = Watcher(self.report, stage)
                watcher.decide = partial(self._decided, stage, watcher=watcher)
                trainer = Trainer(config, folder=own, observer=watcher, earlier=earlier, averaged=others)
                # A run may have been killed before this training began.
                result = trainer.run(resume=is_resumed and (own / CHECKPOINT_FILE).is_file())
                averaged.append(result.network.state_dict())
                best = max(best, result.best.step)
                if len(watcher.steps) > 2:
                    self._step = float(np.median(np.diff(watcher.steps)))
        return config, result, best

    def _decided(self, stage: Literal["trial", "train"], planned: int, watcher: Watcher) -> int:
        """Steps that there is time for, now that the views are there; a resumed run takes the same."""
        if stage not in self.plan.decided:
            left = 60.0 * SHARE_PLANNED * self.minutes - (time.monotonic() - self._began)
            if stage == "trial":
                size, plan = self._size, self.plan
                n_views = plan.views * (size.n_training + size.n_drawn) + size.n_held_out
                slower = watcher.seconds_of_views / (n_views * plan.speed.view)
                speed = plan.speed.times(float(np.clip(slower, _FASTER, _SLOWER)))
                steps = size.steps_of_trial(left, speed, plan.views)
            else:
                step, end = self._step or self.plan.speed.step, self.seconds.get("form", SECONDS_OF_AN_EXPORT)
                steps = min(planned, steps_in(left - end, len(self._losses) * step))
            self.plan = self.plan.model_copy(update={"decided": {**self.plan.decided, stage: steps}})
            write_text(self.output / PLAN_FILE, self.plan.model_dump_json(indent=2) + "\n")
        return self.plan.decided[stage]

    @property
    def _size(self) -> FitSize:
        n_held_out = int(self.split.held_out.sum())
        return FitSize(int(self.split.training.sum()), n_held_out, self.recipe.n_drawn, self.plan.n_losses)

    def _earlier(self) -> EarlierMaps:
        """Maps of the trial's photos: those before and after the held-out ones in the manifest."""
        path, size, views = self.output / TRIAL_FOLDER / MAPS_FILE, self._size, self.plan.views
        n_rows = views * (size.n_training + size.n_drawn) + size.n_held_out
        rows = np.load(path, mmap_mode="r") if path.is_file() else np.empty(0, np.float16)
        if len(rows) != n_rows:
            return no_earlier_maps

        def maps_of(position: int) -> HalfFloats | None:
            if size.n_training <= position < size.n_training + size.n_held_out:
                return None
            place = position if position < size.n_training else position - size.n_held_out
            return np.asarray(rows[place * views : (place + 1) * views])

        return maps_of

    def _report(self, bundle: ModelBundle, plan: FitPlan, trial: FitTrial) -> FitReport:
        return FitReport(
            **trial.figures.model_dump(),
            **self.photos.used(self.split).model_dump(),
            bundle=str(self.output),
            name=bundle.name,
            fingerprint=bundle.fingerprint,
            losses=tuple(self._losses),
            share=trial.share,
            views=plan.views,
            steps=trial.steps,
            precision=bundle.manifest.precision,
            seconds={name: round(value, 1) for name, value in self.seconds.items()},
        )

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[stage] = time.monotonic() - started


def _beside(folder: Path, own: Path) -> Path:
    """A folder of its own for another loss, with the same maps of the front."""
    own.mkdir(parents=True, exist_ok=True)
    for name in (MAPS_FILE, PROGRESS_FILE):
        if (folder / name).is_file() and not (own / name).exists():
            (own / name).hardlink_to(folder / name)
    return own

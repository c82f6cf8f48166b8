"""Run of a fitting (torch): look at the machine's speed, try without some labels, learn from all, report."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import FloatArray, HalfFloats, Mask
from vicinal.models.bundle import ModelBundle, read_fingerprint
from vicinal.models.configs.file import checked, read_toml
from vicinal.models.embedder import Embedder
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
from vicinal.training.fitting.doubtful_labels import (
    choose_photos,
    doubtful_labels,
    embed_photos,
    write_doubtful,
)
from vicinal.training.fitting.labelled_images import LabelledImages, Split
from vicinal.training.fitting.plan import (
    MOST_TRIED_ON,
    SECONDS_OF_AN_EXPORT,
    SHARE_PLANNED,
    FitPlan,
    FitSize,
    FitSpeed,
    plan_fit,
    steps_in,
)
from vicinal.training.fitting.report import FitReport, LabelLook, PhotosUsed
from vicinal.training.fitting.trial import FitTrial, carry_refiner, search_held_out
from vicinal.training.losses.config import LossConfig, named_loss
from vicinal.training.observer import StepProgress, TrainingObserver
from vicinal.training.recipe import RUN_FILES, Start, bundle_fields, files_of_run
from vicinal.training.trainer import Trainer, TrainingResult

PHOTOS_FILE = "photos.csv"
PLAN_FILE = "fit-plan.json"
REPORT_FILE = "fit.json"
DOUBTFUL_FILE = "doubtful-labels.csv"
# Network and measurements without the held-out labels; the folder goes when the bundle is there.
TRIAL_FOLDER = "trial"
TRIAL_FILE = "trial.json"
RECIPE = Path(__file__).with_name("recipe.toml")

# Photos, views and steps of the look at the machine's speed.
_TRIED_LABELS = 16
_TRIED_VIEWS = 2
_TRIED_STEPS = 3
_TRIED_PHOTOS = 24
_VALIDATIONS = 6
# Photos that are looked at for wrong labels, and the share of the minutes that it may take.
_MOST_LOOKED = 5000
_FOR_THE_LOOK = 0.08
# From so many on, wrong labels cost recall@k less than multi-similarity. Half of them are found.
_MANY_DOUBTFUL = 0.05
_NAMED_DOUBTFUL = 5
# Which of them is better depends on the photos; both learn from the same views.
_BUILT_IN_LOSS, _OTHER_LOSS = "multi_similarity", "recall_at_k"
# Photos that the form of the final network is tried on.
_AGREED_ON = 200
# A machine that looks so much slower or faster than it was is believed.
_SLOWER, _FASTER = 4.0, 0.5
# What drawn products add is classes: with so many of their own, photos learn better without. 38 labels gain
# by them, 637 lose; where between the two it turns was not measured.
_MANY_LABELS = 150
# A catalog of drawn products for so many photos: with few of them, drawing would take most of the time.
_PHOTOS_A_CATALOG = 600


@dataclass
class _Watcher(TrainingObserver):
    """Passes on how far the training is, and notes how long what takes; `views` are (time, images done)."""

    report: OnProgress
    stage: str
    notices: list[str] = field(default_factory=list)
    views: list[tuple[float, int]] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    decide: Callable[[int], int] = lambda steps: steps

    def on_views(self, done: int, total: int) -> None:
        self.views.append((time.monotonic(), done))
        self.report("views", done, total)

    @property
    def seconds_of_views(self) -> float:
        """Seconds that the views of all images take, by those that were made in this start of the run."""
        (first, done), (last, total) = self.views[0], self.views[-1]
        return (last - first) * total / max(1, total - done)

    def on_ready(self, steps: int) -> int:
        return self.decide(steps)

    def on_start(self) -> None:
        self.steps.append(time.monotonic())

    def on_step(self, progress: StepProgress) -> None:
        self.steps.append(time.monotonic())
        latest = progress.latest
        note = (
            ""
            if latest is None or math.isnan(latest.hit_rate_1)
            else f"first answer right: {100 * latest.hit_rate_1:.0f} of 100"
        )
        self.report(self.stage, progress.step, progress.n_steps, note)

    def on_notice(self, text: str) -> None:
        self.notices.append(text)


@dataclass
class _TryingThreads(_Watcher):
    """Takes the first half of the steps with all threads of torch, the second with one.

    On a processor that others use too, threads that wait for each other are slower than one alone.
    """

    threads: int = 0

    def on_start(self) -> None:
        self.threads = torch.get_num_threads()
        super().on_start()

    def on_step(self, progress: StepProgress) -> None:
        super().on_step(progress)
        if progress.step == progress.n_steps // 2:
            torch.set_num_threads(1)
            self.steps.append(time.monotonic())

    @property
    def speed(self) -> tuple[float, int]:
        """Seconds of a step, and threads that it takes so long with."""
        half = len(self.steps) // 2
        parts = (self.steps[:half], self.threads), (self.steps[half:], 1)
        # The first step of each half prepares what the others have.
        return min((float(np.median(np.diff(times)[1:])), threads) for times, threads in parts)


class Fitting:
    """Adaptation of the model to photos.

    The refiner of the bundle `before`, which is used so far, is carried over where it fits. `report` gets the
    progress in the stages `try`, `labels`, `views`, `trial` and `measure`, then `views` again, `train` and
    `export`; `on_plan` what is learned from and which labels look wrong, as soon as that is known. The
    minutes count from `began`, by `time.monotonic`.
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
        on_plan: Callable[[PhotosUsed, LabelLook], None] = lambda *_: None,
    ) -> None:
        self.photos, self.output, self.before = photos, output, before
        self.minutes, self.seed = minutes, seed
        self.report, self.on_plan = report, on_plan
        self.recipe = read_toml(recipe or RECIPE)
        self.split = split
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic() if began is None else began
        # Seconds of a step of the trial, and embeddings of the bundle before, by file.
        self._step: float | None = None
        self._known: dict[str, FloatArray] = {}

    def run(self, start: Start = "new") -> FitReport:
        """Train without the held-out labels, measure on them, then train on all in the same way."""
        self._prepare(start)
        plan = self.plan = self._plan()
        if start == "resume" and (self.output / REPORT_FILE).is_file():
            self._clean()
            return FitReport.model_validate_json((self.output / REPORT_FILE).read_bytes())
        self.on_plan(self.photos.used(self.split), plan.look)
        with _threads(plan.speed.threads):
            trial = self._trial(plan, is_resumed=start == "resume")
            bundle = self._learn_all(plan, trial, is_resumed=start == "resume")
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
        if self._others and self.output.absolute().name == DemoCatalogConfig.name:
            raise ConfigError("drawn products go by the name 'demo': ", advise("choose another {output}"))
        files = (*RUN_FILES, PHOTOS_FILE, PLAN_FILE, REPORT_FILE, DOUBTFUL_FILE, TRIAL_FOLDER)
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
            "recipe": hashlib.sha256(json.dumps(self.recipe, default=str).encode()).hexdigest(),
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
            speed = self._speed()
        with self._timed("labels"):
            look = self._look(speed)
        _, sizes = np.unique(self.photos.codes[self.split.training], return_counts=True)
        plan = plan_fit(
            sizes,
            int(self.split.held_out.sum()),
            self._n_drawn,
            speed,
            minutes=self.minutes,
            spent=time.monotonic() - self._began,
            asked=asked,
            look=look,
            n_trials=len(self._losses(look)),
        )
        self.split = self._narrowed(plan)
        self.photos.write_manifest(self.output / PHOTOS_FILE, self.split)
        write_text(path, plan.model_dump_json(indent=2) + "\n")
        return plan

    def _narrowed(self, plan: FitPlan) -> Split:
        if plan.per_label is None:
            return self.split
        return self.photos.at_most(plan.per_label, self.split, self.seed)

    def _look(self, speed: FitSpeed) -> LabelLook:
        """Find labels that look wrong, by the bundle before, which has learned nothing of these labels."""
        most = int(min(_MOST_LOOKED, _FOR_THE_LOOK * 60.0 * self.minutes / speed.photo))
        looked = choose_photos(self.photos, most, self.seed)
        self._known = embed_photos(self.before, [self.photos.paths[i] for i in looked], self.report)
        doubtful = doubtful_labels(self.photos, looked, self._known)
        if doubtful:
            write_doubtful(self.output / DOUBTFUL_FILE, doubtful)
        is_many = len(doubtful) > _MANY_DOUBTFUL * len(looked)
        return LabelLook(
            n_looked=len(looked),
            n_doubtful=len(doubtful),
            # Where a report goes, the folders of this machine are nobody's.
            doubtful=tuple(
                one.model_copy(update={"file": Path(one.file).name}) for one in doubtful[:_NAMED_DOUBTFUL]
            ),
            safer_loss=_OTHER_LOSS if is_many and self._own_loss == _BUILT_IN_LOSS else None,
        )

    @property
    def _own_loss(self) -> str:
        """Loss that the recipe names."""
        loss = named_loss(self.recipe.get("loss", {}))
        return checked(LossConfig, loss, "the recipe of the fitting").name

    def _losses(self, look: LabelLook) -> list[str]:
        """Losses to try: the recipe's, and beside the built-in one's the other."""
        if look.safer_loss is not None:
            return [look.safer_loss]
        is_cut = bool(self.recipe["backbone"].get("frozen_stages", 0))
        own = self._own_loss
        return [own, _OTHER_LOSS] if is_cut and own == _BUILT_IN_LOSS else [own]

    @property
    def _n_drawn(self) -> int:
        return sum(1 for one in self._others for _ in DemoCatalogConfig.model_validate(one).rows())

    def _speed(self) -> FitSpeed:
        """Train a few steps on a few photos, embed some, and take the time."""
        some = np.unique(self.photos.codes[self.split.training])[:_TRIED_LABELS]
        few = Split(self.split.training & np.isin(self.photos.codes, some), self.split.held_out & False)
        few = self.photos.at_most(4, few, self.seed)
        self.report("try", 0, 1)
        watcher, threads = _TryingThreads(lambda *_: None, "try"), torch.get_num_threads()
        with tempfile.TemporaryDirectory() as folder:
            self.photos.write_manifest(Path(folder) / PHOTOS_FILE, few)
            config = self._config(Path(folder), "try", views=_TRIED_VIEWS, steps=2 * _TRIED_STEPS)
            try:
                Trainer(config, observer=watcher).run()
            finally:
                torch.set_num_threads(threads)
        embedder = Embedder(self.before, device="cpu")
        tried = [self.photos.paths[i].read_bytes() for i in np.flatnonzero(few.training)[:_TRIED_PHOTOS]]
        # The first call finds memory.
        embedder.embed(tried[:2])
        started = time.monotonic()
        embedder.embed(tried)
        photo = (time.monotonic() - started) / len(tried)
        self.report("try", 1, 1)
        first, last = watcher.views[0], watcher.views[-1]
        n_views = _TRIED_VIEWS * (last[1] - first[1])
        step, fewer = watcher.speed
        return FitSpeed(
            view=max(1e-6, (last[0] - first[0]) / n_views),
            step=max(1e-6, step),
            photo=max(1e-6, photo),
            threads=fewer,
            batch_size=config.sampler.batch_size,
        )

    def _trial(self, plan: FitPlan, *, is_resumed: bool) -> FitTrial:
        """Ask the held-out labels, or read what an earlier start of the run found."""
        folder = self.output / TRIAL_FOLDER
        path = folder / TRIAL_FILE
        if path.is_file():
            return FitTrial.model_validate_json(path.read_bytes())
        configs: dict[str, TrainingConfig] = {}
        results: dict[str, TrainingResult] = {}
        for loss in self._losses(plan.look)[: plan.n_trials]:
            own = folder if not results else _beside(folder, loss)
            configs[loss] = self._config(self.output, "trial", views=plan.views, steps=plan.steps, loss=loss)
            results[loss] = self._train(configs[loss], own, is_resumed=is_resumed, stage="trial")
        # Of figures that are no numbers the first is taken.
        loss = max(results, key=lambda one: (results[one].map_at_r, one == _BUILT_IN_LOSS))
        config, result = configs[loss], results[loss]
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
                known=self._known,
                on_embedded=lambda done, total: self.report("measure", done, total),
            )
        trial = FitTrial(
            loss=loss,
            share=result.share,
            steps=result.best.step,
            form=bundle.manifest.precision or "float32",
            verdict=verdict,
            figures=figures,
        )
        write_text(path, trial.model_dump_json(indent=2) + "\n")
        return trial

    def _learn_all(self, plan: FitPlan, trial: FitTrial, *, is_resumed: bool) -> ModelBundle:
        """The bundle of a network that learned from all labels as the trial says."""
        config = self._config(self.output, "all", views=plan.views, steps=trial.steps, loss=trial.loss)
        # All the way is no point between the ends.
        config = config.model_copy(update={"interpolate": trial.share if trial.share < 1.0 else False})
        result = self._train(config, self.output, is_resumed=is_resumed, stage="train")
        torch.save(result.network.state_dict(), self.output / "weights.pt")
        with self._timed("export"):
            self.report("export", 0, 1)
            fields = bundle_fields(config.with_steps(self.plan.decided["train"]), result)
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

    def _train(
        self, config: TrainingConfig, folder: Path, *, is_resumed: bool, stage: Literal["trial", "train"]
    ) -> TrainingResult:
        # A run may have been killed before this training began.
        goes_on = is_resumed and (folder / CHECKPOINT_FILE).is_file()
        with self._timed(stage):
            folder.mkdir(exist_ok=True)
            watcher = _Watcher(self.report, stage)
            watcher.decide = lambda steps: self._decided(stage, steps, watcher)
            earlier = self._earlier() if stage == "train" else no_earlier_maps
            result = Trainer(config, folder=folder, observer=watcher, earlier=earlier).run(resume=goes_on)
        if len(watcher.steps) > 2:
            self._step = float(np.median(np.diff(watcher.steps)))
        return result

    def _decided(self, stage: Literal["trial", "train"], planned: int, watcher: _Watcher) -> int:
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
                steps = min(planned, steps_in(left - end, step))
            self.plan = self.plan.model_copy(update={"decided": {**self.plan.decided, stage: steps}})
            write_text(self.output / PLAN_FILE, self.plan.model_dump_json(indent=2) + "\n")
        return self.plan.decided[stage]

    @property
    def _size(self) -> FitSize:
        n_held_out = int(self.split.held_out.sum())
        return FitSize(int(self.split.training.sum()), n_held_out, self._n_drawn, self.plan.n_trials)

    def _earlier(self) -> EarlierMaps:
        """Maps of the trial's photos, which stand before the held-out ones in the manifest, and of the others
        after them.
        """
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

    def _config(
        self,
        folder: Path,
        part: Literal["try", "trial", "all"],
        *,
        views: int,
        steps: int,
        loss: str | None = None,
    ) -> TrainingConfig:
        """The recipe with the photos that a manifest in a folder lists; a try takes nothing else."""
        photos: dict[str, Any] = {"kind": "manifest", "root": folder.absolute(), "file": PHOTOS_FILE}
        recipe, section = self.recipe, self.before.manifest.refiner
        others = [] if part == "try" else self._others
        backbone = dict(recipe["backbone"])
        if section is not None and section.architecture.form == "gated" and "dim" in backbone:
            # Its refiner can only go along to embeddings of this length.
            backbone["dim"] = self.before.dim
        changes: dict[str, Any] = {
            **({} if loss in (None, self._own_loss) else {"loss": {"name": loss}}),
            "name": _name(self.output),
            "backbone": backbone,
            "seed": self.seed,
            "datasets": [photos if part == "all" else {**photos, "split": "train"}, *others],
            "sampler": self._sampler(folder.absolute().name, part, is_shared=bool(others)),
            "optimizer": {**recipe.get("optimizer", {}), "steps": steps},
            "augmentation": {**recipe.get("augmentation", {}), "views": views},
            "validate_every": max(1, steps // _VALIDATIONS),
        }
        if part == "trial":
            changes |= {"validation_datasets": [{**photos, "split": "held-out"}]}
        else:
            changes |= {"validation_share": 0.0, "patience": None, "interpolate": False}
        return checked(TrainingConfig, {**recipe, **changes}, "the recipe of the fitting")

    @property
    def _others(self) -> list[dict[str, Any]]:
        """Data sets of the recipe that share the batches with the photos, where these have few labels."""
        if len(np.unique(self.photos.codes[self._used])) >= _MANY_LABELS:
            return []
        n_catalogs = max(1, int((~self.photos.is_single).sum()) // _PHOTOS_A_CATALOG)
        return [
            {**one, "seeds": one["seeds"][:n_catalogs]} if "seeds" in one else one
            for one in self.recipe.get("datasets", [])
        ]

    def _sampler(self, name: str, part: str, *, is_shared: bool) -> dict[str, Any]:
        """Batches of the photos' labels; half of a shared one is of the recipe's data sets."""
        sampler = {"per_class": 4, "batch_size": 64, **self.recipe.get("sampler", {})}
        n_labels = len(np.unique(self.photos.codes[self._used if part == "all" else self.split.training]))
        n_classes = sampler["batch_size"] // sampler["per_class"]
        if not is_shared:
            return {**sampler, "batch_size": min(n_labels, n_classes) * sampler["per_class"]}
        own = min(n_labels, n_classes // 2)
        return {
            **sampler,
            "kind": "source_balanced",
            "batch_size": 2 * own * sampler["per_class"],
            "classes_per_source": {name: own, DemoCatalogConfig.name: own},
        }

    @property
    def _used(self) -> Mask:
        """(n,) photos that the bundle learns from: all but those alone with their label."""
        used: Mask = (self.split.training | self.split.held_out) & ~self.photos.is_single
        return used

    def _report(self, bundle: ModelBundle, plan: FitPlan, trial: FitTrial) -> FitReport:
        return FitReport(
            **trial.figures.model_dump(),
            **self.photos.used(self.split).model_dump(),
            **plan.look.model_dump(),
            bundle=str(self.output),
            name=bundle.name,
            fingerprint=bundle.fingerprint,
            loss=trial.loss,
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


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Let torch use the number of the plan: with another, sums of a resumed run would end otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _beside(folder: Path, loss: str) -> Path:
    """A folder for the trial of another loss, with the same maps of the front."""
    own = folder / loss
    own.mkdir(exist_ok=True)
    for name in (MAPS_FILE, PROGRESS_FILE):
        if (folder / name).is_file() and not (own / name).exists():
            (own / name).hardlink_to(folder / name)
    return own


def _name(output: Path) -> str:
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in output.name.lower())
    return name.lstrip("._-")[:64] or "fitted"

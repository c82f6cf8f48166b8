"""Run of a fitting: look at the machine's speed, train, export, measure, and write the report (torch)."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from vicinal.calibration.rates.paired_bootstrap import LabelDraws, Searches
from vicinal.models.bundle import ModelBundle, read_fingerprint
from vicinal.models.card import write_card, write_notice
from vicinal.models.configs.file import checked, read_toml
from vicinal.models.datasets import list_images
from vicinal.models.datasets.layouts.demo_catalog import DemoCatalogConfig
from vicinal.models.datasets.listing import ImageListing
from vicinal.models.embedder import Embedder
from vicinal.models.export.choice import give_form
from vicinal.models.export.network import export_network
from vicinal.models.export.sample import Sample
from vicinal.models.refiner_manifest import REFINER_FILE, REFINER_WEIGHTS_FILE
from vicinal.models.training.checkpoint import CHECKPOINT_FILE
from vicinal.models.training.config import TrainingConfig
from vicinal.models.training.front_maps import discard_maps
from vicinal.models.training.observer import StepProgress, TrainingObserver
from vicinal.models.training.recipe import RUN_FILES, bundle_fields
from vicinal.models.training.trainer import Trainer
from vicinal.models.weights import PACKAGED_WEIGHTS
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.refine.training.config import ValidationConfig
from vicinal.refine.training.cross_fitting import PresentLine
from vicinal.refine.training.embedding_set import EmbeddingSet
from vicinal.refine.training.gain import PairedDifference, measure_gain
from vicinal.refine.training.validation import SIDES, Line, Outcomes, Validation, choose_sides, verdict_of
from vicinal.service.errors import RequestError
from vicinal.service.fitting.photos import LabelledPhotos, Split
from vicinal.service.fitting.plan import FitPlan, FitSpeed, plan_fit
from vicinal.service.fitting.report import FitReport, Interval

__all__ = ["FitProgress", "Fitting", "Start"]

Start = Literal["new", "resume", "overwrite"]
# Stage, what is done, all there is, and a note for people.
FitProgress = Callable[[str, int, int, str], None]

PHOTOS_FILE = "photos.csv"
PLAN_FILE = "fit-plan.json"
REPORT_FILE = "fit.json"
RECIPE = Path(__file__).with_name("recipe.toml")

# Photos, views and steps of the look at the machine's speed.
_TRIED_LABELS = 16
_TRIED_VIEWS = 2
_TRIED_STEPS = 3
_VALIDATIONS = 6
_FPIR = 0.05
_DRAWS = 4


@dataclass
class _Watcher(TrainingObserver):
    """Passes on how far the training is, and notes how long what takes.

    Attributes:
        report: Gets the progress.
        notices: What the training said.
        views: Time of each call with its images done.
        steps: Time of each step.
    """

    report: FitProgress
    notices: list[str] = field(default_factory=list)
    views: list[tuple[float, int]] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)

    def on_views(self, done: int, total: int) -> None:
        self.views.append((time.monotonic(), done))
        self.report("views", done, total, "")

    def on_start(self) -> None:
        self.steps.append(time.monotonic())

    def on_step(self, progress: StepProgress) -> None:
        self.steps.append(time.monotonic())
        latest = progress.latest
        note = "" if latest is None else f"first answer right: {100 * latest.hit_rate_1:.0f} of 100"
        self.report("train", progress.step, progress.n_steps, note)

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
    """One adaptation of the model to photos.

    Args:
        photos: The photos.
        output: Folder of the new bundle.
        before: The bundle that is used so far; its refiner is carried over where it fits.
        minutes: Minutes that the run may take.
        seed: Seed of everything that is drawn.
        recipe: Training recipe to use in place of the built-in one; the photos go before its data sets.
        report: Gets the progress in the stages `try`, `views`, `train`, `export` and `measure`.

    Raises:
        RequestError: There are too few labels.
        ConfigError: The recipe cannot work.
    """

    def __init__(
        self,
        photos: LabelledPhotos,
        output: Path,
        before: ModelBundle,
        *,
        minutes: float = 15.0,
        seed: int = 0,
        recipe: Path | None = None,
        report: FitProgress = lambda *_: None,
    ) -> None:
        self.photos, self.output, self.before = photos, output, before
        self.minutes, self.seed, self.report = minutes, seed, report
        self.recipe = read_toml(recipe or RECIPE)
        self.split = photos.split(seed)
        self.seconds: dict[str, float] = {}

    def run(self, start: Start = "new") -> FitReport:
        """Train, export, measure.

        Args:
            start: `new` refuses a folder that holds a run, `resume` goes on with it, `overwrite` deletes it.

        Raises:
            RequestError: The folder holds a run, or one of other photos.
            ConfigError: Network and photos do not fit.
            DatasetError: A photo is gone.
            BundleError: The weights cannot be had, or the network cannot be exported.
        """
        self._prepare(start)
        if start == "resume" and (self.output / REPORT_FILE).is_file():
            return FitReport.model_validate_json((self.output / REPORT_FILE).read_bytes())
        plan = self._plan()
        config = self._config(plan)
        with self._timed("train"), _threads(plan.speed.threads):
            watcher = _Watcher(self.report)
            result = Trainer(config, folder=self.output, observer=watcher).run(resume=start == "resume")
            torch.save(result.network.state_dict(), self.output / "weights.pt")
        fields = self._fields(config, bundle_fields(config, result))
        with self._timed("export"):
            self.report("export", 0, 1, "")
            held_out = list_images(config.validation_datasets[0])
            bundle = export_network(result.network, self.output, fields)
            bundle = give_form(bundle, "auto", Sample(held_out, is_labelled=True))
            self.report("export", 1, 1, "")
        with self._timed("measure"):
            report = self._measure(bundle, held_out, config, result.share)
        report = report.model_copy(update={"seconds": _rounded(self.seconds)})
        write_notice(ModelBundle.open(self.output))
        write_card(ModelBundle.open(self.output))
        _write(self.output / REPORT_FILE, report.model_dump_json(indent=2))
        discard_maps(self.output)
        (self.output / CHECKPOINT_FILE).unlink(missing_ok=True)
        return report

    def _prepare(self, start: Start) -> None:
        if self._others and self.output.absolute().name == DemoCatalogConfig.name:
            raise RequestError("drawn products go by the name 'demo': choose another --output")
        files = (*RUN_FILES, PHOTOS_FILE, PLAN_FILE, REPORT_FILE)
        found = [name for name in files if (self.output / name).exists()]
        if found and start == "new":
            raise RequestError(
                f"'{self.output}' already holds a run ({found[0]}): go on with --resume, delete it with "
                "--overwrite, or write elsewhere"
            )
        if start == "overwrite" and found:
            if not (self.output / PLAN_FILE).is_file() and read_fingerprint(self.output) is None:
                raise RequestError(f"'{self.output}' is no bundle and is not overwritten: choose another")
            shutil.rmtree(self.output)
        self.output.mkdir(parents=True, exist_ok=True)

    def _plan(self) -> FitPlan:
        """The plan of the run: made now, or that of the run that is resumed."""
        path, manifest = self.output / PLAN_FILE, self.output / PHOTOS_FILE
        if path.is_file():
            plan = FitPlan.model_validate_json(path.read_bytes())
            split = self._narrowed(plan)
            with tempfile.TemporaryDirectory() as folder:
                again = Path(folder) / PHOTOS_FILE
                self.photos.write_manifest(again, split)
                is_same = again.read_bytes() == manifest.read_bytes()
            if plan.seed != self.seed or not is_same:
                raise RequestError(
                    f"the run in '{self.output}' is of other photos or another --seed: bring them back, or "
                    "start anew with --overwrite"
                )
            self.split = split
            return plan
        with self._timed("try"):
            speed = self._speed()
        _, sizes = np.unique(self.photos.labels[self.split.training], return_counts=True)
        plan = plan_fit(
            sizes,
            int(self.split.held_out.sum()),
            sum(1 for one in self._others for _ in DemoCatalogConfig.model_validate(one).rows()),
            speed,
            minutes=self.minutes,
            spent=self.seconds.get("try", 0.0),
            seed=self.seed,
        )
        self.split = self._narrowed(plan)
        self.photos.write_manifest(manifest, self.split)
        _write(path, plan.model_dump_json(indent=2))
        return plan

    def _narrowed(self, plan: FitPlan) -> Split:
        if plan.per_label is None:
            return self.split
        return self.photos.at_most(plan.per_label, self.split, plan.seed)

    def _speed(self) -> FitSpeed:
        """Train a few steps on a few photos, and take the time."""
        names = np.unique(self.photos.labels[self.split.training])[:_TRIED_LABELS]
        few = Split(self.split.training & np.isin(self.photos.labels, names), self.split.held_out & False)
        few = self.photos.at_most(4, few, self.seed)
        self.report("try", 0, 1, "")
        watcher, threads = _TryingThreads(lambda *_: None), torch.get_num_threads()
        with tempfile.TemporaryDirectory() as folder:
            self.photos.write_manifest(Path(folder) / PHOTOS_FILE, few)
            config = self._config_of(Path(folder), views=_TRIED_VIEWS, steps=2 * _TRIED_STEPS, held_out=False)
            try:
                Trainer(config, observer=watcher).run()
            finally:
                torch.set_num_threads(threads)
        self.report("try", 1, 1, "")
        first, last = watcher.views[0], watcher.views[-1]
        n_views = _TRIED_VIEWS * (last[1] - first[1])
        step, fewer = watcher.speed
        return FitSpeed(
            view=max(1e-6, (last[0] - first[0]) / n_views),
            step=max(1e-6, step),
            threads=fewer,
            batch_size=config.sampler.batch_size,
        )

    def _config(self, plan: FitPlan) -> TrainingConfig:
        return self._config_of(self.output, views=plan.views, steps=plan.steps, held_out=True)

    def _config_of(self, folder: Path, *, views: int, steps: int, held_out: bool) -> TrainingConfig:
        """The recipe with the photos that a manifest in a folder lists."""
        photos: dict[str, Any] = {"kind": "manifest", "root": folder.absolute(), "file": PHOTOS_FILE}
        recipe, section = self.recipe, self.before.manifest.refiner
        others = self._others if held_out else []
        backbone = dict(recipe["backbone"])
        if section is not None and section.architecture.form == "gated" and "dim" in backbone:
            # Its refiner can only go along to embeddings of this length.
            backbone["dim"] = self.before.dim
        changes: dict[str, Any] = {
            "name": _name(self.output),
            "backbone": backbone,
            "seed": self.seed,
            "datasets": [{**photos, "split": "train"}, *others],
            "validation_datasets": [{**photos, "split": "held-out"}] if held_out else [],
            "sampler": self._sampler(folder.absolute().name, is_shared=bool(others)),
            "optimizer": {**recipe.get("optimizer", {}), "steps": steps},
            "augmentation": {**recipe.get("augmentation", {}), "views": views},
            "validate_every": max(1, steps // _VALIDATIONS),
        }
        if not held_out:
            changes |= {"validation_share": 0.0, "patience": None, "interpolate": False}
        return checked(TrainingConfig, {**recipe, **changes}, "the recipe of the fitting")

    @property
    def _others(self) -> list[dict[str, Any]]:
        """Data sets of the recipe that share the batches with the photos."""
        others: list[dict[str, Any]] = self.recipe.get("datasets", [])
        return others

    def _sampler(self, name: str, *, is_shared: bool) -> dict[str, Any]:
        """Batches of the photos' labels; half of a shared one is of the recipe's data sets."""
        sampler = {"per_class": 4, "batch_size": 64, **self.recipe.get("sampler", {})}
        n_labels = len(np.unique(self.photos.labels[self.split.training]))
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

    def _fields(self, config: TrainingConfig, fields: dict[str, Any]) -> dict[str, Any]:
        packaged = PACKAGED_WEIGHTS.get(config.backbone.name)
        if config.backbone.weights != "package" or packaged is None:
            return fields
        licence = fields["licence"] if fields["licence"] != "unknown" else packaged.licence
        return {**fields, "licence": licence, "source": packaged.source}

    def _measure(
        self, bundle: ModelBundle, listing: ImageListing, config: TrainingConfig, share: float
    ) -> FitReport:
        """Search the held-out labels with both bundles."""
        bundle = self._with_refiner_of(self.before, bundle)
        before, after = (
            self._validation(one, listing, done) for done, one in enumerate((self.before, bundle))
        )
        bundle = _decided(bundle, after)
        found_before = _present_line(self.before).outcomes(before)
        found_after = _present_line(bundle).outcomes(after)
        gain = measure_gain(found_before, found_after, _FPIR, seed=self.seed)
        section = bundle.manifest.refiner
        labels = self.photos.labels
        _, sizes = np.unique(labels[self.split.held_out], return_counts=True)
        return FitReport(
            bundle=str(self.output),
            name=bundle.name,
            fingerprint=bundle.fingerprint,
            n_photos=int(self.split.training.sum()),
            n_labels=len(np.unique(labels[self.split.training])),
            n_held_out_photos=int(sizes[sizes > 1].sum()),
            n_held_out_labels=int((sizes > 1).sum()),
            n_single=int((sizes == 1).sum()),
            n_unlabelled=self.photos.n_unlabelled,
            n_repeated=self.photos.n_repeated,
            n_unusable=len(self.photos.unusable),
            fpir=_FPIR,
            found_before=_found_interval(found_before, self.seed),
            found_after=_found_interval(found_after, self.seed),
            gain=_fewer_misses(gain.fnir),
            hit_rate_before=gain.hit_rate_1.before,
            hit_rate_after=gain.hit_rate_1.after,
            map_at_r_before=gain.map_at_r.before,
            map_at_r_after=gain.map_at_r.after,
            share=share,
            views=config.augmentation.views,
            steps=config.optimizer.steps,
            precision=bundle.manifest.precision,
            refine=None if section is None else section.sides,
            rerank=None if section is None else section.rerank,
            seconds=_rounded(self.seconds),
        )

    def _validation(self, bundle: ModelBundle, listing: ImageListing, done: int) -> Validation:
        """Searches among the held-out photos, the same for every bundle."""

        def report(_stage: str, count: int, total: int) -> None:
            self.report("measure", done * total + count, 2 * total, "")

        embeddings = Sample(listing).embed(Embedder(bundle, device="cpu"), report)
        items = EmbeddingSet.of(embeddings, listing.labels)
        section = bundle.manifest.refiner
        k = 8 if section is None else section.architecture.n_neighbors
        config = ValidationConfig(fpir=_FPIR, draws=_DRAWS, ordered=True)
        return Validation(items, k, config, seed=self.seed)

    def _with_refiner_of(self, before: ModelBundle, bundle: ModelBundle) -> ModelBundle:
        """The new bundle with the refiner of the one before, where that knows nothing of its embeddings."""
        section = before.manifest.refiner
        if section is None or section.architecture.form != "gated" or before.dim != bundle.dim:
            return bundle
        for name in (REFINER_FILE, REFINER_WEIGHTS_FILE):
            shutil.copyfile(before.path / name, bundle.path / name)
        training = {**section.training, "carried_over_from": before.name}
        fields = {"architecture": section.architecture.model_dump(), "sides": "off", "rerank": "off"}
        return bundle.with_refiner({**fields, "training": training})

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


def _present_line(bundle: ModelBundle) -> PresentLine:
    """What a search with the bundle does where nobody asks for anything else."""
    section = bundle.manifest.refiner
    if section is None:
        return PresentLine(Line("off", "contextual"))
    return PresentLine(Line(section.sides, section.rerank), ContextRefiner(bundle))


def _decided(bundle: ModelBundle, validation: Validation) -> ModelBundle:
    """The bundle with the verdict of the held-out labels on its refiner."""
    section = bundle.manifest.refiner
    if section is None:
        return bundle
    refiner = ContextRefiner(bundle)
    figures = {
        sides: PresentLine(Line(sides), refiner).outcomes(validation).figures(_FPIR) for sides in SIDES
    }
    reranked = PresentLine(Line(choose_sides(figures), "contextual"), refiner).outcomes(validation)
    verdict = verdict_of(figures, reranked, _FPIR)
    fields = section.model_dump(exclude={"files", "backbone_fingerprint"})
    verdict_fields = {"sides": verdict.sides, "rerank": verdict.rerank, "validation": verdict.figures}
    return bundle.with_refiner({**fields, **verdict_fields})


def _fewer_misses(fnir: PairedDifference) -> Interval:
    # Fewer misses are more finds, so that the ends change places.
    return Interval(value=fnir.before - fnir.after, low=-fnir.high, high=-fnir.low)


def _found_interval(found: Outcomes, seed: int) -> Interval:
    """Share found at the rate of wrong matches, with its interval over labels."""
    classes = np.concatenate([found.mate_classes, found.other_classes])
    codes = np.unique(classes, return_inverse=True)[1].astype(np.int64)
    known, absent = np.split(codes, [len(found.mate_classes)])
    figures = [Searches(found.mates, known, found.others, absent).error_when_held("fpir", _FPIR)]
    draws = LabelDraws(known, absent, seed)
    value = 1.0 - float(draws.measured(figures)[0])
    low, high = np.quantile(1.0 - draws.drawn(figures)[0], [0.025, 0.975]).tolist()
    return Interval(value=value, low=low, high=high)


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in seconds.items()}


def _name(output: Path) -> str:
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in output.name.lower())
    return name.lstrip("._-")[:64] or "fitted"


def _write(path: Path, text: str) -> None:
    partial = path.with_suffix(".json.partial")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)

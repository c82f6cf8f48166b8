"""Speed of this machine at a fitting, and what its trainings take (torch)."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from vicinal.models.embedder import Embedder
from vicinal.models.progress import OnProgress, no_progress
from vicinal.training.fitting.labelled_images import Split
from vicinal.training.fitting.plan import FitSpeed
from vicinal.training.fitting.recipe import PHOTOS_FILE, FitRecipe
from vicinal.training.observer import StepProgress, TrainingObserver
from vicinal.training.trainer import Trainer

# Photos, views and steps of the look at the machine's speed.
_TRIED_LABELS = 16
_TRIED_VIEWS = 2
_TRIED_STEPS = 3
_TRIED_PHOTOS = 24


def look_at_speed(recipe: FitRecipe) -> FitSpeed:
    """Train a few steps on a few photos, embed some, and take the time."""
    photos, split = recipe.photos, recipe.split
    some = np.unique(photos.codes[split.training])[:_TRIED_LABELS]
    few = Split(split.training & np.isin(photos.codes, some), split.held_out & False)
    few = photos.at_most(4, few, recipe.seed)
    watcher = _TryingThreads(no_progress, "try")
    with tempfile.TemporaryDirectory() as folder, threads_of_torch(torch.get_num_threads()):
        photos.write_manifest(Path(folder) / PHOTOS_FILE, few)
        config = recipe.config(Path(folder), "try", views=_TRIED_VIEWS, steps=2 * _TRIED_STEPS)
        Trainer(config, observer=watcher).run()
    embedder = Embedder(recipe.before, device="cpu")
    tried = [photos.paths[i].read_bytes() for i in np.flatnonzero(few.training)[:_TRIED_PHOTOS]]
    # The first call finds memory.
    embedder.embed(tried[:2])
    started = time.monotonic()
    embedder.embed(tried)
    photo = (time.monotonic() - started) / len(tried)
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


@contextmanager
def threads_of_torch(number: int) -> Iterator[None]:
    """Let torch use so many threads: with another number, sums of a resumed run would end otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass
class Watcher(TrainingObserver):
    """Observer that passes on how far a training is, and notes when; `views` are (time, images done)."""

    report: OnProgress
    stage: str
    views: list[tuple[float, int]] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    decide: Callable[[int], int] = lambda steps: steps

    def on_views(self, done: int, total: int) -> None:
        """Note when so many views were there."""
        self.views.append((time.monotonic(), done))
        self.report("views", done, total)

    @property
    def seconds_of_views(self) -> float:
        """Seconds that the views of all images take, by those that were made in this start of the run."""
        (first, done), (last, total) = self.views[0], self.views[-1]
        return (last - first) * total / max(1, total - done)

    def on_ready(self, steps: int) -> int:
        """Let the fitting decide the number of steps."""
        return self.decide(steps)

    def on_start(self) -> None:
        """Note when the first step began."""
        self.steps.append(time.monotonic())

    def on_step(self, progress: StepProgress) -> None:
        """Note when a step was done, and report it with what the last validation found."""
        self.steps.append(time.monotonic())
        latest = progress.latest
        note = (
            ""
            if latest is None or math.isnan(latest.hit_rate_1)
            else f"first answer right: {100 * latest.hit_rate_1:.0f} of 100"
        )
        self.report(self.stage, progress.step, progress.n_steps, note)


@dataclass
class _TryingThreads(Watcher):
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

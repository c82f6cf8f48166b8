"""`vicinal train`: train a model bundle (needs the `train` extra)."""

from __future__ import annotations

import os
import shlex
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from vicinal.models.errors import TrainingStoppedError
from vicinal.models.training.observer import StepProgress, TrainingObserver
from vicinal.service.cli.bundles.training import (
    DataRootOption,
    OverwriteOption,
    ResumeOption,
    SetOption,
    require_train_extra,
    run_start,
)
from vicinal.service.cli.console import Update, console, errors, progress_bar

__all__ = ["train"]

# Reading the loss waits for a GPU, and people cannot read faster.
_SECONDS_BETWEEN_NOTES = 0.25


def train(
    recipe: Annotated[Path, typer.Argument(help="Training configuration, a TOML file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the bundle to write.")],
    data_root: DataRootOption = None,
    settings: SetOption = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, or cuda:<number>.")] = "auto",
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Train an embedding and export it as a bundle; curve, log and checkpoint lie beside it."""
    start = run_start(resume=resume, overwrite=overwrite)
    require_train_extra("training")
    from vicinal.models.training.recipe import Recipe, run_recipe

    loaded = Recipe.load(recipe, data_root=data_root, settings=settings or ())
    try:
        with (
            _quiet_forks(),
            progress_bar() as update,
            _stopping_on_interrupt(_Watcher(update)) as watcher,
        ):
            bundle = run_recipe(loaded, output, start=start, device=device, observer=watcher)
    except TrainingStoppedError as error:
        command = _resume_command(recipe, output, data_root, settings or [], device)
        raise TrainingStoppedError(error.step, error.n_steps, f"go on with `{command}`") from error
    console.print(f"Bundle [bold]{bundle.name}[/] {bundle.fingerprint} in {output}")
    for test, metrics in bundle.manifest.metrics.items():
        shown = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        console.print(f"  {test}: {shown}", markup=False, soft_wrap=True)


class _Watcher(TrainingObserver):
    """Shows the progress, and stops the run when it was interrupted.

    Args:
        update: Moves the bar; takes stage, steps done, all steps, and a note.
    """

    def __init__(self, update: Update) -> None:
        self.update = update
        self.is_stepping = False
        self.is_interrupted = False
        self._note = ""
        self._noted_at = 0.0

    def on_start(self) -> None:
        self.is_stepping = True

    def on_step(self, progress: StepProgress) -> None:
        now, is_last = time.monotonic(), progress.step == progress.n_steps
        if now - self._noted_at > _SECONDS_BETWEEN_NOTES or is_last:
            self._note, self._noted_at = _note(progress), now
        self.update("Training", progress.step, progress.n_steps, self._note)

    def on_finish(self) -> None:
        self.is_stepping = False

    def on_notice(self, text: str) -> None:
        errors.print(text, markup=False, highlight=False, soft_wrap=True)

    def should_stop(self) -> bool:
        return self.is_interrupted

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """First Ctrl-C: stop after this step. Second one, or outside of the steps: stop at once."""
        if self.is_interrupted or not self.is_stepping:
            raise KeyboardInterrupt
        self.is_interrupted = True
        # A console may be in the middle of a line here; a plain write cannot get in its way.
        os.write(2, b"\nStopping after this step; Ctrl-C again stops at once.\n")


def _note(progress: StepProgress) -> str:
    note = f"loss {float(progress.step_loss):.4f}"
    return note if progress.latest is None else f"{note}  R@1 {progress.latest.hit_rate_1:.3f}"


@contextmanager
def _stopping_on_interrupt(watcher: _Watcher) -> Iterator[_Watcher]:
    before = signal.signal(signal.SIGINT, watcher.interrupt)
    try:
        yield watcher
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet_forks() -> Iterator[None]:
    # The command line has imported Lance, which warns of workers that are forked; they never use it.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        yield


def _resume_command(
    recipe: Path, output: Path, data_root: Path | None, settings: list[str], device: str
) -> str:
    words = ["vicinal", "train", str(recipe), "--output", str(output)]
    words += ["--data-root", str(data_root)] if data_root else []
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--device", device] if device != "auto" else []
    return shlex.join([*words, "--resume"])

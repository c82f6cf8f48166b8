"""Progress that `vicinal train` shows while it runs, and its end by Ctrl-C."""

from __future__ import annotations

import os
import time
from types import FrameType

from vicinal.models.progress import OnProgress
from vicinal.service.cli.console import errors, say
from vicinal.service.training import StepProgress, TrainingObserver

# Reading the loss waits for a GPU, and people cannot read faster.
_SECONDS_BETWEEN_NOTES = 0.25


class TrainingWatcher(TrainingObserver):
    """Shows the progress, and stops the run when it was interrupted."""

    def __init__(self, update: OnProgress) -> None:
        self.update = update
        self.is_stepping = False
        self.is_interrupted = False
        self._note = ""
        self._noted_at = 0.0

    def on_start(self) -> None:
        """Let Ctrl-C wait for the end of a step from here on."""
        self.is_stepping = True

    def on_step(self, progress: StepProgress) -> None:
        """Move the bar."""
        now, is_last = time.monotonic(), progress.step == progress.n_steps
        if now - self._noted_at > _SECONDS_BETWEEN_NOTES or is_last:
            self._note, self._noted_at = _note(progress), now
        self.update("Training", progress.step, progress.n_steps, self._note)

    def on_finish(self) -> None:
        """Let Ctrl-C stop at once from here on."""
        self.is_stepping = False

    def on_notice(self, text: str) -> None:
        """Print it beside the bar."""
        say(text, to=errors)

    def should_stop(self) -> bool:
        """Tell whether Ctrl-C was pressed."""
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

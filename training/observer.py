"""Observer of a training run: learns of it while it goes on, and may end it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsFloat


@dataclass(frozen=True)
class StepRecord:
    """Validation during training, with the mean loss since the last one; NaN without held-out classes."""

    step: int
    loss: float
    hit_rate_1: float
    map_at_r: float
    seconds: float

    @property
    def order(self) -> float:
        """Key of which a lower one is better; NaN without validation classes."""
        return -self.map_at_r


@dataclass(frozen=True)
class StepProgress:
    """Progress of a run; making a float of the loss of a step may wait for a GPU."""

    step: int
    n_steps: int
    latest: StepRecord | None
    step_loss: SupportsFloat


class TrainingObserver:
    """Takes note of nothing and stops nothing; subclasses do."""

    def on_start(self) -> None:
        """Images are loaded, and the first step is next."""

    def on_step(self, progress: StepProgress) -> None:
        """A step was done."""

    def on_record(self, record: StepRecord) -> None:
        """A validation was done, logged, and kept in a checkpoint."""

    def on_finish(self) -> None:
        """The last step was done."""

    def on_notice(self, text: str) -> None:
        """Something is left out or ends early; one line for people."""

    def should_stop(self) -> bool:
        """True to write a checkpoint now and stop; asked after each step."""
        return False

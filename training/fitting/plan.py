"""Plan of a fitting: how many views and steps fit into the minutes, by the speed of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field

from vicinal.calibration.frozen import Frozen

# More steps and views than these hardly changed what was found.
MOST_STEPS = 300
FEWEST_STEPS = 30
MOST_VIEWS = 8
# Photos of the other labels in a gallery that the held-out ones are searched in.
MOST_BESIDE = 2000
# Held-out photos that the forms of the network are compared on.
MOST_TRIED_ON = 500
# Of the minutes, what is planned with: the rest is for what runs beside.
SHARE_PLANNED = 0.95
# Share of the time that steps may take; views get the rest.
_FOR_STEPS = 0.55
# The fewest that are worth a training.
_FEWEST_VIEWS = 2
# Fewer steps of each of two losses are too few.
_WORTH_TWO = 75
# Looks at the held-out labels during the steps, and points between the weights that are tried after them.
_LOOKS, _POINTS = 6, 5
# Photos that a head is centered on.
_CENTERED_ON = 1024
# Through the back alone, to learning from it.
_WITHOUT_LEARNING = 1 / 3
# A photo in float32, float16 and int8, to one in int8.
_FORMS = 5.5
# A network is exported and its int8 form calibrated.
SECONDS_OF_AN_EXPORT = 40.0


class FitSpeed(Frozen):
    """Speed of this machine.

    Seconds to make one `view` and run it through the front, seconds a step of `batch_size` photos with so
    many threads of torch, and seconds to embed a `photo`.
    """

    view: float = Field(gt=0.0)
    step: float = Field(gt=0.0)
    photo: float = Field(gt=0.0)
    batch_size: int = Field(ge=1)
    threads: int = Field(ge=1)

    def times(self, factor: float) -> FitSpeed:
        """Speed of a machine that takes so many times as long."""
        longer = {name: factor * getattr(self, name) for name in ("view", "step", "photo")}
        return self.model_copy(update=longer)


class FitPlan(Frozen):
    """Plan of a run, reckoned with a speed; a resumed one has the same.

    It has the `views` of each photo, the `steps` of each training, one a loss of `n_losses` without the
    held-out labels and one with them, and at most `per_label` photos of a label, None for all. Once the views
    are there, the trial and the training of all labels get the steps that there is time for then: `decided`.
    """

    # Runs begun with an earlier version have further fields.
    model_config = ConfigDict(extra="ignore")

    asked: dict[str, str | int | float]
    views: int
    steps: int
    n_losses: int
    per_label: int | None
    speed: FitSpeed
    decided: dict[str, int] = Field(default_factory=dict)


@dataclass(frozen=True)
class FitSize:
    """Numbers of photos to learn from in a trial and held out, of drawn pictures, and of losses."""

    n_training: int
    n_held_out: int
    n_drawn: int
    n_losses: int = 1

    @property
    def n_viewed(self) -> int:
        """Pictures that views are made of, for both trainings together."""
        return self.n_training + self.n_held_out + self.n_drawn

    def seconds_beside(self, speed: FitSpeed) -> float:
        """Seconds of all but the steps and the views of training photos: looks, exports, measurement."""
        n_beside = min(self.n_training, MOST_BESIDE)
        looked = (self.n_losses * _LOOKS + _POINTS) * self.n_held_out + _POINTS * n_beside
        looked += 2 * self.n_losses * _CENTERED_ON
        # By the bundle before and by the new one.
        embedded = _FORMS * min(self.n_held_out, MOST_TRIED_ON) + 2 * (self.n_held_out + n_beside)
        return (
            looked * _WITHOUT_LEARNING * speed.step / speed.batch_size
            + embedded * speed.photo
            + self.n_held_out * speed.view
            + 2 * SECONDS_OF_AN_EXPORT
        )

    def steps_of_trial(self, seconds: float, speed: FitSpeed, views: int) -> int:
        """Steps of each training, where the views of the trial are there and so many seconds left."""
        left = seconds - self.seconds_beside(speed) - views * self.n_held_out * speed.view
        return steps_in(left, 2 * self.n_losses * speed.step)


def steps_in(seconds: float, step: float) -> int:
    """Steps that fit into the seconds, within what is of use."""
    return int(np.clip(seconds // step, FEWEST_STEPS, MOST_STEPS))


def plan_fit(
    sizes: npt.ArrayLike,
    n_held_out: int,
    n_drawn: int,
    speed: FitSpeed,
    *,
    minutes: float,
    spent: float,
    asked: Mapping[str, str | int | float],
    n_losses: int = 1,
) -> FitPlan:
    """Fit views and steps into the minutes, for labels with (c,) `sizes` photos to learn from.

    Of `n_losses` there is one where more would leave each too few steps.
    """
    counts = np.asarray(sizes, np.int64)
    seconds = 60.0 * SHARE_PLANNED * minutes - spent

    def of(cap: int) -> FitSize:
        return FitSize(int(np.minimum(counts, cap).sum()), n_held_out, n_drawn, n_losses)

    def most_views(size: FitSize) -> float:
        left = max(0.0, seconds - size.seconds_beside(speed))
        affordable = left - min(_FOR_STEPS * left, 2 * n_losses * MOST_STEPS * speed.step)
        return affordable / (speed.view * size.n_viewed)

    largest = int(counts.max())
    views, per_label = int(np.clip(most_views(of(largest)), 1, MOST_VIEWS)), None
    if views < _FEWEST_VIEWS:
        views = _FEWEST_VIEWS
        per_label = next((cap for cap in range(largest, 4, -1) if most_views(of(cap)) >= views), 4)
    size = of(per_label or largest)
    viewed = views * (size.n_training + n_drawn) * speed.view
    steps = size.steps_of_trial(seconds - viewed, speed, views)
    if n_losses > 1 and steps < _WORTH_TWO:
        return plan_fit(sizes, n_held_out, n_drawn, speed, minutes=minutes, spent=spent, asked=asked)
    return FitPlan(
        asked=dict(asked),
        views=views,
        steps=steps,
        n_losses=n_losses,
        per_label=per_label,
        speed=speed,
    )

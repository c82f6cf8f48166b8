"""Plan of a fitting: how many views and steps fit into the minutes, by the speed of this machine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from pydantic import Field

from vicinal.calibration.frozen import Frozen

# More steps and views than these hardly changed what was found.
MOST_STEPS = 300
FEWEST_STEPS = 30
MOST_VIEWS = 8
# Share of the time that steps may take; views get the rest.
_FOR_STEPS = 0.55
# The fewest that are worth a training.
_FEWEST_VIEWS = 2
# Export, its forms, and the measurement at the end.
_SECONDS_AT_THE_END = 150.0
# The trial without the held-out labels, then all labels.
_TRAININGS = 2
# Held-out photos go through the back some seven times, which costs a third of learning from them.
_VALIDATIONS = 7 / 3


class FitSpeed(Frozen):
    """Speed of this machine.

    Seconds to make one `view` and run it through the front, and seconds a step of `batch_size` photos with so
    many threads of torch.
    """

    view: float = Field(gt=0.0)
    step: float = Field(gt=0.0)
    batch_size: int = Field(ge=1)
    threads: int = Field(ge=1)


class FitPlan(Frozen):
    """Plan of a run, reckoned with a speed; a resumed one has the same.

    It has the `views` of each photo, the `steps` of each of the two trainings, and at most `per_label` photos
    of a label, None for all.
    """

    asked: dict[str, str | int | float]
    views: int
    steps: int
    per_label: int | None
    speed: FitSpeed


def plan_fit(
    sizes: npt.ArrayLike,
    n_held_out: int,
    n_drawn: int,
    speed: FitSpeed,
    *,
    minutes: float,
    spent: float,
    asked: Mapping[str, str | int | float],
) -> FitPlan:
    """Fit views and steps into the minutes, for labels with (c,) `sizes` photos to learn from."""
    counts = np.asarray(sizes, np.int64)
    validation = _VALIDATIONS * n_held_out * speed.step / speed.batch_size + n_held_out * speed.view
    left = max(0.0, 60.0 * minutes - spent - _SECONDS_AT_THE_END - validation)
    affordable = (left - min(_FOR_STEPS * left, _TRAININGS * MOST_STEPS * speed.step)) / speed.view
    beside = _TRAININGS * n_drawn + n_held_out
    views = int(np.clip(affordable // (_TRAININGS * counts.sum() + beside), 1, MOST_VIEWS))
    per_label = None
    if views < _FEWEST_VIEWS:
        views = _FEWEST_VIEWS
        per_label = next(
            (
                cap
                for cap in range(int(counts.max()), 4, -1)
                if (_TRAININGS * np.minimum(counts, cap).sum() + beside) * views <= affordable
            ),
            4,
        )
    n_seen = _TRAININGS * int(np.minimum(counts, per_label or counts.max()).sum()) + beside
    for_steps = left - n_seen * views * speed.view
    steps = int(np.clip(for_steps // (_TRAININGS * speed.step), FEWEST_STEPS, MOST_STEPS))
    return FitPlan(asked=dict(asked), views=views, steps=steps, per_label=per_label, speed=speed)

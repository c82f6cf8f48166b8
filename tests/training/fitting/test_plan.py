"""Plan of a fitting: what fits into the minutes."""

from __future__ import annotations

import pytest

from vicinal.training.fitting.plan import (
    MOST_STEPS,
    MOST_VIEWS,
    FitPlan,
    FitSize,
    FitSpeed,
    plan_fit,
)


def plan(
    n_labels: int = 40,
    size: int = 50,
    *,
    minutes: float = 15.0,
    view: float = 0.01,
    step: float = 1.0,
    n_drawn: int = 0,
) -> FitPlan:
    speed = FitSpeed(view=view, step=step, photo=0.01, batch_size=64, threads=2)
    return plan_fit([size] * n_labels, 10 * n_labels, n_drawn, speed, minutes=minutes, spent=10.0, asked={})


def seconds_of(made: FitPlan, n_labels: int = 40, size: int = 50) -> float:
    """Views, the held-out photos' too, both trainings, and all that is not learning."""
    photos = FitSize(n_labels * min(size, made.per_label or size), 10 * n_labels, 0)
    views = photos.n_viewed * made.views * made.speed.view
    return views + 2 * made.steps * made.speed.step + photos.seconds_beside(made.speed)


def test_a_fast_machine_does_no_more_than_is_of_use() -> None:
    made = plan(view=0.001, step=0.1)
    assert (made.views, made.steps, made.per_label) == (MOST_VIEWS, MOST_STEPS, None)


@pytest.mark.parametrize(("view", "step"), [(0.01, 2.0), (0.03, 2.5), (0.06, 1.0)])
def test_views_and_steps_fit_into_the_minutes(view: float, step: float) -> None:
    made = plan(view=view, step=step)
    assert 15 * 60 * 0.8 < seconds_of(made) < 15 * 60

"""Plan of a fitting: what fits into the minutes."""

from __future__ import annotations

import pytest

from vicinal.training.fitting.plan import (
    FEWEST_STEPS,
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


def test_a_large_shop_learns_from_some_photos_of_each_label() -> None:
    made = plan(2000, 20)
    assert made.per_label is not None
    assert 4 <= made.per_label < 20


def test_a_minute_still_takes_some_steps() -> None:
    assert plan(minutes=0.5).steps == FEWEST_STEPS


def test_drawn_pictures_take_their_share_of_the_time() -> None:
    assert plan(view=0.02, n_drawn=2000).views < plan(view=0.02).views


def test_a_machine_that_turns_out_slower_takes_fewer_steps() -> None:
    made, photos = plan(step=2.0), FitSize(2000, 400, 0)
    steps = [photos.steps_of_trial(600.0, made.speed.times(slower), made.views) for slower in (1.0, 1.5, 9.0)]
    assert steps == sorted(steps, reverse=True)
    assert (steps[0] > steps[1], steps[2]) == (True, FEWEST_STEPS)


def test_two_losses_are_learned_by_where_each_keeps_enough_steps() -> None:
    def trials(step: float) -> int:
        speed = FitSpeed(view=0.01, step=step, photo=0.01, batch_size=64, threads=2)
        made = plan_fit([50] * 40, 400, 0, speed, minutes=15.0, spent=10.0, asked={}, n_losses=2)
        return made.n_losses

    assert [trials(0.5), trials(4.0)] == [2, 1]

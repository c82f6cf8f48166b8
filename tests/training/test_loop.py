"""The loop of every training: when it looks, when it ends, and which weights it keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")

from vicinal.models.errors import ConfigError  # noqa: E402
from vicinal.training.loop import TrainingState, finite  # noqa: E402


@dataclass(frozen=True)
class Look:
    step: int
    order: float


def state() -> TrainingState[Look]:
    network = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0, total_iters=0)
    return TrainingState(network, {}, optimizer, schedule, Look(0, math.nan))


def losses_of(training: TrainingState[Look], n_batches: int, **settings: int) -> list[tuple[int, float]]:
    def backward(batch: float) -> torch.Tensor:
        training.network(torch.ones(1, 1)).sum().backward()
        return torch.tensor(batch)

    looks = training.looks(map(float, range(n_batches)), backward, clip_norm=0.0, **settings)
    return [(training.step, loss) for loss in looks]


def test_it_looks_every_so_often_and_at_the_last_step() -> None:
    """With the mean loss since the look before."""
    assert losses_of(state(), 9, last=5, every=2) == [(2, 0.5), (4, 2.5), (5, 4.0)]


def test_it_goes_on_where_it_was() -> None:
    training = state()
    training.step = 3
    assert losses_of(training, 9, last=5, every=4) == [(4, 0.0), (5, 1.0)]


def test_a_look_comes_before_the_end_that_it_decides_on() -> None:
    training, seen = state(), set[int]()

    def backward(_batch: float) -> torch.Tensor:
        training.network(torch.ones(1, 1)).sum().backward()
        return torch.tensor(0.0)

    looks = training.looks([1.0] * 9, backward, last=9, every=2, clip_norm=0.0, ends=lambda _: seen == {2, 4})
    for _ in looks:
        seen.add(training.step)
    assert (seen, training.step) == ({2, 4}, 4)


@pytest.mark.parametrize(
    ("orders", "best"), [([3.0, 1.0, 1.0, 2.0], 2), ([math.nan, math.nan], 2), ([1.0, math.nan], 2)]
)
def test_the_weights_of_the_first_best_look_are_kept(orders: list[float], best: int) -> None:
    """Of looks without scores those of the last."""
    training = state()
    for step, order in enumerate(orders, start=1):
        with torch.no_grad():
            training.network.weight.fill_(step)
        training.add(Look(step, order))
    assert training.best.step == best
    assert training.best_weights["weight"].item() == best


def test_a_loss_that_is_no_number_is_refused() -> None:
    assert finite(0.5, 3, "do that", ConfigError) == 0.5
    with pytest.raises(ConfigError, match=r"the loss is nan by step 3: lower .* or do that"):
        finite(math.nan, 3, "do that", ConfigError)

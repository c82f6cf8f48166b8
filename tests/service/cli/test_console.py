"""Console: a line every ten seconds where no bar can move."""

from __future__ import annotations

import pytest

from tests.waiting import Clock
from vicinal.service.cli.console import progress_bar


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


def test_a_line_comes_every_ten_seconds_with_rate_and_time_left(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar(clock) as update:
        for second in range(26):
            clock.now = 1000.0 + second
            update("Embedding", 100 + 24 * second, 5000)
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "Embedding: 340 of 5,000, 24/s, 0:03:14 left",
        "Embedding: 580 of 5,000, 24/s, 0:03:04 left",
        "Embedding: 700 of 5,000, 24/s, 0:02:59 left",
    ]
    assert captured.out == ""


def test_rates_are_those_of_the_stage(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """What an earlier run has finished took no time in this one."""
    with progress_bar(clock) as update:
        update("Copying", 4000, 4000)
        clock.now += 5
        update("Embedding", 900, 1000)
        clock.now += 10
        update("Embedding", 905, 1000, "note")
        clock.now += 10
        update("Publishing", 0, 1)
    assert capsys.readouterr().err.splitlines() == [
        "Embedding: 905 of 1,000, 0.50/s, 0:03:10 left, note",
        "Publishing: 0 of 1",
    ]

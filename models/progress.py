"""Progress: how long work tells its caller how far it is."""

from __future__ import annotations

from typing import Protocol


class OnProgress(Protocol):
    """Hears how far work is."""

    def __call__(self, stage: str, done: int, total: int, note: str = "", /) -> None:
        """Take a stage's name, what is done of it, all there is, and what to say of it."""


def no_progress(stage: str, done: int, total: int, note: str = "", /) -> None:
    """Tell nobody."""

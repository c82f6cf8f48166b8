"""Progress: how long work tells its caller how far it is."""

from __future__ import annotations

from collections.abc import Callable

# The stage's name, what is done of it, and all there is.
OnProgress = Callable[[str, int, int], None]


def no_progress(stage: str, done: int, total: int) -> None:
    """For a caller that does not want to know."""

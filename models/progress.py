"""Progress: how long work tells its caller how far it is."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["OnProgress"]

# The stage's name, what is done of it, and all there is.
OnProgress = Callable[[str, int, int], None]

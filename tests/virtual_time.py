"""Event loop whose time passes when a test says so: waits of a minute take none, and none is too short."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["VirtualLoop"]


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop of one test; what is put off happens while `move_on` lets time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.failures: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.failures.append(context))

    def time(self) -> float:
        """Seconds that have passed."""
        return self.now

    def settle(self) -> None:
        """Do all that can be done without waiting; what fails fails the test."""
        while True:
            self.run_until_complete(asyncio.sleep(0))
            if not self._ready and not self._next_due(self.now):  # type: ignore[attr-defined]
                break
        assert not self.failures, self.failures

    def move_on(self, seconds: float) -> None:
        """Let time pass, step by step to each moment for which something was put off."""
        end = self.now + seconds
        self.settle()
        while due := self._next_due(end):
            self.now = max(self.now, due[0])
            self.settle()
        self.now = end

    def _next_due(self, end: float) -> list[float]:
        waiting = [one for one in self._scheduled if not one.cancelled()]  # type: ignore[attr-defined]
        return sorted(one.when() for one in waiting if one.when() <= end)[:1]

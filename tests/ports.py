"""Ports for servers that a test starts as processes of their own, and other numbers that none share."""

from __future__ import annotations

import os
import random
import socket

# Without the seed of the tests, which is the same in processes that run beside each other.
_DRAWN = random.SystemRandom()
# Who was given one listens there later than the next one is drawn, and may come back to it.
_given: set[int] = set()


def own_numbers(start: int, stop: int) -> range:
    """The part of some numbers that no other process of this run draws from."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return range(start + worker % count, stop, count)


def free_port() -> int:
    """A port that nobody listens on, and that was not given before, below those of outgoing connections."""
    while True:
        port = _DRAWN.choice(own_numbers(10_000, 32_000))
        try:
            with socket.create_server(("127.0.0.1", port)):
                if port not in _given:
                    _given.add(port)
                    return port
        except OSError:
            continue

"""Ports for servers that a test starts as processes of their own."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """A port that nobody listens on, below those that outgoing connections are given.

    Drawn without the seed of the tests, which is the same in processes that run beside each other.
    """
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue

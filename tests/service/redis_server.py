"""A real Redis of a test's own, on a free port: to be stopped, frozen and started again."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import redis

from tests.ports import free_port
from tests.programs import program

__all__ = ["RedisServer"]

_START_SECONDS = 20.0


class RedisServer:
    """One `redis-server` process at a time, always on the same port and with the same folder.

    Args:
        folder: Where it keeps its files.
        address: Where it listens.
    """

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        binary = program("redis-server")
        folder.mkdir(parents=True)
        port = free_port()
        self.url = f"redis://{address}:{port}/0"
        options = {"port": port, "bind": address, "dir": folder, "appendonly": "yes", "save": ""}
        if address != "127.0.0.1":
            # Hosts that nobody else reaches need no password.
            options["protected-mode"] = "no"
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self._command = [binary, *words]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, with what an earlier one has kept, and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + _START_SECONDS
        with redis.Redis.from_url(self.url) as client:
            while time.monotonic() < deadline:
                try:
                    client.ping()
                    return
                except redis.RedisError:
                    time.sleep(0.02)
        raise TimeoutError("redis-server did not start")

    def stop(self) -> None:
        """End it in order: connections are refused from now on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            self._process.wait(timeout=_START_SECONDS)
            self._process = None

    def kill(self) -> None:
        """End it at once, as a machine does that loses power; what it has answered for is on the disk."""
        self._signal(signal.SIGKILL)
        self.stop()

    def freeze(self) -> None:
        """Stop it from answering while connections stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError("redis-server is not running")
        self._process.send_signal(number)

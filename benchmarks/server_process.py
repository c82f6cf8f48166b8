"""The server as a process of its own, so that client and server do not share an interpreter."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from service.serving import listen

__all__ = ["server_process"]


@contextmanager
def server_process(data_dir: Path, bundle: Path) -> Iterator[str]:
    """Run `vicinal serve` on a free loopback port while the context lasts.

    Yields:
        The server's base URL.
    """
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "service", "serve", "--port", str(port), "--data-dir", str(data_dir)]
    with subprocess.Popen([*command, "--bundle", str(bundle)]) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_alive(url)
            yield url
        finally:
            server.terminate()


def _wait_until_alive(url: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/livez").raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise TimeoutError(f"the server at {url} did not start within {seconds:.0f} s")

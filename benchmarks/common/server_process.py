"""The server as a process of its own, so that client and server do not share an interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.ports import free_port

__all__ = ["memory_of", "running_server", "server_process"]


@contextmanager
def server_process(data_dir: Path, bundle: Path) -> Iterator[str]:
    """Run `vicinal serve` on a free loopback port while the context lasts.

    Yields:
        The server's base URL.
    """
    with running_server(data_dir, bundle) as (url, _):
        yield url


@contextmanager
def running_server(
    data_dir: Path,
    bundle: Path,
    environment: Mapping[str, str] | None = None,
    *,
    folder: Path | None = None,
    python: Sequence[str] = (sys.executable,),
) -> Iterator[tuple[str, int]]:
    """The same with variables added to the environment, and with another working folder or interpreter.

    Yields:
        The server's base URL and the id of its process.
    """
    port = free_port()
    command = [*python, "-m", "vicinal", "serve", "--port", str(port), "--data-dir", str(data_dir)]
    variables = {**os.environ, **(environment or {})}
    with subprocess.Popen([*command, "--bundle", str(bundle)], env=variables, cwd=folder) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_alive(url)
            yield url, server.pid
        finally:
            server.terminate()


def memory_of(pid: int | str) -> dict[str, float]:
    """Resident memory of a process in MiB: its own, and pages of mapped files."""
    names = {"RssAnon": "anonymous", "RssFile": "file"}
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return {name: round(int(found[field].split()[0]) / 1024, 1) for field, name in names.items()}


def _wait_until_alive(url: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/livez").raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise TimeoutError(f"the server at {url} did not start within {seconds:.0f} s")

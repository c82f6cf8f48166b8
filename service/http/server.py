"""Serving: an application on a port, in the foreground or beside a check."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from vicinal.service.errors import RequestError
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.settings import Settings

__all__ = ["listen", "serve_until_stopped", "serving", "serving_app"]

_START_SECONDS = 30.0


def listen(host: str, port: int) -> socket.socket:
    """Take a port before anything slow is done.

    Args:
        host: Address or name.
        port: Port; 0 takes a free one.

    Raises:
        RequestError: The port is taken, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
        # Accepted connections inherit it. asyncio sets it only on sockets that it made itself, and an
        # answer whose head and body leave apart then waits 40 ms for an acknowledgment.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise RequestError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --port"
        ) from error


def serve_until_stopped(app: FastAPI, listener: socket.socket) -> None:
    """Serve until Ctrl-C or a termination signal; requests under way are finished."""
    # After its shutdown the server passes the signal on, which must not end the process before a job under
    # way was left to another worker.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with state_of(app).running():
            _Server(app, access_log=False).run(sockets=[listener])
    except KeyboardInterrupt:
        # The server has shut down in order and passes the signal on: stopping it is no error.
        return


def serving(settings: Settings) -> AbstractContextManager[str]:
    """Serve an application of these settings; see `serving_app`."""
    return serving_app(create_app(settings))


@contextmanager
def serving_app(app: FastAPI) -> Iterator[str]:
    """Serve an application on a free loopback port while the context lasts.

    Yields:
        The server's base URL.
    """
    with listen("127.0.0.1", 0) as listener, state_of(app).running():
        server = _Server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            _wait_until_started(server)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=_START_SECONDS)


class _Server(uvicorn.Server):
    """Ends the streams of events when it shuts down: a request that never ends would be waited for."""

    def __init__(self, app: FastAPI, **options: Any) -> None:
        super().__init__(uvicorn.Config(app, log_level="warning", lifespan="off", **options))
        self._stopping = state_of(app).stopping

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does, after the streams were told."""
        self._stopping.set()
        await super().shutdown(sockets)


def _wait_until_started(server: uvicorn.Server) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not server.started:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the server did not start within {_START_SECONDS:.0f} s")
        time.sleep(0.02)

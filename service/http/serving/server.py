"""Serving: an application on a port, in the foreground or beside a check."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from anyio import to_thread
from fastapi import FastAPI

from vicinal.service.errors import RequestError
from vicinal.service.http.app import create_app
from vicinal.service.http.serving.connections import Connections, most_connections
from vicinal.service.http.serving.overload import Overload
from vicinal.service.http.state import state_of
from vicinal.service.process import prepare_process
from vicinal.service.settings import Settings

_START_SECONDS = 30.0
_KEEP_ALIVE_SECONDS = 75
# Connections that the system takes before a process does, and that a process takes before it reads from them.
_BACKLOG, _AT_A_TIME = 2048, 32
# In which a server that stops still takes requests on connections that are open.
_DRAIN_SECONDS = 1.0
# For a job under way to leave its place to another worker.
_END_SECONDS = 10.0
# Of requests that are no searches; each has an arena of memory of its own.
_N_THREADS = 8


def listen(host: str, port: int) -> socket.socket:
    """Take a port, 0 for a free one, before anything slow is done."""
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
    """Serve until a signal; requests under way are finished, within `shutdown_seconds` and some."""
    prepare_process()
    # After its shutdown the server passes the signal on, which must not end the process before a job under
    # way was left to another worker.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with state_of(app).running():
            _Server(app, ends_process=True).run(sockets=[listener])
    except KeyboardInterrupt:
        # The server has shut down in order and passes the signal on: stopping it is no error.
        return
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def serving(served: FastAPI | Settings) -> Iterator[str]:
    """Serve an application, or one of these settings, on a free loopback port while the context lasts."""
    app = create_app(served) if isinstance(served, Settings) else served
    with listen("127.0.0.1", 0) as listener, state_of(app).running():
        server = _Server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not server.started:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the server did not start within {_START_SECONDS:.0f} s")
                time.sleep(0.02)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=_START_SECONDS)


class _Server(uvicorn.Server):
    """Server that limits connections and answers every request; `ends_process` where that ends with it."""

    def __init__(self, app: FastAPI, *, ends_process: bool = False) -> None:
        self._state = state_of(app)
        settings = self._state.settings
        self._ends_process = ends_process
        proxies = [str(one) for one in settings.trusted_proxies]
        self._limits = Connections(
            most=most_connections(settings.max_connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
            head_seconds=settings.request_seconds,
            overload=Overload(self._state.searches, self._state.metrics),
            proxies=tuple(proxies),
        )
        config = uvicorn.Config(
            app,
            http=self._limits.protocol,  # type: ignore[arg-type]
            log_level="warning",
            log_config=None,
            access_log=False,
            lifespan="off",
            loop="asyncio",
            proxy_headers=bool(proxies),
            forwarded_allow_ips=proxies,
            # Longer than clients keep theirs, so that they are who closes: a request that is sent while the
            # server closes is lost.
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            # Of asyncio this is also how many connections it takes at a time. Where processes share a port,
            # the first to look would take all of them.
            backlog=1 if settings.workers > 1 else _AT_A_TIME,
            timeout_graceful_shutdown=settings.shutdown_seconds,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, with few threads."""
        to_thread.current_default_thread_limiter().total_tokens = _N_THREADS
        if self._ends_process:
            # What is there now stays: the collector of cycles would look through it again and again, and
            # hold everything for a tenth of a second each time.
            gc.collect()
            gc.freeze()
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(_BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does, after every client was told that its connection ends."""
        if self._ends_process:
            # In C, so that it ends a process whose threads are stuck too.
            faulthandler.dump_traceback_later(
                _DRAIN_SECONDS + self._state.settings.shutdown_seconds + _END_SECONDS, exit=True
            )
        self._state.stopping.set()
        await self._drain(sockets or [])
        await super().shutdown(sockets)

    async def _drain(self, sockets: list[socket.socket]) -> None:
        """Take no further connection, and let every answer be the last of its connection."""
        self._limits.drain(self.server_state.connections)
        await self._take_what_waits(sockets)
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self.server_state.connections and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    async def _take_what_waits(self, sockets: list[socket.socket]) -> None:
        """Close the port, but take the connections that the system has taken: closing breaks them off."""
        # A second handle keeps the port open while the server lets go of it.
        ports = [listener.dup() for listener in sockets]
        for server in self.servers:
            server.close()
        for port in ports:
            port.setblocking(False)
            port.listen(0)
            with port:
                while (accepted := _accepted(port)) is not None:
                    await asyncio.get_running_loop().connect_accepted_socket(self._protocol, accepted)

    def _protocol(self) -> asyncio.Protocol:
        return self._limits.protocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


def _accepted(port: socket.socket) -> socket.socket | None:
    try:
        return port.accept()[0]
    except OSError:
        return None

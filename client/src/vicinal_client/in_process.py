"""An ASGI application that is called in this process, in place of a server: for tests.

Its lifespan begins with the first request and ends when the client is closed. Answers are whole: a
stream that never ends is never answered.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

import httpx

__all__ = ["ASGIApp", "AsyncInProcess", "InProcess"]

T = TypeVar("T")
# Frameworks type the three arguments in ways of their own.
ASGIApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]


class AsyncInProcess(httpx.AsyncBaseTransport):
    """Calls an application in the event loop that asks.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        # An unexpected error is answered with 500, as by a server.
        self._calls = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        self._lifespan = _Lifespan(app)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        await self._lifespan.begin()
        return await self._calls.handle_async_request(request)

    async def aclose(self) -> None:
        """End the application's lifespan."""
        await self._lifespan.end()


class InProcess(httpx.BaseTransport):
    """Calls an application in an event loop of its own, in a thread that lives until it is closed.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._calls = AsyncInProcess(app)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vicinal-in-process", daemon=True)
        self._thread.start()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        return self._run(self._answer(request))

    def close(self) -> None:
        """End the application's lifespan, and the thread."""
        self._run(self._calls.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        response = await self._calls.handle_async_request(request)
        # As it was sent: what is compressed is read by the client.
        content = [part async for part in response.stream]  # type: ignore[union-attr]
        stream = httpx.ByteStream(b"".join(content))
        return httpx.Response(response.status_code, headers=response.headers, stream=stream)

    def _run(self, answer: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result()


class _Lifespan:
    """Tells an application when it begins and ends, as a server does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._began: asyncio.Future[bool] | None = None

    async def begin(self) -> None:
        """Tell it once.

        Raises:
            RuntimeError: It cannot begin.
        """
        if self._began is None:
            self._began = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._live())
            said = await self._tell("startup")
            self._began.set_result(said != "lifespan.startup.failed")
        if not await self._began:
            raise RuntimeError("the application could not begin: its log says why")

    async def end(self) -> None:
        """Tell it, if it has begun."""
        if self._task is not None:
            if not self._task.done():
                await self._tell("shutdown")
            await self._task
            self._task = None

    async def _tell(self, what: str) -> str:
        await self._told.put({"type": f"lifespan.{what}"})
        return str((await self._said.get())["type"])

    async def _live(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        # An application need not know of lifespans; one that does has said that it failed.
        with suppress(Exception):
            await self._app(scope, self._told.get, self._said.put)
        await self._said.put({"type": "lifespan.unsupported"})

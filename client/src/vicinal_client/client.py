"""`Client` and `AsyncClient`: they take the steps of every call, one with threads, one with tasks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

import httpx

from vicinal_client.models import Item
from vicinal_client.operations import Operations
from vicinal_client.retries import Attempt, Pause, Retries, Step, Steps, Together

__all__ = ["DEFAULT_URL", "AsyncClient", "Client"]

T = TypeVar("T")
DEFAULT_URL = "http://localhost:8321"
_Timeout: TypeAlias = float | httpx.Timeout | None
_Done: TypeAlias = Future[Any] | asyncio.Future[Any]
_USUAL_RETRIES = Retries()
# An image that waits behind others of a busy server takes its time; a connection does not.
_USUAL_TIMEOUT = httpx.Timeout(120.0, connect=10.0)


class Client(Operations):
    """A client of a Vicinal server; threads may share it. `close` or a `with` block ends its connections.

    Args:
        url: Address of the server.
        api_key: A key of the server's settings; None where it asks for none.
        retries: How often and how long a request is sent again.
        timeout: Seconds of each attempt, or an `httpx.Timeout`; None for any time.
        transport: Another transport of httpx, such as `httpx.MockTransport` in tests.
        sleep: Waits so many seconds.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        retries: Retries = _USUAL_RETRIES,
        timeout: _Timeout = _USUAL_TIMEOUT,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.retries = retries
        self._sleep = sleep
        self._http = httpx.Client(transport=transport, **_settings(url, api_key, timeout))

    def __repr__(self) -> str:
        return f"Client('{_shown(self._http.base_url)}')"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def iter_items(self, gallery: str, *, size: int = 1000) -> Iterator[Item]:
        """All items of a gallery, asked for in pages of so many."""
        after: str | None = None
        while True:
            page = self.list_items(gallery, after=after, size=size)
            yield from page.items
            if (after := page.next) is None:
                return

    def take_now(self, steps: Steps[T], stop: threading.Event | None = None) -> T:
        """Take the steps of a call; give up before the next one when `stop` is set."""
        try:
            step = next(steps)
            while True:
                if stop is not None and stop.is_set():
                    raise CancelledError
                try:
                    outcome = self._take(step)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as done:
            result: T = done.value
            return result

    def _take(self, step: Step) -> Any:
        if isinstance(step, Attempt):
            return self._http.request(step.method, step.path, **step.arguments)
        if isinstance(step, Pause):
            return self._sleep(step.seconds)
        return self._take_together(step)

    def _take_together(self, together: Together) -> None:
        errors: list[BaseException] = []
        under_way: set[Future[Any]] = set()
        stop = threading.Event()
        with ThreadPoolExecutor(together.n, thread_name_prefix="vicinal-client") as pool:
            try:
                for call in together.calls:
                    under_way.add(pool.submit(self.take_now, call, stop))
                    if len(under_way) == together.n:
                        done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                        errors += _tell(done, together)
                    if errors:
                        break
                errors += _tell(wait(under_way).done, together)
            except BaseException:
                # Nobody shall wait for a server that is away when the caller is interrupted.
                stop.set()
                raise
        if errors:
            raise errors[0]

    def _bound(self, steps: Callable[..., Steps[T]]) -> Callable[..., T]:
        @wraps(steps)
        def call(*args: Any, **options: Any) -> T:
            return self.take_now(steps(self, *args, **options))

        return call


class AsyncClient(Operations):
    """The same for asyncio: every call is awaited. `aclose` or an `async with` block ends its connections.

    Its arguments are those of `Client`, but for `transport` and `sleep`, which are awaited too.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        retries: Retries = _USUAL_RETRIES,
        timeout: _Timeout = _USUAL_TIMEOUT,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.retries = retries
        self._sleep = sleep
        self._http = httpx.AsyncClient(transport=transport, **_settings(url, api_key, timeout))

    def __repr__(self) -> str:
        return f"AsyncClient('{_shown(self._http.base_url)}')"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def iter_items(self, gallery: str, *, size: int = 1000) -> AsyncIterator[Item]:
        """All items of a gallery, asked for in pages of so many."""
        after: str | None = None
        while True:
            page = await self.list_items(gallery, after=after, size=size)
            for item in page.items:
                yield item
            if (after := page.next) is None:
                return

    async def take(self, steps: Steps[T]) -> T:
        """Take the steps of a call."""
        try:
            step = next(steps)
            while True:
                try:
                    outcome = await self._take(step)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as done:
            result: T = done.value
            return result

    async def _take(self, step: Step) -> Any:
        if isinstance(step, Attempt):
            return await self._http.request(step.method, step.path, **step.arguments)
        if isinstance(step, Pause):
            return await self._sleep(step.seconds)
        return await self._take_together(step)

    async def _take_together(self, together: Together) -> None:
        errors: list[BaseException] = []
        under_way: set[asyncio.Task[Any]] = set()
        try:
            # Files are read beside the event loop.
            while not errors and (call := await asyncio.to_thread(next, together.calls, None)) is not None:
                under_way.add(asyncio.create_task(self.take(call)))
                if len(under_way) == together.n:
                    done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                    errors += _tell(done, together)
            if under_way:
                errors += _tell((await asyncio.wait(under_way))[0], together)
        finally:
            for one in under_way:
                one.cancel()
        if errors:
            raise errors[0]

    def _bound(self, steps: Callable[..., Steps[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
        @wraps(steps)
        async def call(*args: Any, **options: Any) -> T:
            return await self.take(steps(self, *args, **options))

        return call


def _tell(done: Iterable[_Done], together: Together) -> list[BaseException]:
    """Tell what came of calls; those that failed are given back."""
    errors = []
    for one in done:
        error = one.exception()
        if error is None:
            together.on_done(one.result())
        else:
            errors.append(error)
    return errors


def _settings(url: str, api_key: str | None, timeout: _Timeout) -> dict[str, Any]:
    headers = {"User-Agent": f"vicinal-client/{_own_version()}"}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    return {"base_url": url, "headers": headers, "timeout": timeout}


def _shown(url: httpx.URL) -> str:
    """An address without its password."""
    return str(url.copy_with(userinfo=b""))


def _own_version() -> str:
    try:
        return version("vicinal-client")
    except PackageNotFoundError:
        return "0.0.0"

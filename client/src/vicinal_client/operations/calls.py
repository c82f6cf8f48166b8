"""Parts that calls are made of: requests, and methods that one client answers and the other awaits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

import httpx

from vicinal_client.models import Job
from vicinal_client.requests import Image, Model, Vector, image_file, path_of, read_model, vector_of
from vicinal_client.retries import Attempt, Retries, Steps, attempts

__all__ = ["Calls", "TakesNow", "TakesWhenAwaited", "admin_path", "operation"]

P = ParamSpec("P")
T = TypeVar("T")


class TakesNow(Protocol):
    """A client that takes the steps of a call before it returns."""

    def take_now(self, steps: Steps[T]) -> T:
        """Take the steps."""


class TakesWhenAwaited(Protocol):
    """A client that takes the steps of a call when it is awaited."""

    def take(self, steps: Steps[T]) -> Awaitable[T]:
        """Take the steps."""


class operation(Generic[P, T]):  # noqa: N801 (a decorator)
    """A method of both clients, written as steps.

    Args:
        steps: The method; it gives the steps of one call.
    """

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self._steps = steps
        update_wrapper(self, steps)

    @overload
    def __get__(self, client: None, owner: type) -> operation[P, T]: ...
    @overload
    def __get__(self, client: TakesNow, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: TakesWhenAwaited, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else client._bound(self._steps)

    def __call__(self, client: Any, *args: P.args, **options: P.kwargs) -> Any:
        """Call the method of a client, as `Client.search(client, ...)` does."""
        return client._bound(self._steps)(*args, **options)


class Calls:
    """Tools that all calls are made with.

    Attributes:
        retries: How often and how long a request is sent again.
    """

    retries: Retries

    def _send(
        self,
        method: str,
        path: str,
        *,
        repeatable: bool | None = None,
        accepted: tuple[int, ...] = (),
        retries: Retries | None = None,
        **arguments: Any,
    ) -> Steps[httpx.Response]:
        """Send a request; reading may be repeated, anything else only where its call says so."""
        may_repeat = method == "GET" if repeatable is None else repeatable
        attempt = Attempt(method, path, arguments, repeatable=may_repeat, accepted=accepted)
        return (yield from attempts(attempt, retries or self.retries))

    def _ask(self, method: str, path: str, model: type[Model], **arguments: Any) -> Steps[Model]:
        """Send a request, and read its answer."""
        return read_model((yield from self._send(method, path, **arguments)), model)

    def _start(
        self,
        path: str,
        body: dict[str, Any],
        *,
        images: Sequence[Image] | None = None,
        embeddings: Sequence[Vector] | None = None,
        labels: Sequence[str] | None = None,
    ) -> Steps[Job]:
        """Begin a job, with labelled queries where it takes some.

        It is not repeated after a lost connection: the job may have begun, and another would be refused.
        """
        content: dict[str, Any]
        if images is not None:
            files = [image_file(image) for image in images]
            content = {"files": files, "data": {**body, "label": list(labels or ())}}
        else:
            vectors = {} if embeddings is None else {"embeddings": [vector_of(one) for one in embeddings]}
            content = {"json": {**body, **vectors, **({} if labels is None else {"labels": list(labels)})}}
        return (yield from self._ask("POST", path, Job, **content))


def admin_path(gallery: str, *parts: str) -> str:
    """Path of a gallery's calls for administrators."""
    return path_of("admin", "galleries", gallery, *parts)

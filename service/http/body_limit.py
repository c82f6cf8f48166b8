"""Limit on the size of a request body, before anything of it is parsed."""

from __future__ import annotations

from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.service.http.problems import problem

__all__ = ["BodyLimit"]


class BodyLimit:
    """ASGI middleware that answers 413 when a body grows beyond a limit.

    Args:
        app: The application behind.
        max_bytes: Largest accepted body.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self.max_bytes:
            await self._refuse(scope, receive, send)
            return
        received = 0
        started = False

        async def counting_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_bytes:
                raise _TooLargeError
            return message

        async def noting_send(message: Message) -> None:
            nonlocal started
            # The application may answer that it could not read the body; the reason is told below.
            if started or received <= self.max_bytes:
                started = True
                await send(message)

        with suppress(_TooLargeError):
            await self.app(scope, counting_receive, noting_send)
        if received > self.max_bytes and not started:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"].state.metrics.record_problem("body-too-large")
        answer = problem(
            413, "body-too-large", f"the request is larger than max_request_bytes = {self.max_bytes:,}"
        )
        await answer(scope, receive, send)


class _TooLargeError(Exception):
    pass

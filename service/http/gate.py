"""Gate: looks at the rate, the key and the route of a request before a byte of its body is read."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from vicinal.service.errors import TooManyRequestsError
from vicinal.service.http.alias_paths import own_path
from vicinal.service.http.limits import LARGE_BODY
from vicinal.service.http.problems import problem, problem_of
from vicinal.service.http.security import client_of, granted_scopes
from vicinal.service.http.state import State
from vicinal.service.settings import Scope

__all__ = ["Gate"]

_API = "/v1/"


class Gate:
    """ASGI middleware in front of the API; pages and probes pass it.

    An address of the API that no route answers needs a key too: a stranger does not learn what there is.

    Args:
        app: The application behind.
        state: Its state.
        routers: Routers of the API by the scope that their routes need.
        large: Endpoints that take images or embeddings.
    """

    def __init__(
        self,
        app: ASGIApp,
        state: State,
        routers: Mapping[Scope, Iterable[APIRouter]],
        large: Iterable[Any],
    ) -> None:
        self.app = app
        self._state = state
        self._large = set(large)
        self._routes: list[tuple[APIRoute, Scope]] = [
            (route, scope)
            for scope, found in routers.items()
            for router in found
            for route in router.routes
            if isinstance(route, APIRoute)
        ]

    def __call__(self, connection: Connection, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on, or refuse it."""
        if connection["type"] != "http" or not own_path(connection).startswith(_API):
            return self.app(connection, receive, send)
        route, scope = self._route_of(connection)
        passed = {**connection, LARGE_BODY: route is not None and route.endpoint in self._large}
        enter = self._with_key if self._state.rate_limit is None else self._within_rate
        return enter(scope, passed, receive, send)

    def _route_of(self, connection: Connection) -> tuple[APIRoute | None, Scope | None]:
        matching = (one for one in self._routes if one[0].matches(connection)[0] == Match.FULL)
        return next(matching, (None, None))

    async def _within_rate(
        self, scope: Scope | None, connection: Connection, receive: Receive, send: Send
    ) -> None:
        limit, settings = self._state.rate_limit, self._state.settings
        try:
            if limit is not None:
                await run_in_threadpool(limit.check, client_of(Request(connection), settings))
        except TooManyRequestsError as error:
            await self._counted(problem_of(error), "too-many-requests")(connection, receive, send)
        else:
            await self._with_key(scope, connection, receive, send)

    def _with_key(
        self, scope: Scope | None, connection: Connection, receive: Receive, send: Send
    ) -> Awaitable[None]:
        refusal = self._refusal(Request(connection), scope)
        return (self.app if refusal is None else refusal)(connection, receive, send)

    def _refusal(self, request: Request, scope: Scope | None) -> Response | None:
        settings = self._state.settings
        if not settings.api_keys:
            return None
        granted = granted_scopes(request, settings)
        if granted is None:
            refused = problem(401, "unauthorized", "send a valid API key as a bearer token")
            refused.headers["WWW-Authenticate"] = "Bearer"
            return self._counted(refused, "unauthorized")
        if scope is not None and scope not in granted:
            lacks = f"this API key lacks the scope '{scope}'"
            return self._counted(problem(403, "forbidden", lacks), "forbidden")
        return None

    def _counted(self, refusal: Response, kind: str) -> Response:
        self._state.metrics.record_problem(kind)
        return refusal

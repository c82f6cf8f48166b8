"""Gate: looks at the rate, the key and the route of a request before a byte of its body is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from vicinal.service.errors import TooManyRequestsError
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

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if connection["type"] == "http" and connection["path"].startswith(_API):
            route, scope = self._route_of(connection)
            refusal = await self._refusal(Request(connection), scope)
            if refusal is not None:
                await refusal(connection, receive, send)
                return
            is_large = route is not None and route.endpoint in self._large
            connection = {**connection, LARGE_BODY: is_large}
        await self.app(connection, receive, send)

    def _route_of(self, connection: Connection) -> tuple[APIRoute | None, Scope | None]:
        matching = (one for one in self._routes if one[0].matches(connection)[0] == Match.FULL)
        return next(matching, (None, None))

    async def _refusal(self, request: Request, scope: Scope | None) -> Response | None:
        state = self._state
        if state.rate_limit is not None:
            try:
                await run_in_threadpool(state.rate_limit.check, client_of(request, state.settings))
            except TooManyRequestsError as error:
                return self._counted(problem_of(error), "too-many-requests")
        if not state.settings.api_keys:
            return None
        granted = granted_scopes(request, state.settings)
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

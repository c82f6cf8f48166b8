"""Gate: looks at the rate, the key and the route of a request before a byte of its body is read."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from vicinal.indexer.errors import GalleryNameError, StorageError
from vicinal.service.errors import KeyStoreError, TooManyRequestsError
from vicinal.service.http.access import note_key, note_route
from vicinal.service.http.alias_paths import GALLERY, own_path
from vicinal.service.http.audit import audited
from vicinal.service.http.limits import LARGE_BODY
from vicinal.service.http.problems import problem, problem_of
from vicinal.service.http.security import GRANT, client_of, grant_sees_all, key_in
from vicinal.service.http.state import State
from vicinal.service.keys import Grant, key_id
from vicinal.service.problem_types import status_and_kind
from vicinal.service.settings import Scope

_API = "/v1/"
_METRICS = "/metrics"
_ROUTE = "vicinal.route"
_SEARCHES = "vicinal.searches"
_READING = ("GET", "HEAD", "OPTIONS")
_JOBS = re.compile("/v1/jobs(?:/|$)")
_KINDS = {401: "unauthorized", 403: "forbidden", 404: "gallery-not-found"}


class Gate:
    """ASGI middleware in front of the API; pages and probes pass it. The metrics name galleries, and do not.

    An address of the API that no route answers needs a key too: a stranger does not learn what there is.

    Args:
        app: The application behind.
        state: Its state.
        routers: Routers of the API by the scope that their routes need.
        large: Endpoints that take images or embeddings.
        searching: Endpoints that wait for a thread which searches; when too many wait, the body is not read.
    """

    def __init__(
        self,
        app: ASGIApp,
        state: State,
        routers: Mapping[Scope, Iterable[APIRouter]],
        large: Iterable[Any],
        searching: Iterable[Any],
    ) -> None:
        self.app = app
        self._state = state
        self._large = set(large)
        self._searching = set(searching)
        self._routes = list(routes_by_scope(routers))

    def __call__(self, connection: Connection, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on, or refuse it."""
        path = own_path(connection) if connection["type"] == "http" else ""
        if path == _METRICS and self._hides_metrics():
            note_route(connection, _METRICS)
            return self._enter("admin", connection, receive, send)
        if not path.startswith(_API):
            return self.app(connection, receive, send)
        route, scope = self._route_of(connection)
        note_route(connection, None if route is None else route.path)
        passed = {**connection, LARGE_BODY: route is not None and route.endpoint in self._large}
        passed[_ROUTE] = None if route is None else route.path
        passed[_SEARCHES] = route is not None and route.endpoint in self._searching
        return self._enter(scope, passed, receive, send)

    def _hides_metrics(self) -> bool:
        return self._state.keyring.is_asked_for and not self._state.settings.open_metrics

    def _enter(
        self, scope: Scope | None, connection: Connection, receive: Receive, send: Send
    ) -> Awaitable[None]:
        enter = self._with_key if self._state.rate_limit is None else self._within_rate
        return enter(scope, connection, receive, send)

    def _route_of(self, connection: Connection) -> tuple[APIRoute | None, Scope | None]:
        matching = (one for one in self._routes if one[0].matches(connection)[0] == Match.FULL)
        return next(matching, (None, None))

    async def _within_rate(
        self, scope: Scope | None, connection: Connection, receive: Receive, send: Send
    ) -> None:
        limit = self._state.rate_limit
        try:
            if limit is not None:
                await run_in_threadpool(limit.check, client_of(Request(connection), self._state.keyring))
        except (KeyStoreError, TooManyRequestsError) as error:
            await self._counted_of(error, None)(connection, receive, send)
        else:
            await self._with_key(scope, connection, receive, send)

    def _with_key(
        self, scope: Scope | None, connection: Connection, receive: Receive, send: Send
    ) -> Awaitable[None]:
        request, grant = Request(connection), None
        try:
            grant = self._granted(request, scope)
            if connection.get(_SEARCHES):
                self._state.searches.check()
            route = connection.get(_ROUTE)
            if route is None or scope in (None, "search") or request.method in _READING:
                return self.app({**connection, GRANT: grant}, receive, send)
            self._state.audit.require_writable()
        except HTTPException as error:
            return self._noted(self._refusal_of(error), connection, receive, send)
        except (KeyStoreError, StorageError, TooManyRequestsError) as error:
            return self._counted_of(error, grant)(connection, receive, send)
        # Without keys everybody is the same one.
        who = "anybody" if grant is None else grant.name
        passed = {**connection, GRANT: grant}
        return audited(self.app, self._state.audit, who, route, passed, receive, send)

    def _granted(self, request: Request, scope: Scope | None) -> Grant | None:
        """What the key of a request may do; None where none is asked for."""
        keyring = self._state.keyring
        if not keyring.is_asked_for:
            return None
        grant = keyring.find(key_in(request))
        if grant is None:
            raise HTTPException(401, "send a valid API key as a bearer token")
        note_key(request.scope, grant.name)
        if scope is not None and scope not in grant.scopes:
            raise HTTPException(403, f"this API key lacks the scope '{scope}'")
        if grant.galleries is not None:
            self._check_gallery(own_path(request.scope), request.method, grant)
        return grant

    def _check_gallery(self, path: str, method: str, grant: Grant) -> None:
        """Refuse a key that is for some galleries everything else.

        Another gallery is not found, whether it is there or not: its key learns nothing of it.
        """
        named = GALLERY.match(path)
        if named is not None:
            try:
                is_covered = grant.covers(self._state.settings.galleries_path, named[2])
            except GalleryNameError:
                is_covered = True
            if not is_covered:
                raise HTTPException(404, f"there is no gallery '{named[2]}'")
        elif (
            path != "/v1/galleries"
            and not _JOBS.match(path)
            and not (path == "/v1/aliases" and method == "GET")
        ):
            raise HTTPException(403, f"this API key is only for {', '.join(grant.galleries or ())}")

    def _noted(
        self, refusal: Response, connection: Connection, receive: Receive, send: Send
    ) -> Awaitable[None]:
        """Refuse what a key may not do, or what came without one, and note that."""
        sent = key_in(Request(connection))
        grant = self._state.keyring.find(sent)
        if grant is not None:
            log, who = self._state.audit, grant.name
        else:
            log, who = self._state.strangers, key_id(sent) or "nobody"
        return audited(refusal, log, who, connection.get(_ROUTE), connection, receive, send)

    def _refusal_of(self, error: HTTPException) -> Response:
        kind = _KINDS[error.status_code]
        refused = problem(error.status_code, kind, error.detail)
        if error.status_code == 401:
            refused.headers["WWW-Authenticate"] = "Bearer"
        return self._counted(refused, kind)

    def _counted_of(self, error: Exception, grant: Grant | None) -> Response:
        in_full = grant_sees_all(grant, self._state.keyring)
        return self._counted(problem_of(error, in_full=in_full), status_and_kind(error)[1])

    def _counted(self, refusal: Response, kind: str) -> Response:
        self._state.metrics.record_problem(kind)
        return refusal


def routes_by_scope(routers: Mapping[Scope, Iterable[APIRouter]]) -> Iterator[tuple[APIRoute, Scope]]:
    """Each route of some routers, with the scope that it needs."""
    for scope, found in routers.items():
        for router in found:
            yield from ((route, scope) for route in router.routes if isinstance(route, APIRoute))

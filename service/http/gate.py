"""Gate: looks at a request before a byte of its body is read: first at the page that made it, and at the rate
and key of its client once its route is known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIRouter
from pydantic import BaseModel
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from vicinal.indexer.errors import GalleryNameError, GalleryNotFoundError
from vicinal.indexer.storage.gallery_names import folder_of
from vicinal.service.errors import RequestError
from vicinal.service.http.access import audited, call_of, note
from vicinal.service.http.problems import counted_problem
from vicinal.service.http.request_bodies import json_body, limited_body
from vicinal.service.http.state import State, state_of
from vicinal.service.keys import Grant, key_id
from vicinal.service.known_names import did_you_mean
from vicinal.service.request_fields import hides_places
from vicinal.service.settings import Scope, is_loopback

# What is no page loads nothing. No answer is shown inside of another site.
NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": NOTHING,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# Headers that several parts of the service read. Of two, each would take the one that it finds first.
_ONCE = (
    "authorization",
    "content-length",
    "content-type",
    "origin",
    "sec-fetch-site",
    "transfer-encoding",
    "x-api-key",
)
_API = "/v1/"
_GALLERY = re.compile("/v1/(?:admin/)?galleries/([^/]+)")
_READING = ("GET", "HEAD", "OPTIONS")
# Calls that show a key for some galleries what it is for.
_OF_SOME = re.compile("/v1/(?:galleries$|me$|jobs(?:/|$))")
_LARGE = "takes_much"
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


def large_body(endpoint: _Endpoint) -> _Endpoint:
    """Let a call take as much as images or embeddings are; all others take little."""
    setattr(endpoint, _LARGE, True)
    return endpoint


class Routes(APIRouter):
    """Calls with what all of the application have: it takes their routes as they are, which FastAPI would
    otherwise build again for each application, and look through twice for each request.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(
            # In place of FastAPI's own, which no call answers.
            responses={"4XX": {}},
            # `request_bodies` says what a body without a type is, for all routes.
            strict_content_type=False,
            generate_unique_id_function=attrgetter("name"),
            **options,
        )


class OpenRoute(APIRoute):
    """Route that anybody may ask for: a page or a probe; its body is read by `json_body` before FastAPI."""

    needs: ClassVar[Scope | None] = None
    # Whether parameters that a call does not know are refused.
    is_strict: ClassVar[bool] = False

    async def handle(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer a request whose route this is."""
        state = state_of(scope["app"])
        call_of(scope).in_full = not state.keyring.is_asked_for
        await self._answer(state, scope, receive, send)

    async def _answer(self, state: State, scope: Connection, receive: Receive, send: Send) -> None:
        most, seconds = state.settings.max_request_bytes, state.settings.request_seconds
        is_large = getattr(self.endpoint, _LARGE, False)
        body = limited_body(scope, receive, most=most, is_large=is_large, seconds=seconds)
        # Who goes before the body is whole is answered nothing.
        with suppress(ClientDisconnect):
            await super().handle(scope, body, send)

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Function that answers a request."""
        answer = super().get_route_handler()
        if self.body_field is None and not self.is_strict:
            return answer
        field = self.body_field
        model: type[BaseModel] | None = None if field is None else field.field_info.annotation  # type: ignore[assignment]

        async def read_and_answer(request: Request) -> Response:
            # What is refused by its address needs no body.
            if self.is_strict:
                _require_known_parameters(request, self)
            if model is not None:
                # FastAPI takes it as it is.
                request._json = await json_body(request, model)
            return await answer(request)

        return read_and_answer


class ApiRoute(OpenRoute):
    """A route of the API: it needs a key with its scope, and what it changes is noted."""

    is_strict = True
    is_noted: ClassVar[bool] = True

    async def handle(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer a request whose route this is, or refuse it."""
        state, call = state_of(scope["app"]), call_of(scope)
        # Of an address that is asked for in a way that it does not know, only that is told.
        needs = self.needs if scope["method"] in (self.methods or ()) else None
        await admit(state, scope, needs, self.path, scope["path_params"])
        self._check(state, scope)
        answer: ASGIApp = partial(self._answer, state)
        changes = needs is not None and scope["method"] not in _READING
        if changes and self.is_noted:
            state.audit.require_writable()
            # Without keys everybody is the same one.
            who = "anybody" if call.grant is None else call.grant.name
            answer = partial(audited, answer, state.audit, who, self.path)
        gallery = scope["path_params"].get("gallery")
        if gallery is not None:
            # The route refuses what is no name.
            with suppress(GalleryNameError):
                gallery = folder_of(state.settings.galleries_path, gallery).name
            scope["path_params"]["gallery"] = call.gallery = gallery
        await answer(scope, receive, send)

    def _check(self, state: State, scope: Connection) -> None:
        """Refuse what would be refused after its body was read."""


class KeyRoute(ApiRoute):
    """A route that any valid key may ask for, about itself."""

    is_noted = False


class SearchRoute(ApiRoute):
    """A route that reads."""

    needs = "search"
    is_noted = False


class AnswerRoute(SearchRoute):
    """A route of what persons say of searches, which whoever searches may say, and which is noted; when too
    much waits, the body is not read.
    """

    is_noted = True

    def _check(self, state: State, scope: Connection) -> None:
        state.calls(scope).check()


class QueryRoute(SearchRoute):
    """A route that waits for a thread which searches; when too many wait, the body is not read."""

    def _check(self, state: State, _: Connection) -> None:
        state.searches.check()


class WriteRoute(ApiRoute):
    """A route that changes items."""

    needs = "write"


class AdminRoute(ApiRoute):
    """A route of who runs the service."""

    needs = "admin"


class MetricsRoute(AdminRoute):
    """A route that names galleries where its settings do not open it, or nobody is asked for a key."""

    async def handle(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer a request whose route this is, or refuse it."""
        state = state_of(scope["app"])
        is_open = state.settings.open_metrics or not state.keyring.is_asked_for
        await (OpenRoute if is_open else AdminRoute).handle(self, scope, receive, send)


async def unknown_address(scope: Connection, receive: Receive, send: Send) -> None:
    """Refuse a request that no route answers; one of the API needs a key, so that no stranger learns that."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    if root and path.startswith(f"{root}/"):
        # Where the application is mounted, its routes see the rest.
        path = path.removeprefix(root)
    if scope["type"] == "http" and path.startswith(_API):
        named = _GALLERY.match(path)
        await admit(state_of(scope["app"]), scope, None, path, {"gallery": named[1]} if named else {})
    await scope["router"].not_found(scope, receive, send)


async def admit(
    state: State, scope: Connection, needs: Scope | None, path: str, named: Mapping[str, Any]
) -> None:
    """Look at the rate of a client, and at its key; `path` is the address, or the template of that."""
    request, call, keyring = Request(scope), call_of(scope), state.keyring
    sent = key_in(request)
    if state.rate_limit is not None:
        known = keyring.find(sent)
        address = request.client.host if request.client else "unknown"
        client = f"address {address}" if known is None else f"key {known.name}"
        await run_in_threadpool(state.rate_limit.check, client)
    if not keyring.is_asked_for:
        call.in_full = True
        return
    call.grant = grant = keyring.find(sent)
    try:
        if grant is None:
            said = "send a valid API key as a bearer token"
            raise HTTPException(401, said, headers={"WWW-Authenticate": "Bearer"})
        call.in_full = grant.galleries is None
        hides_places.set(not call.in_full or not {"write", "admin"} & {*grant.scopes})
        if needs is not None and not grant.may(needs):
            raise HTTPException(403, f"this API key lacks the scope '{needs}'")
        if grant.galleries is not None:
            _check_gallery(state, path, request.method, named.get("gallery"), grant)
    except (HTTPException, GalleryNotFoundError) as error:
        log, who = (state.strangers, key_id(sent) or "nobody") if grant is None else (state.audit, grant.name)
        route = path if needs is not None else None
        await note(log, who, route, scope, getattr(error, "status_code", 404))
        raise


def _check_gallery(state: State, path: str, method: str, gallery: str | None, grant: Grant) -> None:
    """Refuse a key that is for some galleries everything else, whether it is there or not."""
    if gallery is not None:
        with suppress(GalleryNameError):
            if not grant.covers(state.settings.galleries_path, gallery):
                raise GalleryNotFoundError(f"there is no gallery '{gallery}'")
    elif not _OF_SOME.match(path) and not (path == "/v1/aliases" and method == "GET"):
        raise HTTPException(403, f"this API key is only for {', '.join(grant.galleries or ())}")


class Origins:
    """ASGI middleware that refuses other names of the server (421), and changes from other sites (403).

    A page can point its own name at this machine and then reads every answer. Without API keys only loopback,
    the address that was connected to and `allowed_hosts` pass; with keys any name, unless some are set.
    Searches of another origin (`Sec-Fetch-Site`, `Origin`) are refused too, since each costs an embedding.
    """

    def __init__(self, app: ASGIApp, state: State) -> None:
        self.app = app
        self._state = state
        self._hosts = {state.settings.host, *state.settings.allowed_hosts}

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self.app(scope, receive, send)
            return
        if refusal[0] == 403:
            await note(self._state.strangers, "a page of another origin", None, scope, 403)
        await counted_problem(self._state.metrics, *refusal)(scope, receive, send)

    def _refusal(self, scope: Connection) -> tuple[int, str, str] | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        # A browser always sends one.
        for host in hosts:
            if len(hosts) > 1 or not self._is_served(_name_of(host), scope):
                return 421, "misdirected", f"this server is not asked for as '{host}': see allowed_hosts"
        twice = next((name for name in _ONCE if len(headers.getlist(name)) > 1), None)
        if twice is not None:
            return 400, "invalid-request", f"the request has two headers '{twice}': send one"
        if scope["method"] in _READING or not self._is_from_elsewhere(headers):
            return None
        return 403, "cross-site", "a page of another origin may not do this: see cors_origins"

    def _is_served(self, name: str | None, scope: Connection) -> bool:
        if name is None:
            return False
        connected_to = (scope.get("server") or ("",))[0]
        if is_loopback(name) or name == connected_to or self._hosts & {name, "*"}:
            return True
        if any(host.startswith("*.") and name.endswith(host[1:]) for host in self._hosts):
            return True
        # Without keys nobody but this machine is served, whoever the name belongs to.
        return not self._state.settings.allowed_hosts and self._state.keyring.is_asked_for

    def _is_from_elsewhere(self, headers: Headers) -> bool:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if {origin, "*"} & {*self._state.settings.cors_origins}:
            return False
        if origin == "null" or site is not None:
            return origin == "null" or site not in ("same-origin", "none")
        # The scheme is not compared: a proxy may have taken TLS off.
        return origin is not None and _host_of(origin) != headers.get("host", "").lower()


class AnswerHeaders:
    """ASGI application that adds to answers what browsers may do with them, and answers HEAD as GET."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                await send(message)
                if is_head:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
            elif not is_head:
                await send(message)

        if is_head:
            scope["method"] = "GET"
        await self.app(scope, receive, send_with_headers)


def _host_of(origin: str) -> str | None:
    """Name and port in an `Origin` header; None where it is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _name_of(host: str) -> str | None:
    """The name in a `Host` header, without port; None where it has none."""
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return None
    return name.removesuffix(".") if name and not set(host) & set("/?#@\\ ") else None


def _require_known_parameters(request: Request, route: APIRoute) -> None:
    """Refuse a query parameter which the request's route does not have, or has twice."""
    # Those that a route reads by itself stand in the document alone.
    own = {one["name"] for one in (route.openapi_extra or {}).get("parameters", ())}
    known = sorted(own | _parameters(route.dependant))
    for name, n in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name in known and n > 1:
            # Of two, whoever passes the request on may take the first, and this server the last.
            raise RequestError(f"'{name}' comes more than once: send one")
        if name not in known:
            hint = did_you_mean(name, known) or (f": it has {', '.join(known)}" if known else ": it has none")
            raise RequestError(f"'{name}' is no parameter of {request.method} {route.path}{hint}")


def _parameters(dependant: Dependant) -> set[str]:
    own = {parameter.alias for parameter in dependant.query_params}
    return own.union(*map(_parameters, dependant.dependencies))


def key_in(request: Request) -> str:
    """The API key of a request, `Authorization: Bearer KEY` or `X-API-Key: KEY`, or an empty text."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")


def may_see(request: Request, root: Path, gallery: str) -> bool:
    """Tell whether a call may learn of a gallery that its address does not name."""
    grant = call_of(request.scope).grant
    return grant is None or grant.covers(root, gallery)

"""Gate: looks at rate and key of a request once its route is known, before a byte of its body is read."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, TypeVar

from fastapi import HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from vicinal.indexer.errors import GalleryNameError, GalleryNotFoundError
from vicinal.indexer.storage.gallery_names import folder_of
from vicinal.service.galleries.change_notices import announce_change
from vicinal.service.http.access import call_of
from vicinal.service.http.audit import audited, note
from vicinal.service.http.parameters import require_known_parameters
from vicinal.service.http.request_bodies import json_body, limited_body
from vicinal.service.http.security import client_of, key_in
from vicinal.service.http.state import State, state_of
from vicinal.service.keys import Grant, key_id
from vicinal.service.settings import Scope

_API = "/v1/"
_GALLERY = re.compile("/v1/(?:admin/)?galleries/([^/]+)")
_READING = ("GET", "HEAD", "OPTIONS")
# Calls that show a key for some galleries what it is for.
_OF_SOME = re.compile("/v1/(?:galleries$|jobs(?:/|$))")
_LARGE = "takes_much"
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


def large_body(endpoint: _Endpoint) -> _Endpoint:
    """Let a call take as much as images or embeddings are; all others take little."""
    setattr(endpoint, _LARGE, True)
    return endpoint


class OpenRoute(APIRoute):
    """Route that anybody may ask for: a page or a probe; its body is read by `json_body` before FastAPI."""

    needs: ClassVar[Scope | None] = None

    async def handle(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer a request whose route this is."""
        state = state_of(scope["app"])
        call_of(scope).in_full = not state.keyring.is_asked_for
        await self._answer(state, scope, receive, send)

    async def _answer(self, state: State, scope: Connection, receive: Receive, send: Send) -> None:
        settings = state.settings
        most, seconds = settings.max_request_bytes, settings.request_seconds
        is_large = getattr(self.endpoint, _LARGE, False)
        body = limited_body(scope, receive, most=most, is_large=is_large, seconds=seconds)
        # Who goes before the body is whole is answered nothing.
        with suppress(ClientDisconnect):
            await super().handle(scope, body, send)

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Function that answers a request."""
        answer = super().get_route_handler()
        if self.body_field is None and self.needs is None:
            return answer
        field = self.body_field
        model: type[BaseModel] | None = None if field is None else field.field_info.annotation  # type: ignore[assignment]

        async def read_and_answer(request: Request) -> Response:
            # What is refused by its address needs no body.
            if self.needs is not None:
                require_known_parameters(request, self)
            if model is None:
                return await answer(request)
            read = _ReadRequest(request.scope, request.receive)
            read.model = await json_body(read, model)
            return await answer(read)

        return read_and_answer


class _ReadRequest(Request):
    """A request whose body of JSON is a model already, which FastAPI takes as it is."""

    model: BaseModel

    async def json(self) -> Any:
        return self.model


class ApiRoute(OpenRoute):
    """A route of the API: it needs a key with its scope, and what it changes is noted."""

    async def handle(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer a request whose route this is, or refuse it."""
        state, call = state_of(scope["app"]), call_of(scope)
        # Of an address that is asked for in a way that it does not know, only that is told.
        needs = self.needs if scope["method"] in (self.methods or ()) else None
        await admit(state, scope, needs, self.path, scope["path_params"])
        self._check(state)
        answer: ASGIApp = partial(self._answer, state)
        changes = needs not in (None, "search") and scope["method"] not in _READING
        if changes:
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
        is_done = call.status is not None and call.status < 400
        if changes and is_done and gallery is not None and state.link is not None:
            await run_in_threadpool(announce_change, state.link, gallery)

    def _check(self, state: State) -> None:
        """Refuse what would be refused after its body was read."""


class SearchRoute(ApiRoute):
    """A route that reads."""

    needs = "search"


class QueryRoute(SearchRoute):
    """A route that waits for a thread which searches; when too many wait, the body is not read."""

    def _check(self, state: State) -> None:
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
    path = _own_path(scope) if scope["type"] == "http" else ""
    if path.startswith(_API):
        named = _GALLERY.match(path)
        await admit(state_of(scope["app"]), scope, None, path, {"gallery": named[1]} if named else {})
    await scope["router"].not_found(scope, receive, send)


async def admit(
    state: State, scope: Connection, needs: Scope | None, path: str, named: Mapping[str, Any]
) -> None:
    """Look at the rate of a client, and at its key; `path` is the address, or the template of that."""
    request, call, keyring = Request(scope), call_of(scope), state.keyring
    if state.rate_limit is not None:
        await run_in_threadpool(state.rate_limit.check, client_of(request, keyring))
    if not keyring.is_asked_for:
        call.in_full = True
        return
    sent = key_in(request)
    call.grant = grant = keyring.find(sent)
    try:
        if grant is None:
            said = "send a valid API key as a bearer token"
            raise HTTPException(401, said, headers={"WWW-Authenticate": "Bearer"})
        call.in_full = grant.galleries is None
        if needs is not None and needs not in grant.scopes:
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


def _own_path(scope: Connection) -> str:
    """Path of a request below where the application is mounted, as its routes see it."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path

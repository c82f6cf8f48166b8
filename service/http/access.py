"""Access: every request gets an id, a line in the log, its place in the metrics and a span, refused ones too.

What is told of a request is its method, the template of its route and who asked: neither its address, which
holds ids of items, nor its query, headers or body, which may hold secrets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.service.http.metrics import Metrics
from vicinal.service.observability.logs import request_id_of, with_request_id
from vicinal.service.observability.traces import RequestSpan, Traces

logger = logging.getLogger("vicinal.access")
_SEEN = "vicinal.seen"
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
# Whoever watches the server asks for these every few seconds.
_PROBES = frozenset({"/livez", "/readyz", "/metrics"})
_UNKNOWN = "unmatched"


@dataclass
class Seen:
    """What becomes known of a request while it is answered.

    Attributes:
        route: Template of its route.
        key: Name of the key that it came with.
        gallery: Name of the gallery that it is for.
        status: Status of its answer; None before there is one.
        n_bytes: Length of the answer's body.
        request: Its id, where what is logged meanwhile does not name it anyway.
        span: Its span; None where it has none.
    """

    route: str = _UNKNOWN
    key: str | None = None
    gallery: str | None = None
    status: int | None = None
    n_bytes: int = 0
    request: str | None = None
    span: RequestSpan | None = None


class Access:
    """ASGI middleware around everything else.

    Args:
        app: The application.
        metrics: Where requests are counted.
        traces: What makes their spans; None for none.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, traces: Traces | None = None) -> None:
        self.app = app
        self._metrics = metrics
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and tell of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        seen, started = Seen(), time.perf_counter()
        headers = Headers(scope=scope)
        request, trace = request_id_of(headers.get("x-request-id")), None
        if self._traces is not None:
            seen.span = self._traces.begin(_known(scope["method"]), headers, request)
            trace = seen.span.trace_id

        async def noting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request
            elif message["type"] == "http.response.body":
                seen.n_bytes += len(message.get("body", b""))
            await send(message)

        with with_request_id(request, trace):
            try:
                await self.app({**scope, _SEEN: seen}, receive, noting_send)
            finally:
                # One that is never ended is never sent.
                if seen.span is not None and seen.route not in _PROBES:
                    seen.span.end(seen.route, seen.status, gallery=seen.gallery)
                tell(self._metrics, scope["method"], scope.get("client"), seen, time.perf_counter() - started)


class RouteNote:
    """ASGI middleware right before the routes: notes which of them answered.

    Args:
        app: The routes.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        try:
            await self.app(scope, receive, send)
        finally:
            note_route(scope, getattr(scope.get("route"), "path", None), scope.get("path_params"))


def tell(metrics: Metrics, method: str, client: tuple[str, int] | None, seen: Seen, seconds: float) -> None:
    """Count a request that is over, and write its line into the log."""
    method = _known(method)
    metrics.record_request(method, seen.route, seen.status, seconds)
    level = logging.DEBUG if seen.route in _PROBES else logging.INFO
    if not logger.isEnabledFor(level):
        return
    told = {
        "method": method,
        "route": seen.route,
        "status": seen.status,
        "milliseconds": round(1e3 * seconds, 2),
        "bytes": seen.n_bytes,
        "client": client[0] if client else None,
        "key": seen.key,
        "gallery": seen.gallery,
        "request_id": seen.request,
    }
    logger.log(level, "request", extra={name: value for name, value in told.items() if value is not None})


def note_route(scope: Scope, route: str | None, parameters: dict[str, object] | None = None) -> None:
    """Note the template of the route that a request is for, where it is known before it gets there."""
    seen = scope.get(_SEEN)
    if seen is None or route is None:
        return
    seen.route = route
    gallery = (parameters or {}).get("gallery")
    seen.gallery = str(gallery) if gallery is not None else None


def note_key(scope: Scope, name: str) -> None:
    """Note the name of the key that a request came with; never the key."""
    seen = scope.get(_SEEN)
    if seen is not None:
        seen.key = name


def note_stages(scope: Scope, milliseconds: Mapping[str, float]) -> None:
    """Note the stages of a search that is over, where its request is traced."""
    seen = scope.get(_SEEN)
    if seen is not None and seen.span is not None:
        seen.span.add_stages(milliseconds)


def _known(method: str) -> str:
    return method if method in _METHODS else "other"

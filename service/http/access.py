"""Access: every request, refused or not, gets an id, a line in the log, its place in metrics and a span."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.service.http.metrics import Metrics
from vicinal.service.keys import Grant
from vicinal.service.observability.logs import request_id_of, with_request_id
from vicinal.service.observability.traces import RequestSpan, Traces

logger = logging.getLogger("vicinal.access")
_CALL = "vicinal.call"
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
# Whoever watches the server asks for these every few seconds.
_PROBES = frozenset({"/livez", "/readyz", "/metrics"})
_UNKNOWN = "unmatched"


@dataclass
class Call:
    """Facts that become known of a request while it is answered."""

    route: str = _UNKNOWN  # Template
    grant: Grant | None = None  # What the key that it came with may do
    in_full: bool = False  # Who asks may see all galleries, and learn of the server
    gallery: str | None = None
    items: dict[str, Any] = field(default_factory=dict)  # Which it changes, where its address does not say so
    status: int | None = None  # None before there is an answer
    n_bytes: int = 0  # Of the answer's body
    request: str | None = None  # Its id, where what is logged meanwhile does not name it anyway
    span: RequestSpan | None = None

    def note_stages(self, milliseconds: Mapping[str, float]) -> None:
        """Note the stages of a search that is over, where its request is traced."""
        if self.span is not None:
            self.span.add_stages(milliseconds)


def call_of(scope: Scope) -> Call:
    """Facts known of the request of an ASGI scope."""
    call: Call = scope[_CALL]
    return call


class Access:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, metrics: Metrics, traces: Traces | None = None) -> None:
        self.app = app
        self._metrics = metrics
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and tell of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        call, started = Call(), time.perf_counter()
        headers = Headers(scope=scope)
        request, trace = request_id_of(headers.get("x-request-id")), None
        if self._traces is not None:
            call.span = self._traces.begin(_known(scope["method"]), headers, request)
            trace = call.span.trace_id

        async def noting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                call.status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request
            elif message["type"] == "http.response.body":
                call.n_bytes += len(message.get("body", b""))
            await send(message)

        inner = {**scope, _CALL: call}
        with with_request_id(request, trace):
            try:
                await self.app(inner, receive, noting_send)
            finally:
                call.route = getattr(inner.get("route"), "path", _UNKNOWN)
                # One that is never ended is never sent.
                if call.span is not None and call.route not in _PROBES:
                    call.span.end(call.route, call.status, gallery=call.gallery)
                tell(self._metrics, scope["method"], scope.get("client"), call, time.perf_counter() - started)


def tell(metrics: Metrics, method: str, client: tuple[str, int] | None, call: Call, seconds: float) -> None:
    """Count a request that is over, and write its line into the log."""
    method = _known(method)
    metrics.record_request(method, call.route, call.status, seconds)
    level = logging.DEBUG if call.route in _PROBES else logging.INFO
    if not logger.isEnabledFor(level):
        return
    told = {
        "method": method,
        "route": call.route,
        "status": call.status,
        "milliseconds": round(1e3 * seconds, 2),
        "bytes": call.n_bytes,
        "client": client[0] if client else None,
        "key": None if call.grant is None else call.grant.name,
        "gallery": call.gallery,
        "request_id": call.request,
    }
    logger.log(level, "request", extra={name: value for name, value in told.items() if value is not None})


def _known(method: str) -> str:
    return method if method in _METHODS else "other"

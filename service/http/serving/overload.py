"""Overload: a search that would wait too long is answered 429 once its head is there, at little cost."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from functools import lru_cache

from fastapi.routing import APIRoute

from vicinal.service.errors import TooManyRequestsError
from vicinal.service.http.access import Call, Metrics, tell
from vicinal.service.http.gate import HEADERS
from vicinal.service.http.problems import problem_of
from vicinal.service.http.routes import search
from vicinal.service.http.search_queue import SearchQueue
from vicinal.service.observability.logs import request_id_of, with_request_id
from vicinal.service.problem_types import status_and_kind

# Pattern of a path, and the template of its route.
Route = tuple[re.Pattern[str], str]
_ROUTES = [(route.path_regex, route.path) for route in search.router.routes if isinstance(route, APIRoute)]
_REQUEST_ID = b"x-request-id"
# What a browser needs to read an answer of another site is for the application to say.
_ORIGIN = b"origin"
# Stands in a text for the id of a request.
_ID = b"0" * 16


class Overload:
    """Turns searches away for a server's connections, far cheaper than the application (docs/RESULTS.md)."""

    def __init__(self, searches: SearchQueue, metrics: Metrics) -> None:
        self._searches = searches
        self._metrics = metrics
        self.n_present = 0

    @staticmethod
    def route_of(method: bytes, url: bytes) -> Route | None:
        """The route of a search; None of every other request."""
        if method != b"POST":
            return None
        path = url.partition(b"?")[0].decode("latin-1")
        return next((route for route in _ROUTES if route[0].match(path)), None)

    def refusal(
        self, route: Route, headers: Iterable[tuple[bytes, bytes]], client: tuple[str, int] | None
    ) -> bytes | None:
        """The whole answer to a search that would wait too long; None where the application answers it."""
        started, named = time.perf_counter(), dict(headers)
        if _ORIGIN in named:
            return None
        try:
            self._searches.check(self.n_present)
            return None
        except TooManyRequestsError as error:
            (status, kind), (lines, body) = status_and_kind(error), _text(str(error), error.seconds)
        request = request_id_of(named.get(_REQUEST_ID, b"").decode("latin-1"))
        body = body.replace(_ID, request.encode())
        self._metrics.record_problem(kind)
        call = Call(route[1], status=status, n_bytes=len(body), request=request)
        tell(self._metrics, "POST", client, call, time.perf_counter() - started)
        own = b"content-length: %d\r\nX-Request-ID: %b" % (len(body), request.encode())
        return b"%b\r\n%b\r\n\r\n%b" % (lines, own, body)


@lru_cache(maxsize=64)
def _text(detail: str, seconds: int) -> tuple[bytes, bytes]:
    """Status line and headers of a refusal, but for its length and id, and its body."""
    with with_request_id(_ID.decode()):
        answer = problem_of(TooManyRequestsError(detail, seconds=seconds))
    lines = [
        b"HTTP/1.1 %d Too Many Requests" % answer.status_code,
        *(b"%b: %b" % one for one in answer.raw_headers if one[0] != b"content-length"),
        *(f"{name}: {value}".encode("latin-1") for name, value in HEADERS.items()),
    ]
    return b"\r\n".join(lines), bytes(answer.body)

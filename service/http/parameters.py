"""Query parameters that a route does not know, or has twice, are refused: one would do nothing, unseen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from vicinal.service.errors import RequestError
from vicinal.service.known_names import did_you_mean


def require_known_parameters(request: Request, route: APIRoute) -> None:
    """Refuse a query parameter which the request's route does not have, or has twice."""
    known = sorted(set(_names(route.dependant)))
    for name, n in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name in known and n > 1:
            # Of two, whoever passes the request on may take the first, and this server the last.
            raise RequestError(f"'{name}' comes more than once: send one")
        if name not in known:
            hint = did_you_mean(name, known) or (f": it has {', '.join(known)}" if known else ": it has none")
            raise RequestError(f"'{name}' is no parameter of {request.method} {route.path}{hint}")


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (parameter.alias for parameter in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _names(inner)

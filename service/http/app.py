"""The HTTP application, and what its OpenAPI document says of every call beside what the routes do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from vicinal.service.errors import RequestError
from vicinal.service.http.access import Access
from vicinal.service.http.gate import AnswerHeaders, ApiRoute, Origins, unknown_address
from vicinal.service.http.problems import HANDLERS, Problem
from vicinal.service.http.routes import (
    additions,
    answers,
    calibrations,
    comparisons,
    duplicates,
    galleries,
    items,
    jobs,
    labelling,
    learning,
    metadata,
    operations,
    page,
    pictures,
    search,
)
from vicinal.service.http.state import State, state_of
from vicinal.service.settings import Scope, Settings

_DESCRIPTION = """
Image search that knows when there is no match. Every answer is decided by one threshold, calibrated for a
stated error rate, and says which. Errors are RFC 9457 problem documents.
"""
_ANY = {
    "4XX": "What was wrong with the request.",
    "421": "The server is not asked for by this name.",
    "500": "An unexpected error, or a damaged file; the server's log has the details.",
}
_OF_THE_API = {
    "401": "There is no valid API key.",
    "403": "The API key lacks the scope, or the page is of another origin.",
    "429": "Too many requests; `Retry-After` says when to come again.",
    "503": "Something is busy or away; `Retry-After` says when to come again, where that is known.",
}
_WITH_BODY = {"413": "The request is larger than the call takes."}
_CHANGING = {"507": "The disk is full or read-only."}
_GALLERY = "^[a-z0-9][a-z0-9_-]{0,63}$"
_RETRY = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
_SECURITY_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key. A server without keys asks for none.",
    },
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same."},
}
_EXAMPLES = {
    "search": {"item_id": "shoe/1.jpg", "limit": 5, "filter": "metadata.price < 50"},
    "search_batch": {"queries": [{"item_id": "shoe/1.jpg"}, {"item_id": "shoe/2.jpg"}], "limit": 5},
    "add_items": {
        "items": [{"id": "a", "embedding": [0.1, 0.7, -0.2], "label": "shoe", "metadata": {"price": 30}}],
        "space": "clip-vit-b32",
    },
    "delete_items": {"ids": ["shoe/1.jpg", "shoe/2.jpg"]},
    "patch_item": {"label": "shoe", "metadata": {"price": 25, "sold": None}},
    "answer_search": {"search_id": "9f86d081884c7d659a2feaa0c55ad015", "label": "shoe"},
    "put_alias": {"gallery": "shop-2"},
    "reindex_gallery": {"source": "photos"},
    "start_calibration": {"target": "fpir=1%"},
    "put_threshold": {"threshold": 0.6},
}
ROUTERS = (
    search.router,
    galleries.router,
    items.router,
    additions.router,
    items.writing_router,
    galleries.admin_router,
    jobs.router,
    calibrations.router,
    comparisons.router,
    duplicates.router,
    labelling.router,
    answers.router,
    answers.labels_router,
    answers.admin_router,
    learning.router,
    learning.items_router,
    metadata.router,
    pictures.router,
    operations.router,
    operations.key_router,
    operations.metrics_router,
    page.router,
)


def create_app(settings: Settings | None = None) -> FastAPI:
    """Create the application and load the model bundle; settings come from the environment when None.

    Raises:
        BundleError: The bundle cannot be used.
        RequestError: These are no settings.
    """
    if not isinstance(settings, Settings | None):
        raise RequestError(
            f"settings are of {type(settings).__name__}, expected Settings(data_dir=…) or none"
        )
    state = State(settings or Settings())
    app = _Application(
        title="Vicinal",
        version=_version(),
        description=_DESCRIPTION,
        lifespan=_running,
        docs_url=None,
        redoc_url=None,
        # It would name a host and a scheme, which may be those behind a proxy.
        redirect_slashes=False,
        exception_handlers=HANDLERS,
    )
    app.state.vicinal = state
    if state.settings.cors_origins:
        # In front of the routes: a browser asks whether it may without the key.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=state.settings.cors_origins,
            allow_methods=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
            allow_headers=("Authorization", "Content-Type", "Last-Event-ID", "X-API-Key"),
            expose_headers=("Location", "Retry-After"),
        )
    app.add_middleware(Origins, state=state)
    app.router.routes.extend(chain.from_iterable(one.routes for one in ROUTERS))
    app.router.default = unknown_address
    return app


class _Application(FastAPI):
    """An application whose every answer has the headers, and whose document says what each call answers."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            needs = {
                one.name: [one.needs] if one.needs else [] for one in self.routes if isinstance(one, ApiRoute)
            }
            self.openapi_schema = complete_document(super().openapi(), needs)
        return self.openapi_schema

    def build_middleware_stack(self) -> ASGIApp:
        state = state_of(self)
        return Access(AnswerHeaders(super().build_middleware_stack()), state.metrics)


def complete_document(document: dict[str, Any], scopes: Mapping[str, list[Scope]]) -> dict[str, Any]:
    """Add to a document the problems of each call, who may call it, and examples.

    Args:
        document: OpenAPI document, which is changed.
        scopes: What a key needs for each call that takes one; any valid key does where that is nothing.
    """
    _simplify(document)
    parts = document.setdefault("components", {})
    parts.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
    parts["securitySchemes"] = _SECURITY_SCHEMES
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for method, operation in chain.from_iterable(calls.items() for calls in document["paths"].values()):
        name = operation["operationId"]
        needed = scopes.get(name)
        described = dict(_ANY)
        if needed is not None:
            operation["security"] = [{"bearer": needed}, {"key": needed}]
            described |= _OF_THE_API if method == "get" else _OF_THE_API | _CHANGING
        if "requestBody" in operation:
            described |= _WITH_BODY
        responses = operation["responses"]
        for status, description in described.items():
            if status not in responses or status == "4XX":
                headers = {"headers": _RETRY} if status in ("429", "503") else {}
                responses[status] = {"description": description, "content": content, **headers}
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path" and parameter["name"] in ("gallery", "alias"):
                parameter["schema"]["pattern"] = _GALLERY
        if name in _EXAMPLES:
            operation["requestBody"]["content"]["application/json"]["example"] = _EXAMPLES[name]
    return document


def _simplify(part: Any) -> None:
    """Write arrays of a fixed length whose values are alike without a schema for each place."""
    if isinstance(part, list):
        for one in part:
            _simplify(one)
    elif isinstance(part, dict):
        places = part.get("prefixItems")
        if isinstance(places, list) and all(one == places[0] for one in places):
            part["items"] = part.pop("prefixItems")[0]
        for one in part.values():
            _simplify(one)


@asynccontextmanager
async def _running(app: FastAPI) -> AsyncIterator[None]:
    # `vicinal serve` runs the state around its server. Here it runs for whoever serves the application in
    # another way, and for tests that call it in their process.
    with state_of(app).running():
        yield


def _version() -> str:
    try:
        return version("vicinal")
    except PackageNotFoundError:
        return "0.0.0"

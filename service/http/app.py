"""The HTTP application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from vicinal.service.errors import RequestError
from vicinal.service.http.access import Access
from vicinal.service.http.document import complete_document
from vicinal.service.http.gate import AnswerHeaders, OpenRoute, Origins, unknown_address
from vicinal.service.http.problems import HANDLERS
from vicinal.service.http.routes import (
    additions,
    calibrations,
    comparisons,
    duplicates,
    galleries,
    items,
    jobs,
    labelling,
    operations,
    search,
)
from vicinal.service.http.state import State, state_of
from vicinal.service.settings import Settings

_DESCRIPTION = """
Image search that knows when there is no match. Every answer is decided by one threshold, calibrated for a
stated error rate, and says which. Errors are RFC 9457 problem documents.
"""
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
    operations.router,
    operations.metrics_router,
)


def create_app(settings: Settings | None = None) -> FastAPI:
    """Create the application and load the model bundle.

    Args:
        settings: Settings; from the environment when None.

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
        # `request_bodies` says what a body without a type is, for all routes.
        strict_content_type=False,
        # In place of FastAPI's own, which no call answers.
        responses={"4XX": {}},
        generate_unique_id_function=attrgetter("name"),
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
    for router in ROUTERS:
        app.include_router(router)
    app.router.default = unknown_address
    return app


class _Application(FastAPI):
    """An application whose every answer has the headers, and whose document says what each call answers."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            routes = (one for router in ROUTERS for one in router.routes if isinstance(one, OpenRoute))
            needs = {route.name: route.needs for route in routes}
            self.openapi_schema = complete_document(super().openapi(), needs)
        return self.openapi_schema

    def build_middleware_stack(self) -> ASGIApp:
        state = state_of(self)
        return Access(AnswerHeaders(super().build_middleware_stack()), state.metrics, state.traces)


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

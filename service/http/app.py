"""The HTTP application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter, Depends, FastAPI

from vicinal.service.http.alias_paths import AliasPaths
from vicinal.service.http.gate import Gate
from vicinal.service.http.limits import BodyLimit
from vicinal.service.http.parameters import require_known_parameters
from vicinal.service.http.problems import Problem, install_problem_handlers
from vicinal.service.http.routes import (
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
from vicinal.service.http.state import State, announce_write, state_of
from vicinal.service.settings import Scope, Settings

__all__ = ["create_app"]

_DESCRIPTION = """
Image search that knows when there is no match. Every answer is decided by one threshold, calibrated for a
stated error rate, and says which. Errors are RFC 9457 problem documents.
"""
_ROUTERS: dict[Scope, tuple[APIRouter, ...]] = {
    "search": (
        search.router,
        galleries.router,
        galleries.alias_router,
        items.router,
        items.thumbnails_router,
    ),
    "write": (items.writing_router,),
    "admin": (
        galleries.admin_router,
        galleries.alias_admin_router,
        jobs.router,
        calibrations.router,
        comparisons.router,
        duplicates.router,
        labelling.router,
        jobs.reindex_router,
    ),
}
# Calls that take images or embeddings; all others take little.
_LARGE_BODIES = (
    search.search,
    search.search_batch,
    items.add_items,
    calibrations.start_calibration,
    calibrations.start_check,
    comparisons.start_comparison,
)


def create_app(settings: Settings | None = None) -> FastAPI:
    """Create the application and load the model bundle.

    Args:
        settings: Settings; from the environment when None.

    Raises:
        BundleError: The bundle cannot be used.
    """
    state = State.of(settings or Settings())
    app = FastAPI(
        title="Vicinal",
        version=_version(),
        description=_DESCRIPTION,
        lifespan=_running,
        responses={"4XX": {"model": Problem, "description": "What was wrong with the request."}},
    )
    app.state.vicinal = state
    install_problem_handlers(app, state.metrics)
    app.add_middleware(AliasPaths, root=state.settings.galleries_path)
    app.add_middleware(BodyLimit, max_bytes=state.settings.max_request_bytes, metrics=state.metrics)
    app.add_middleware(Gate, state=state, routers=_ROUTERS, large=_LARGE_BODIES)
    for scope, routers in _ROUTERS.items():
        dependencies = [Depends(require_known_parameters)]
        if scope != "search":
            dependencies.append(Depends(announce_write))
        for router in routers:
            app.include_router(router, dependencies=dependencies)
    app.include_router(operations.router)
    return app


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

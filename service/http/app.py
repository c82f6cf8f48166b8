"""The HTTP application."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fastapi import Depends, FastAPI

from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.http.bodies.search import Problem
from vicinal.service.http.body_limit import BodyLimit
from vicinal.service.http.metrics import Metrics
from vicinal.service.http.problems import install_problem_handlers
from vicinal.service.http.rate_limit import limit_rate
from vicinal.service.http.routes import galleries, items, jobs, operations, page, search
from vicinal.service.http.routes.calibrations import router as calibrations_router
from vicinal.service.http.routes.reindex import router as reindex_router
from vicinal.service.http.routes.versions import router as comparisons_router
from vicinal.service.http.security import require_scope
from vicinal.service.http.state import install_sharing, open_link
from vicinal.service.settings import Settings

__all__ = ["create_app"]

_DESCRIPTION = """
Image search that knows when there is no match. Every answer is decided by one threshold, calibrated for a
stated error rate, and says which. Errors are RFC 9457 problem documents.
"""


def create_app(settings: Settings | None = None) -> FastAPI:
    """Create the application and load the model bundle.

    Args:
        settings: Settings; from the environment when None.

    Raises:
        BundleError: The bundle cannot be used.
    """
    settings = settings or Settings()
    app = FastAPI(
        title="Vicinal",
        version=_version(),
        description=_DESCRIPTION,
        dependencies=[Depends(limit_rate)],
        responses={"4XX": {"model": Problem, "description": "What was wrong with the request."}},
    )
    app.state.settings = settings
    link = open_link(settings)
    app.state.galleries = OpenGalleries(settings, link)
    opened: OpenGalleries = app.state.galleries
    app.state.metrics = Metrics(
        provider=opened.embedder.provider,
        bundle=opened.embedder.bundle.fingerprint,
        refiner=opened.refiner,
        refine=opened.pipeline.refine.sides,
    )
    install_sharing(app, settings, link)
    install_problem_handlers(app)
    app.add_middleware(BodyLimit, max_bytes=settings.max_request_bytes)
    for router in (search.router, galleries.router, items.router):
        app.include_router(router, dependencies=[Depends(require_scope("search"))])
    app.include_router(items.writing_router, dependencies=[Depends(require_scope("write"))])
    for router in (galleries.admin_router, jobs.router):
        app.include_router(router, dependencies=[Depends(require_scope("admin"))])
    app.include_router(calibrations_router, dependencies=[Depends(require_scope("admin"))])
    app.include_router(comparisons_router, dependencies=[Depends(require_scope("admin"))])
    app.include_router(reindex_router, dependencies=[Depends(require_scope("admin"))])
    app.include_router(operations.router)
    app.include_router(page.router)
    return app


def _version() -> str:
    try:
        return version("vicinal")
    except PackageNotFoundError:
        return "0.0.0"

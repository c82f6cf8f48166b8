"""Liveness, readiness, metrics, and the web pages."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from vicinal.service.http.bodies.galleries import LimitsBody, ReadinessBody
from vicinal.service.http.state import State, StateDependency

__all__ = ["router"]

router = APIRouter(tags=["operations"])

# Style and script stand in the page as it is served; nothing else is loaded from anywhere but this server.
_PAGE_POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
)


@router.get("/livez")
def livez() -> dict[str, str]:
    """The process answers."""
    return {"status": "alive"}


@router.get(
    "/readyz", responses={503: {"model": ReadinessBody, "description": "Not ready, with the reasons."}}
)
def readyz(state: StateDependency, response: Response) -> ReadinessBody:
    """Whether searches can be answered: 503 when a gallery cannot be searched, with the reasons."""
    readiness = _readiness(state)
    if not readiness.ready:
        response.status_code = 503
    return readiness


@router.get("/metrics", response_class=Response)
def metrics(state: StateDependency) -> Response:
    """Prometheus metrics."""
    return Response(state.metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/", include_in_schema=False)
def page() -> HTMLResponse:
    """The search page; it uses the HTTP API and loads nothing from elsewhere."""
    return _page("index.html")


@router.get("/label", include_in_schema=False)
def label_page() -> HTMLResponse:
    """The page that asks which photos show the same thing; see `routes.labelling`."""
    return _page("label.html")


def _page(name: str) -> HTMLResponse:
    html, style = (
        (files("vicinal.service") / "static" / one).read_text(encoding="utf-8") for one in (name, "base.css")
    )
    html = html.replace('<link rel="stylesheet" href="base.css">', f"<style>\n{style}</style>")
    return HTMLResponse(html, headers={"Content-Security-Policy": _PAGE_POLICY})


def _readiness(state: State) -> ReadinessBody:
    states = state.galleries.states()
    own = state.galleries.bundles.own_if_open
    reasons = [one.problem for one in states if one.problem]
    return ReadinessBody(
        ready=not reasons,
        reasons=reasons,
        bundle=own and own.bundle.fingerprint,
        refiner=own and own.refiner and own.refiner.fingerprint,
        refine=own and own.pipeline.refine.sides,
        provider=own and own.embedder.provider,
        other_bundles=[one.bundle.fingerprint for one in state.galleries.bundles.others],
        galleries=states,
        redis=None if state.link is None else state.link.state,
        limits=LimitsBody.model_validate(state.settings),
    )

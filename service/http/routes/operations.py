"""Liveness, readiness and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Response

from vicinal.indexer.errors import IndexerError
from vicinal.service.errors import CalibrationRecordError
from vicinal.service.galleries.open_galleries import GalleryState, OpenGalleries
from vicinal.service.http.bodies.search import GalleryStateBody, ReadinessBody, RedisBody
from vicinal.service.http.requests import GalleriesDependency, MetricsDependency, RedisDependency
from vicinal.service.redis_link import RedisLink

__all__ = ["router"]

router = APIRouter(tags=["operations"])


@router.get("/livez")
def livez() -> dict[str, str]:
    """The process answers."""
    return {"status": "alive"}


@router.get(
    "/readyz", responses={503: {"model": ReadinessBody, "description": "Not ready, with the reasons."}}
)
def readyz(galleries: GalleriesDependency, redis: RedisDependency, response: Response) -> ReadinessBody:
    """Whether searches can be answered: 503 when a gallery cannot be searched, with the reasons."""
    readiness = _readiness(galleries, redis)
    if not readiness.ready:
        response.status_code = 503
    return readiness


@router.get("/metrics", response_class=Response)
def metrics(metrics: MetricsDependency) -> Response:
    """Prometheus metrics."""
    return Response(metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _readiness(galleries: OpenGalleries, redis: RedisLink | None) -> ReadinessBody:
    states = [_state(galleries, state) for state in galleries.states()]
    reasons = [state.problem for state in states if state.problem]
    return ReadinessBody(
        ready=not reasons,
        reasons=reasons,
        bundle=galleries.embedder.bundle.fingerprint,
        refiner=galleries.refiner,
        refine=galleries.pipeline.refine.sides,
        provider=galleries.embedder.provider,
        other_bundles=[one.bundle.fingerprint for one in galleries.bundles.others],
        galleries=states,
        redis=None if redis is None else RedisBody.model_validate(redis.state),
    )


def _state(galleries: OpenGalleries, state: GalleryState) -> GalleryStateBody:
    if state.problem:
        return GalleryStateBody(name=state.name, problem=state.problem)
    try:
        matcher = galleries.matcher(state.name)
        chosen = matcher.active_pipeline
        threshold = matcher.threshold(chosen.pipeline)
    except (IndexerError, CalibrationRecordError) as error:
        # A damaged calibration fails every search of its gallery.
        return GalleryStateBody(name=state.name, problem=str(error))
    return GalleryStateBody(
        name=state.name,
        problem=None,
        bundle=state.bundle,
        pipeline=chosen.pipeline.key,
        pipeline_source=chosen.source,
        pipeline_reason=chosen.reason,
        calibration=threshold.state,
        calibration_reason=threshold.reason,
    )

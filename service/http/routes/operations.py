"""Liveness, readiness, metrics, what a key may do, and the documentation of the API."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.resources import files
from typing import Annotated, Literal

from fastapi import HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import Field

from vicinal.service.errors import KeyStoreError
from vicinal.service.galleries.home import HomeState, home_state
from vicinal.service.galleries.open_galleries import GalleryState
from vicinal.service.http.access import call_of
from vicinal.service.http.gate import NOTHING, KeyRoute, MetricsRoute, OpenRoute, Routes, key_in
from vicinal.service.http.state import State, StateDependency
from vicinal.service.request_fields import Body
from vicinal.service.search.answers import stage_devices
from vicinal.service.search.redis_link import RedisState
from vicinal.service.settings import SCOPES, Scope

router = Routes(tags=["operations"], route_class=OpenRoute)
key_router = Routes(prefix="/v1", tags=["operations"], route_class=KeyRoute)
metrics_router = Routes(tags=["operations"], route_class=MetricsRoute)

# What the documentation needs, as its package has it.
_DOCS_FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}


class LimitsBody(Body):
    """Limits of one request, as the settings of these names say."""

    max_image_bytes: int
    max_image_pixels: int
    max_request_bytes: int
    max_batch: int = Field(description="Most images or queries.")
    max_embeddings: int = Field(description="Most ready embeddings of one addition.")
    max_limit: int


class ReadinessBody(Body):
    """Readiness: whether searches can be answered, and by what."""

    ready: bool
    reasons: list[str]
    bundle: str | None = Field(
        description="Fingerprint of the bundle of the settings. Null, as are the next three, while it is not "
        "open: every gallery holds ready embeddings, and nothing has needed it."
    )
    refiner: str | None = Field(description="Fingerprint of the bundle's refiner; null without one.")
    refine: str | None = Field(description="What `auto` refines: `off`, `gallery`, `query` or `both`.")
    provider: str | None = Field(description="Execution provider of ONNX Runtime that is really in use.")
    devices: dict[str, str] = Field(
        description="What each stage of a search runs on, as in `explain`: `cpu`, GPUs such as `cuda:0`, and "
        "for `embed`, which is missing while no bundle is open, `CUDAExecutionProvider on cuda:0`. Of "
        "`search` it is where the indexes of the galleries are that have been searched."
    )
    degraded: list[str] = Field(
        description="What is slower than it could be, waits or is refused, and why: indexes or networks that "
        "are on the processor in the place of a GPU, galleries that wait for Milvus, jobs whose store "
        "does not answer, keys that are damaged or cannot be read, searches that cannot be kept, a replica "
        "that is behind its home. Empty where nothing is."
    )
    other_bundles: list[str] = Field(
        description="Fingerprints of bundles that are open for galleries of another bundle."
    )
    n_galleries: int
    galleries: list[GalleryState] = Field(description="None without an API key, where keys are asked for.")
    redis: RedisState | None = Field(description="Null when no address is set.")
    home: HomeState | None = Field(
        None, description="How far this replica is behind its home; null without one."
    )
    limits: LimitsBody


@router.get("/livez")
async def livez() -> dict[str, str]:
    """The process answers."""
    return {"status": "alive"}


@router.get(
    "/readyz", responses={503: {"model": ReadinessBody, "description": "Not ready, with the reasons."}}
)
async def readyz(
    request: Request,
    state: StateDependency,
    response: Response,
    galleries: Annotated[
        Literal["all", "any"],
        Query(
            description="`any` is ready as long as one can be searched: for who sends searches to several "
            "replicas, which all are without a gallery that none can search."
        ),
    ] = "all",
) -> ReadinessBody:
    """Tell whether searches can be answered: 503 when a gallery cannot be searched, with the reasons; not
    where only its engine is away, which no other replica has either.

    Where API keys are asked for, galleries are named to those who send one that is for all of them.
    """
    looked = partial(_readiness, state, key_in(request), needs_all=galleries == "all")
    readiness = await asyncio.get_running_loop().run_in_executor(state.probes, looked)
    if not readiness.ready:
        response.status_code = 503
    return readiness


@metrics_router.get("/metrics", response_class=Response)
async def metrics(state: StateDependency) -> Response:
    """Prometheus metrics; of several processes of one server together.

    Where API keys are asked for, it needs one that is for all galleries, unless `open_metrics` is set.
    """
    told = await asyncio.get_running_loop().run_in_executor(state.probes, state.metrics.exposition)
    return Response(told, media_type="text/plain; version=0.0.4; charset=utf-8")


class RightsBody(Body):
    """Rights of the key of a call."""

    asks_for_keys: bool = Field(description="Whether calls need a key; without, everybody may do all.")
    name: str | None = Field(description="The key's name, as changes are noted under; null without keys.")
    scopes: list[Scope] = Field(description="Scopes of calls that it may make; `admin` has `search` in it.")
    galleries: list[str] | None = Field(description="Galleries that it is for; null for all.")


@key_router.get("/me")
def get_rights(request: Request, state: StateDependency) -> RightsBody:
    """Tell what the key that was sent may do, so that a program offers nothing else."""
    grant = call_of(request.scope).grant
    if grant is None:
        return RightsBody(
            asks_for_keys=state.keyring.is_asked_for, name=None, scopes=list(SCOPES), galleries=None
        )
    scopes = [one for one in SCOPES if grant.may(one)]
    galleries = None if grant.galleries is None else list(grant.galleries)
    return RightsBody(asks_for_keys=True, name=grant.name, scopes=scopes, galleries=galleries)


@router.get("/docs", include_in_schema=False)
def docs() -> HTMLResponse:
    """The documentation of the API, to try its calls with; it needs no other server."""
    html = (files("vicinal.service") / "static" / "docs.html").read_text(encoding="utf-8")
    own = html.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    policy = (
        f"{NOTHING}; script-src 'self' 'sha256-{digest}'; style-src 'self'; img-src data:; connect-src 'self'"
    )
    return HTMLResponse(html, headers={"Content-Security-Policy": policy})


@router.get("/docs/{name}", include_in_schema=False)
def docs_file(name: str) -> Response:
    """A file that the documentation loads."""
    if name not in _DOCS_FILES:
        raise HTTPException(404)
    found = files("fastapi_swagger.resources") / name
    cached = {"Cache-Control": "public, max-age=3600"}
    return Response(found.read_bytes(), media_type=_DOCS_FILES[name], headers=cached)


def _readiness(state: State, key: str, *, needs_all: bool) -> ReadinessBody:
    sees_names = False
    # Where the keys cannot be read nobody is known, and the probe is told that.
    with suppress(KeyStoreError):
        grant = state.keyring.find(key)
        sees_names = not state.keyring.is_asked_for if grant is None else grant.galleries is None
    away, keys = state.jobs.look(), state.keyring.problem
    jobs = away and str(away)
    searches = state.keeper.problems
    if not sees_names:
        # The log has the file and the process that holds it.
        jobs = jobs and "the store of jobs does not answer"
        keys = keys and "the stored keys cannot be read: none is accepted"
    states = state.galleries.states()
    home = None if state.mirror is None else home_state(state.mirror)
    own, others = state.galleries.bundles.own_if_open, state.galleries.bundles.others
    embedders = [one.embedder for one in (own, *others) if one is not None]
    n, reasons = len(states), [one.problem for one in states if one.problem and not one.lacks_engine]
    waiting = [f"gallery '{one.name}': {one.problem}" for one in states if one.lacks_engine]
    is_ready = not reasons or (not needs_all and len(reasons) < n)
    if home is not None and home.seconds_behind is None:
        # It has never heard of what it is to serve.
        reasons, is_ready = [*reasons, home.problem or ""], False
    if not sees_names:
        states, reasons = [], reasons and [f"{len(reasons)} of {n} galleries cannot be searched"]
        waiting = waiting and [f"{len(waiting)} of {n} galleries wait for their engine"]
    return ReadinessBody(
        ready=is_ready,
        reasons=reasons,
        bundle=own and own.bundle.fingerprint,
        refiner=own and own.refiner and own.refiner.fingerprint,
        refine=own and own.pipeline.refine.sides,
        provider=own and own.embedder.provider,
        devices=stage_devices(
            ", ".join(state.galleries.index_devices.used), None if own is None else own.embedder.runs_on
        ),
        degraded=[
            *waiting,
            *state.galleries.index_devices.problems,
            *(one.problem for one in embedders if one.problem is not None),
            *filter(None, [jobs, keys, home and home.problem]),
            *(searches if sees_names else searches and ["searches of galleries cannot be kept"]),
        ],
        other_bundles=[one.bundle.fingerprint for one in others],
        n_galleries=n,
        galleries=states,
        redis=None if state.link is None else state.link.state,
        home=home if home is None or sees_names else replace(home, home=None),
        limits=LimitsBody.model_validate(state.settings),
    )

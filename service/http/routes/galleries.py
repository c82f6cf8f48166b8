"""Galleries: what each holds, its versions, and how one is made, rolled back and removed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from pydantic import Field

from vicinal.indexer.errors import BundleMismatchError, SpaceMismatchError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import create_gallery
from vicinal.indexer.jobs.retention import VersionSummary, describe_versions
from vicinal.indexer.storage.gallery_names import aliases, remove_alias, require_name, set_alias
from vicinal.models.bundle import ModelBundle, space_manifest
from vicinal.models.errors import BundleError
from vicinal.service.answering.store import SearchStore
from vicinal.service.comparing.store import ComparisonStore
from vicinal.service.errors import CalibrationRecordError, RequestError
from vicinal.service.galleries.open_galleries import UNREADABLE
from vicinal.service.galleries.storage_use import StorageUse, storage_use
from vicinal.service.galleries.versions import CompactionState
from vicinal.service.galleries.versions import activate_version as activate
from vicinal.service.http.access import call_of
from vicinal.service.http.gate import AdminRoute, Routes, SearchRoute, may_see
from vicinal.service.http.state import State, StateDependency, state_of
from vicinal.service.measuring.drift import DriftLevel
from vicinal.service.measuring.evidence import Evidence
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.problem_types import detail_of
from vicinal.service.reports.report import say_promise
from vicinal.service.reports.standing import Standing, promise_in_short, standing
from vicinal.service.request_fields import Body, RequestFields
from vicinal.service.search.answers import Threshold

router = Routes(prefix="/v1", tags=["galleries"], route_class=SearchRoute)
admin_router = Routes(prefix="/v1", tags=["galleries"], route_class=AdminRoute)


class CalibrationBody(Body):
    """The calibration in use."""

    id: str
    target: str | None
    threshold: float
    rates: dict[str, float | None] | None
    evidence: Evidence | None = Field(
        description="Intervals of the rates and what they let expect; null for a threshold set by hand."
    )


class GalleryBody(Body):
    """Gallery as it is."""

    name: str
    aliases: list[str] = Field(description="Further names that it is reached by.")
    version: int = Field(description="The built version that is searched.")
    revision: int = Field(description="The state of its live changes.")
    n_items: int
    n_labels: int
    graph_staleness: float = Field(
        description="Share of the items that changed since the neighbor lists of all items were made."
    )
    dim: int
    index: str
    bundle: str
    bundle_name: str
    calibration: CalibrationBody | None
    threshold: Threshold | None = Field(
        description="What searches without further options are decided by, and whether it holds; null when "
        "the calibration cannot be used."
    )
    promise: tuple[str, ...] = Field(
        description="Sentences on what the threshold lets expect: first how many matches are right, how many "
        "things are found and how many strangers get a match, or what a check found broken. Empty without a "
        "calibration."
    )
    calibration_problem: str | None = Field(description="Why the calibration cannot be used.")
    promise_in_short: str | None = Field(
        description="One line on how many matches are right and how many things are found, with photos of "
        "another day too: each as a range."
    )
    standing: Standing = Field(description="How far that can be relied on.")
    changed_at: datetime | None = Field(description="When what is searched changed last.")
    takes: Literal["images", "embeddings"] = Field(description="What items are made of.")
    kept_searches: int | None = Field(
        description="Searches that are kept to be asked about; null where their file cannot be read."
    )
    kept_searches_bytes: int = Field(description="What these take on the disk.")


class GalleryListBody(Body):
    """All galleries."""

    galleries: list[GalleryBody] = Field(description="Those that can be searched.")
    problems: dict[str, str] = Field(description="Why each of the others cannot be searched, by name.")


class AliasTarget(RequestFields):
    """Target of an alias."""

    gallery: str = Field(description="Name of the gallery, or another alias of it.")


class AliasBody(Body):
    """Alias of a gallery."""

    alias: str
    gallery: str = Field(description="Name of the gallery that it stands for.")


class AliasListBody(Body):
    """All aliases."""

    aliases: list[AliasBody]


@dataclass(frozen=True)
class VersionBody(VersionSummary):
    """Version of a gallery."""

    comparison: Annotated[
        str | None, Field(description="Its newest comparison with another, in one line.")
    ] = None


class VersionListBody(Body):
    """All versions of a gallery, newest first."""

    versions: list[VersionBody]


@router.get("/galleries")
def list_galleries(request: Request, state: StateDependency) -> GalleryListBody:
    """All galleries of those that the key is for: what can be searched, and why the others cannot."""
    found, problems = [], {}
    for name in state.galleries.names():
        if not may_see(request, state.galleries.path, name):
            continue
        try:
            matcher = state.galleries.matcher(name)
            matcher.prepare()
            found.append(_describe(matcher, request))
        except UNREADABLE as error:
            problems[name] = detail_of(error, in_full=call_of(request.scope).in_full)
    return GalleryListBody(galleries=found, problems=problems)


@router.get("/galleries/{gallery}")
def get_gallery(gallery: str, request: Request, state: StateDependency) -> GalleryBody:
    """Read a gallery: its size, index, bundle and calibration."""
    return _describe(state.galleries.matcher(gallery), request)


@router.get("/galleries/{gallery}/storage")
async def get_storage(gallery: str, request: Request, state: StateDependency) -> StorageUse:
    """Bytes that a gallery takes on the disk, by what they are for, and what is free there."""
    found = await state.calls(request.scope).called(
        request, lambda: storage_use(state.galleries.gallery(gallery))
    )
    return found[0]


@router.get("/galleries/{gallery}/versions")
def list_versions(gallery: str, state: StateDependency) -> VersionListBody:
    """Versions of a gallery, newest first, with what each takes on the disk."""
    opened = state.galleries.gallery(gallery)
    lines = ComparisonStore(opened.path).summaries()
    found = [VersionBody(**vars(one), comparison=lines.get(one.version)) for one in describe_versions(opened)]
    return VersionListBody(versions=found)


@router.get("/galleries/{gallery}/compaction")
def get_compaction(gallery: str, request: Request, state: StateDependency) -> CompactionState:
    """Tell whether live changes are being made a new version, and what became of the last time."""
    found = state.galleries.maintenance.compaction_state(state.galleries.reader(gallery))
    if found.problem is None or call_of(request.scope).in_full:
        return found
    return replace(found, problem="the server's log has the details")


@admin_router.post("/galleries/{gallery}/compaction", status_code=202)
def begin_compaction(gallery: str, request: Request, state: StateDependency) -> CompactionState:
    """Begin to make the live changes of a gallery a new version now; one that runs goes on."""
    with suppress(BundleMismatchError):
        # The new version is refined as the one that is searched.
        state.galleries.matcher(gallery)
    state.galleries.maintenance.begin(state.galleries.reader(gallery))
    return get_compaction(gallery, request, state)


@admin_router.put(
    "/galleries/{gallery}", responses={201: {"model": GalleryBody, "description": "It was made."}}
)
def put_gallery(
    gallery: str,
    request: Request,
    state: StateDependency,
    response: Response,
    space: Annotated[
        str | None, Query(description="What makes the ready embeddings that it will hold, such as `clip@2`.")
    ] = None,
    dim: Annotated[int | None, Query(ge=1, le=65_536, description="Length of these embeddings.")] = None,
) -> GalleryBody:
    """Make a gallery without items; one that is there stays as it is.

    It takes images for the service's bundle, or, with `space` and `dim`, ready embeddings of that space. One
    that is there with another space is refused.
    """
    require_name(gallery)
    if space is not None or dim is not None:
        is_new = _make_for_space(state, gallery, space, dim)
    else:
        own = state.galleries.own
        made = Gallery(state.galleries.path / gallery, refinement=own.refinement)
        is_new = False
        # One that is there with another bundle is described below, or refused where that is not here.
        with suppress(BundleMismatchError):
            is_new = create_gallery(made, own.bundle)
    response.status_code = 201 if is_new else 200
    return _describe(state.galleries.matcher(gallery), request)


@admin_router.delete("/galleries/{gallery}", status_code=204)
def delete_gallery(
    gallery: str,
    state: StateDependency,
    confirm: Annotated[
        str,
        Query(description="Name of the gallery once more: a path alone may have been shortened on its way."),
    ],
) -> None:
    """Remove a gallery with all its versions and calibrations; one with an alias is refused: 409."""
    found = state.galleries.gallery(gallery)
    if confirm != gallery:
        raise RequestError(
            f"confirm is '{confirm}', and this address is that of gallery '{gallery}': nothing was deleted"
        )
    found.delete()
    state.galleries.close(gallery)


@admin_router.post("/galleries/{gallery}/versions/{version}/activate")
def activate_version(
    gallery: str,
    version: int,
    request: Request,
    state: StateDependency,
    as_built: Annotated[
        bool, Query(description="Without the live changes made while it was active before.")
    ] = False,
) -> GalleryBody:
    """Search another version from the next request on; searches under way are not disturbed.

    What was calibrated for it comes into force with it. Without its bundle: 409.
    """
    galleries = state.galleries
    activate(galleries.gallery(gallery), version, as_built=as_built, bundles=galleries.bundles)
    return _describe(galleries.matcher(gallery), request)


@router.get("/aliases")
def list_aliases(request: Request, state: StateDependency) -> AliasListBody:
    """All aliases: further names of galleries, which clients keep while the gallery behind is exchanged."""
    found = aliases(state.galleries.path).items()
    seen = [(alias, name) for alias, name in found if may_see(request, state.galleries.path, name)]
    return AliasListBody(aliases=[AliasBody(alias=alias, gallery=name) for alias, name in seen])


@admin_router.put("/aliases/{alias}")
def put_alias(alias: str, body: AliasTarget, state: StateDependency) -> AliasBody:
    """Let an alias, new or existing, stand for a gallery from the next request on.

    The name of a gallery is refused: 409.
    """
    set_alias(state.galleries.path, alias, body.gallery)
    return AliasBody(alias=alias, gallery=aliases(state.galleries.path)[alias])


@admin_router.delete("/aliases/{alias}", status_code=204)
def delete_alias(alias: str, state: StateDependency) -> None:
    """Let a name stand for no gallery any more; the gallery stays."""
    remove_alias(state.galleries.path, alias)


def _make_for_space(state: State, name: str, space: str | None, dim: int | None) -> bool:
    if space is None or dim is None:
        raise RequestError("give space and dim together: what makes the embeddings, and their length")
    try:
        manifest = space_manifest(space, dim)
    except BundleError as error:
        raise RequestError(str(error)) from error
    gallery = Gallery(state.galleries.path / name)
    try:
        return create_gallery(gallery, ModelBundle(gallery.space_path, manifest))
    except BundleMismatchError as error:
        raise SpaceMismatchError(name, gallery.in_words, manifest.in_words) from error


def _describe(matcher: Matcher, request: Request) -> GalleryBody:
    view, manifest = matcher.view, matcher.snapshot.manifest
    calibration, threshold, calibration_problem = None, None, None
    promise: tuple[str, ...] = ()
    in_short = record = None
    try:
        record, threshold = matcher.calibrations.active(matcher.pipeline), matcher.threshold()
        promise = say_promise(matcher)
        if record is not None and threshold.value is not None:
            in_short = promise_in_short(record)
        calibration = record and CalibrationBody(
            id=record.id,
            target=str(record.target) if record.target else None,
            threshold=record.threshold,
            rates=record.rates.model_dump() if record.rates else None,
            evidence=record.evidence,
        )
    except CalibrationRecordError as error:
        # Searches of this gallery fail with this reason; the list of all galleries must not.
        calibration_problem = detail_of(error, in_full=call_of(request.scope).in_full)
    gallery = matcher.gallery
    n_kept, n_bytes = SearchStore(gallery.path).readable
    drift: DriftLevel = "unknown"
    if threshold is not None:
        counts = state_of(request.app).galleries.drift
        drift = counts.level(gallery.name, matcher.pipeline.key, threshold)
    return GalleryBody(
        name=gallery.name,
        aliases=gallery.aliases,
        version=manifest.version,
        revision=view.revision,
        n_items=len(view),
        n_labels=view.n_labels,
        graph_staleness=view.graph_staleness,
        dim=manifest.dim,
        index=manifest.index,
        bundle=manifest.bundle,
        bundle_name=manifest.bundle_name,
        calibration=calibration,
        threshold=threshold,
        promise=promise,
        calibration_problem=calibration_problem,
        promise_in_short=in_short,
        standing=standing(threshold, drift, calibration_problem, record),
        changed_at=gallery.pointer.changed_at,
        takes="images" if gallery.space is None else "embeddings",
        kept_searches=n_kept,
        kept_searches_bytes=n_bytes,
    )

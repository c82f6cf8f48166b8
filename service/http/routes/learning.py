"""Learning of a gallery: searches become items, items are set aside, and why a match was wrong."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import Request, Response
from pydantic import Field

from vicinal.indexer.jobs.set_aside import bring_back, listed_aside, set_aside, thumbnail_aside
from vicinal.service.answering.additions import A_LABEL, SearchAdditions, add_confirmed, remove_added
from vicinal.service.answering.why import WrongMatchBody, explain_wrong
from vicinal.service.http.access import note_items, who_asks
from vicinal.service.http.gate import AdminRoute, Routes, WriteRoute
from vicinal.service.http.routes.items import DeletionBody, ItemId
from vicinal.service.http.state import State, StateDependency
from vicinal.service.request_fields import Body, ItemUri, RequestFields

router = Routes(prefix="/v1/admin/galleries/{gallery}", tags=["answers"], route_class=AdminRoute)
items_router = Routes(prefix="/v1/galleries/{gallery}", tags=["items"], route_class=WriteRoute)


class SearchAdditionRequest(RequestFields):
    """Searches that shall become items."""

    search_ids: list[str] | None = Field(
        None, max_length=1000, description="These alone; the most useful ones of each label when null."
    )
    a_label: int = Field(
        A_LABEL,
        strict=True,
        ge=1,
        le=100,
        description="Most items of searches that a label has, where none is named.",
    )


class RemovedItemBody(Body):
    """Item of a search, which is gone."""

    item_id: str


class SettingAside(RequestFields):
    """Items that shall be found by nothing."""

    ids: list[str] = Field(min_length=1, max_length=1000, description="Ids of items that are there.")
    reason: str = Field(min_length=1, max_length=1000, description="Why, in words for others.")
    instead: dict[str, str] = Field(
        default_factory=dict,
        max_length=1000,
        description="Of copies, the item that stays for each, by id: it gets the labels and metadata that it "
        "lacks, and what was said of the copy of searches holds for it.",
    )


class SetAsideBody(DeletionBody):
    """Outcome of setting items aside."""

    carried: int = Field(description="Labels and values of the metadata that other items got.")
    conflicts: tuple[str, ...] = Field(description="Where these have others, which stay: a sentence each.")


class SetAsideItemBody(Body):
    """Item that is set aside."""

    id: str
    label: str | None
    uri: ItemUri
    metadata: dict[str, Any]
    reason: str
    by: str = Field(description="Name of the key, or of who used the command.")
    at: datetime
    bundle: str = Field(description="Fingerprint of the bundle that embedded it.")


class SetAsideListBody(Body):
    """Items that are set aside."""

    items: list[SetAsideItemBody]


class BroughtBackBody(Body):
    """Item that is found again."""

    id: str
    n_items: int = Field(description="Items in the gallery now.")


@router.post("/answers/items")
def add_searches(
    gallery: str, body: SearchAdditionRequest, request: Request, state: StateDependency
) -> SearchAdditions:
    """Make searches items of the gallery of which persons agree what they show.

    Those come first that were missed, then unsure ones; one of a visit. Calibrations search for them as if
    these were not there. What is added without being named is also compacted, so that calibrations have it.
    """
    matcher, reader = state.galleries.matcher(gallery), state.galleries.reader(gallery)
    done = add_confirmed(reader, matcher.embedder, a_label=body.a_label, only=body.search_ids)
    note_items(request, [one.item_id for one in done.added])
    if done.added:
        state.galleries.changed(gallery)
        if body.search_ids is None:
            state.galleries.maintenance.begin(reader)
    return done


@router.delete("/searches/{search}/item")
def remove_added_search(
    gallery: str, search: str, request: Request, state: StateDependency
) -> RemovedItemBody:
    """Remove the item that a search became."""
    item_id = remove_added(state.galleries.reader(gallery), search)
    note_items(request, [item_id])
    state.galleries.changed(gallery)
    return RemovedItemBody(item_id=item_id)


@router.get("/searches/{search}/why")
def explain_wrong_match(gallery: str, search: str, item_id: ItemId, state: StateDependency) -> WrongMatchBody:
    """Say what a match of a kept search rests on."""
    return explain_wrong(state.galleries.matcher(gallery), search, item_id)


@items_router.get("/set-aside")
def list_items_aside(gallery: str, state: StateDependency) -> SetAsideListBody:
    """Items that are set aside, in the order in which they were."""
    found = listed_aside(state.galleries.reader(gallery))
    return SetAsideListBody(items=[SetAsideItemBody.model_validate(one) for one in found])


@items_router.post("/set-aside")
def set_items_aside(
    gallery: str, body: SettingAside, request: Request, state: StateDependency
) -> SetAsideBody:
    """Let nothing find some items any more, until they are brought back: all of them, or none."""
    note_items(request, [*body.ids, *body.instead.values()])
    said = {"reason": body.reason, "by": who_asks(request)}
    change = set_aside(state.galleries.reader(gallery), body.ids, **said, instead=body.instead)
    state.galleries.changed(gallery)
    return SetAsideBody(
        removed=change.n_removed,
        n_items=_n_items(state, gallery),
        revision=change.revision,
        carried=change.n_carried,
        conflicts=change.conflicts,
    )


@items_router.delete("/set-aside")
def bring_item_back(
    gallery: str, item_id: ItemId, request: Request, state: StateDependency
) -> BroughtBackBody:
    """Bring an item back that was set aside, as it was."""
    note_items(request, [item_id])
    bring_back(state.galleries.reader(gallery), item_id)
    state.galleries.changed(gallery)
    return BroughtBackBody(id=item_id, n_items=_n_items(state, gallery))


@items_router.get("/set-aside/thumbnail", response_class=Response)
def get_thumbnail_aside(gallery: str, item_id: ItemId, state: StateDependency) -> Response:
    """Thumbnail of an item that is set aside, a JPEG."""
    picture = thumbnail_aside(state.galleries.reader(gallery), item_id)
    return Response(picture, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=60"})


def _n_items(state: State, gallery: str) -> int:
    return len(state.galleries.matcher(gallery).view)

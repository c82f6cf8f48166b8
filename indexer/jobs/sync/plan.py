"""Sync plan: what becomes of each item when a gallery takes over what a source lists now.

Only `removed`, which has to be asked for, takes out an item; only `changed` and `replaced` change its image.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal, Self, get_args

from pydantic import TypeAdapter

from vicinal.indexer.hygiene import Hygiene
from vicinal.indexer.jobs.changes import OUTCOME_WHERE_TAKEN, OnConflict
from vicinal.indexer.jobs.embedding_run import Failure, RunOptions
from vicinal.indexer.sources import EmbeddingSource, Refuse, SourceItem, refuse_none
from vicinal.indexer.storage.removals import Removal, RemovedItems

# Beside what `Outcome` says. `changed`: the source has another image for an item of its own. `updated`: it
# has the same image, with another label or other metadata. `missing`: it no longer lists an item of its own,
# which stays; `removed`: which goes. `left_out`: a person removed this image, and it does not come back.
SyncOutcome = Literal[
    "added",
    "changed",
    "updated",
    "replaced",
    "unchanged",
    "skipped",
    "refused",
    "missing",
    "removed",
    "left_out",
]
_NONE_REMOVED = RemovedItems()


@dataclass(frozen=True, slots=True)
class Description:
    """All that is kept of an item beside what was made of its image."""

    label: str | None
    metadata: str  # A JSON object
    # Absolute path or address of the folder, manifest or file that it came from; None for uploads
    source: str | None
    listing: str | None  # Label and metadata as the source gave them, see `preparation.listing_of`
    uri: str  # Its file, or where it was
    file_size: int | None = None
    modified_at: int | None = None  # When the file was written last, in microseconds since 1970

    def is_file_of(self, other: Description | Removal) -> bool:
        """Tell whether both are of one file that was not written in between."""
        state = (self.file_size, self.modified_at)
        return None not in state and (self.uri, *state) == (other.uri, other.file_size, other.modified_at)


@dataclass(frozen=True, slots=True)
class HeldItem:
    """An item of the gallery, with the digest of its file or of its ready embedding."""

    description: Description
    content_sha256: bytes


@dataclass(frozen=True, slots=True)
class ListedItem:
    """An item of the source."""

    description: Description
    # SHA-256 of its file or ready embedding; called only where nothing else decides
    digest: Callable[[], bytes]


@dataclass
class SyncPlan:
    """Outcomes of the items."""

    # Of every listed item and of those that are missing
    outcomes: dict[str, SyncOutcome] = field(default_factory=dict)
    # Of held items that stay under their ids, where they are no longer as they are held
    described: dict[str, Description] = field(default_factory=dict)
    n_taken_over: int = 0  # Items among them that belong to another source or lie elsewhere now

    def ids(self, *outcomes: SyncOutcome) -> list[str]:
        """Ids of some outcomes, in the order of the source."""
        return [item_id for item_id, outcome in self.outcomes.items() if outcome in outcomes]

    def counts(self) -> dict[str, int]:
        """Numbers of items by outcome, without those that none has."""
        found = list(self.outcomes.values())
        return {one: n for one in get_args(SyncOutcome) if (n := found.count(one))}

    def fail(self, ids: Iterable[str]) -> None:
        """Leave out images that cannot be used: what is held under their ids stays."""
        for item_id in ids:
            self.outcomes.pop(item_id, None)
            self.described.pop(item_id, None)

    @property
    def is_needed(self) -> bool:
        """Tell whether the gallery does not hold all of it yet."""
        return bool(
            self.n_taken_over or self.ids("added", "changed", "updated", "replaced", "removed", "refused")
        )


def plan_sync(
    held: Mapping[str, HeldItem],
    listed: Mapping[str, ListedItem],
    *,
    source: str | None,
    also_listed: Iterable[str] = (),
    conflict: OnConflict = "error",
    delete: bool = False,
    removed: RemovedItems = _NONE_REMOVED,
    moved: Mapping[int | None, Collection[bytes]] = MappingProxyType({}),
) -> SyncPlan:
    """Decide what becomes of each item; those in `also_listed` must not be looked at, and are not missing."""
    plan = SyncPlan()
    for item_id, item in listed.items():
        there = held.get(item_id)
        outcome: SyncOutcome = "added" if there is None else _outcome(there, item, conflict)
        if outcome != "unchanged" and _was_removed(item, removed.of_id(item_id), moved):
            outcome = "left_out"
        plan.outcomes[item_id] = outcome
        if there is not None and outcome in ("unchanged", "changed"):
            _describe(plan, item_id, there.description, item.description)
    if source is not None:
        known = {*listed, *also_listed}
        for item_id, there in held.items():
            if there.description.source == source and item_id not in known:
                plan.outcomes[item_id] = "removed" if delete else "missing"
    if delete:
        _follow_content(plan, held, listed)
    return plan


def _was_removed(
    listed: ListedItem, removed: Collection[Removal], moved: Mapping[int | None, Collection[bytes]]
) -> bool:
    """Tell whether a person removed this very image, under this id or under another one of its source."""
    now = listed.description
    if any(now.source == one.source and now.is_file_of(one) for one in removed):
        return True
    contents = {one.content for one in removed}.union(moved.get(now.file_size, ()))
    return bool(contents) and listed.digest() in contents


def _outcome(held: HeldItem, listed: ListedItem, conflict: OnConflict) -> SyncOutcome:
    before, now = held.description, listed.description
    is_own = now.source is not None and now.source == before.source
    # Two folders can hold files of one size and time: only of one and the same file this says something.
    if is_own and now.is_file_of(before):
        return "unchanged"
    if listed.digest() == held.content_sha256:
        return "unchanged"
    return "changed" if is_own else OUTCOME_WHERE_TAKEN[conflict]


def _describe(plan: SyncPlan, item_id: str, before: Description, now: Description) -> None:
    new = _merged(before, now)
    if new == before:
        return
    plan.described[item_id] = new
    if plan.outcomes[item_id] != "unchanged":
        return
    if (new.label, new.metadata) != (before.label, before.metadata):
        plan.outcomes[item_id] = "updated"
    elif (new.source, new.uri) != (before.source, before.uri):
        plan.n_taken_over += 1


def _merged(before: Description, now: Description) -> Description:
    """Description by a source, with the labels and metadata that were given by hand since its last one."""
    is_own = now.source is not None and now.source == before.source
    if is_own and now.listing == before.listing:
        return replace(now, label=before.label, metadata=before.metadata)
    said_label, said = json.loads(before.listing) if is_own and before.listing else (None, {})
    label = now.label if now.label != said_label else before.label
    metadata = _with_changes(json.loads(before.metadata or "{}"), said, json.loads(now.metadata or "{}"))
    kept = replace(now, label=label, metadata=before.metadata if metadata is None else json.dumps(metadata))
    if now.source is None:
        # What has no source of its own takes nothing over.
        return replace(kept, source=before.source, listing=before.listing)
    return kept


def _follow_content(plan: SyncPlan, held: Mapping[str, HeldItem], listed: Mapping[str, ListedItem]) -> None:
    """Let what was set by hand go with its image to the id that the source gives it now."""
    moves = _moves(plan, held, listed)
    for item_id in {one for move in moves for one in move}:
        # What was set by hand there is of the image that left.
        if plan.outcomes[item_id] == "changed":
            plan.described.pop(item_id, None)
    for item_id, new_id in moves:
        is_copy = plan.outcomes[new_id] in ("unchanged", "updated")
        now = plan.described.get(new_id, (held if is_copy else listed)[new_id].description)
        new = _with_set_by_hand(now, held[item_id].description)
        if new != now:
            plan.described[new_id] = new
            if is_copy:
                plan.outcomes[new_id] = "updated"


def _moves(
    plan: SyncPlan, held: Mapping[str, HeldItem], listed: Mapping[str, ListedItem]
) -> list[tuple[str, str]]:
    """Pairs of an id that its image leaves and of one that has it now, in their order; the last one has what
    several leave. An item that had the image before counts where another goes, and no new one has it.
    """
    leaving = plan.ids("removed", "changed")
    sizes = {held[item_id].description.file_size for item_id in leaving}
    contents = {held[item_id].content_sha256 for item_id in leaving}
    new, copies = defaultdict[bytes, list[str]](list), defaultdict[bytes, list[str]](list)
    for item_id in plan.ids("added", "changed", "replaced"):
        if listed[item_id].description.file_size in sizes:
            new[listed[item_id].digest()].append(item_id)
    for item_id in plan.ids("unchanged", "updated"):
        if (content := held[item_id].content_sha256) in contents:
            copies[content].append(item_id)
    moves = []
    for item_id in leaving:
        content, goes = held[item_id].content_sha256, plan.outcomes[item_id] == "removed"
        if ids := new[content] or (copies[content] if goes else []):
            moves.append((item_id, ids.pop(0) if len(ids) > 1 else ids[0]))
    return moves


def _with_set_by_hand(now: Description, before: Description) -> Description:
    """Description with what was set by hand of the same image before, unless it is set by hand itself."""
    (old, told), (new, tells) = _fields(before), _fields(now)
    moved = [
        one for one in {**old, **told} if old.get(one) != told.get(one) and new.get(one) == tells.get(one)
    ]
    if not moved:
        return now
    for key in moved:
        new.pop(key, None)
    new |= {key: old[key] for key in moved if key in old}
    return replace(now, label=new.pop(None), metadata=json.dumps(new))


def _fields(one: Description) -> tuple[dict[str | None, Any], dict[str | None, Any]]:
    """Metadata of an item and, under None, its label; and the same as its source gave it."""
    said_label, said = json.loads(one.listing or "[null, {}]")
    return {**json.loads(one.metadata or "{}"), None: one.label}, {**said, None: said_label}


def _with_changes(held: dict[str, Any], said: dict[str, Any], says: dict[str, Any]) -> dict[str, Any] | None:
    """Held metadata with what the source changed; None where that is nothing."""
    merged = dict(held)
    for key in {**said, **says}:
        if key not in says:
            merged.pop(key, None)
        elif key not in said or said[key] != says[key]:
            merged[key] = says[key]
    return None if merged == held else merged


@dataclass(frozen=True)
class IndexPlan:
    """Plan of what to build."""

    # What to index: images, of two with one id the first is kept; or ready embeddings. None for the gallery's
    # own items alone, which are kept in any case
    items: Sequence[SourceItem] | EmbeddingSource | None
    # Absolute path or address of the folder, manifest or file that they come from, by which its items are
    # known again; None for images that come from none
    source: str | None = None
    # What to do with an image whose id belongs to another image of another source
    conflict: OnConflict = "error"
    delete: bool = False  # Leave out items of the source that it does not list any more
    restore: bool = False  # Bring back what a person removed and the source still lists
    # Factory string of the vector index, `auto` or an engine; None for that of the searched version
    index: str | None = None
    activate: bool = True  # Put the new version in force; otherwise it waits to be activated
    # Version whose own calibrations come into force with it; as before when None
    calibrated_as: int | None = None
    options: RunOptions = field(default_factory=RunOptions)  # How images are embedded; `resumes` is filled in
    refuse: Refuse = refuse_none  # Why a file must not be read
    # Folders, archives and files of the source that were not read, each with the reason
    unread: Mapping[str, str] = field(default_factory=dict)
    # Id of a job that makes one version, so that another attempt knows that it is made
    job: str | None = None

    @property
    def ids(self) -> set[str]:
        """Ids of what is to be indexed; none for the gallery's own items."""
        if isinstance(self.items, EmbeddingSource):
            return set(self.items.ids.to_pylist())
        return {item.id for item in self.items or ()}


@dataclass(frozen=True)
class IndexResult:
    """Result of an index job."""

    version: int
    n_items: int
    n_labels: int
    index: str
    provider: str  # Execution provider that embedded the items
    seconds: dict[str, float]  # By stage
    failures: list[Failure]  # Images or rows left out
    hygiene: Hygiene
    # Items by what became of them, see `sync.plan.SyncOutcome`
    counts: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)  # The first ids that the source no longer lists
    left_out: list[str] = field(default_factory=list)  # The first ids that it lists and a person removed
    # The first folders, archives and files of the source that were not read, with the reasons
    unread: dict[str, str] = field(default_factory=dict)
    n_embedded: int = 0  # Or read of a file of ready embeddings
    is_new: bool = True  # Not when the gallery held all of it before
    is_active: bool = False
    # Why it is not active, when it should be; or what else whoever searches it has to know
    remark: str | None = None

    @classmethod
    def from_report(cls, report: dict[str, Any], *, is_active: bool, remark: str | None = None) -> Self:
        """Result as a version's report says it."""
        return replace(TypeAdapter(cls).validate_python(report), is_active=is_active, remark=remark)

    def as_report(self) -> dict[str, Any]:
        """Record of it that is kept beside the version."""
        fields = asdict(self)
        del fields["is_new"], fields["is_active"], fields["remark"]
        created_at = datetime.now(UTC).isoformat(timespec="seconds")
        return {"kind": "index", **fields, "created_at": created_at}

    @property
    def n_failed(self) -> int:
        """Number of images or rows left out."""
        return len(self.failures)

    def summary(self) -> dict[str, Any]:
        """All of it in a few values: what was left out is counted, and hygiene stays in the report."""
        names = (
            *("version", "n_items", "n_labels", "index", "n_failed", "counts", "n_embedded", "seconds"),
            *("is_new", "is_active", "remark"),
        )
        return {name: getattr(self, name) for name in names}

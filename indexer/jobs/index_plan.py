"""Index plan: what a new version of a gallery is to be, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from vicinal.indexer.hygiene import Hygiene
from vicinal.indexer.jobs.changes import OnConflict
from vicinal.indexer.jobs.embedding_run import Failure, RunOptions
from vicinal.indexer.sources import EmbeddingSource, Refuse, SourceItem, refuse_none


@dataclass(frozen=True)
class IndexPlan:
    """What to build."""

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
    index: str = "auto"  # Factory string of the vector index, or `auto`
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
    """What an index job made."""

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
    remark: str | None = None  # Why it is not active, when it should be

    @classmethod
    def from_report(cls, report: dict[str, Any], *, is_active: bool, remark: str | None = None) -> Self:
        """What a version's report says of it."""
        names = (
            *("version", "n_items", "n_labels", "index", "provider", "seconds"),
            *("counts", "missing", "left_out", "unread", "n_embedded"),
        )
        return cls(
            **{name: report[name] for name in names},
            failures=[Failure(**one) for one in report["failures"]],
            hygiene=Hygiene(**report["hygiene"]),
            is_active=is_active,
            remark=remark,
        )

    def as_report(self) -> dict[str, Any]:
        """What is kept of it beside the version."""
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


class StageClock:
    """Seconds by stage; a stage ends with its lap."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.monotonic()
        self.laps[stage] = round(now - self._last, 3)
        self._last = now

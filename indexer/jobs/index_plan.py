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
    """What to build.

    Attributes:
        items: What to index: images, of two with one id the first is kept; or ready embeddings. None for the
            gallery's own items alone, which are kept in any case.
        source: Absolute path or address of the folder, manifest or file that they come from, by which its
            items are known again; None for images that come from none.
        conflict: What to do with an image whose id belongs to another image of another source.
        delete: Leave out items of the source that it does not list any more.
        restore: Bring back what a person removed and the source still lists.
        index: Factory string of the vector index, or `auto`.
        activate: Put the new version in force; otherwise it waits to be activated.
        calibrated_as: Version whose own calibrations come into force with it; as before when None.
        options: How images are embedded; `resumes` is filled in.
        refuse: Why a file must not be read.
        unread: Folders, archives and files of the source that were not read, each with the reason.
        job: Id of a job that makes one version, so that another attempt knows that it is made.
    """

    items: Sequence[SourceItem] | EmbeddingSource | None
    source: str | None = None
    conflict: OnConflict = "error"
    delete: bool = False
    restore: bool = False
    index: str = "auto"
    activate: bool = True
    calibrated_as: int | None = None
    options: RunOptions = field(default_factory=RunOptions)
    refuse: Refuse = refuse_none
    unread: Mapping[str, str] = field(default_factory=dict)
    job: str | None = None

    @property
    def ids(self) -> set[str]:
        """Ids of what is to be indexed; none for the gallery's own items."""
        if isinstance(self.items, EmbeddingSource):
            return set(self.items.ids.to_pylist())
        return {item.id for item in self.items or ()}


@dataclass(frozen=True)
class IndexResult:
    """What an index job made.

    Attributes:
        provider: Execution provider that embedded the items.
        seconds: Seconds by stage.
        failures: Images or rows left out.
        hygiene: Duplicates and thin classes, which spoil a calibration.
        counts: Items by what became of them, see `sync.plan.SyncOutcome`.
        missing: The first ids that the source no longer lists.
        left_out: The first ids that it lists and a person removed.
        unread: The first folders, archives and files of the source that were not read, with the reasons.
        n_embedded: Items that were embedded for it, or read of a file of ready embeddings.
        is_new: Whether it was made; not when the gallery held all of it before.
        is_active: Whether the version is searched now.
        remark: Why it is not, when it should be.
    """

    version: int
    n_items: int
    n_labels: int
    index: str
    provider: str
    seconds: dict[str, float]
    failures: list[Failure]
    hygiene: Hygiene
    counts: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    n_embedded: int = 0
    is_new: bool = True
    is_active: bool = False
    remark: str | None = None

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
    """Seconds by stage; a stage ends with its lap.

    Attributes:
        laps: Seconds by stage so far.
    """

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.monotonic()
        self.laps[stage] = round(now - self._last, 3)
        self._last = now

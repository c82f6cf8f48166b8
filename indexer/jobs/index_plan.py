"""Rebuild plan: what a new version of a gallery is to be, how far it is, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.indexer.jobs.embedding_run import Failure, RunOptions
from vicinal.indexer.sources import SourceItem

__all__ = ["RebuildPlan", "RebuildProgress", "RebuildResult"]


@dataclass(frozen=True)
class RebuildPlan:
    """What to build.

    Attributes:
        items: What to index, without repeats of an id; None for the gallery's own items.
        index: Factory string of the vector index, or `auto`.
        activate: Put the new version in force; otherwise it waits to be activated.
        calibrated_as: Version whose own calibrations come into force with it; as before when None.
        options: How images are embedded; `resumes` is filled in.
        refuse: Why a file must not be read, or None when it may; None reads all.
    """

    items: Sequence[SourceItem] | None
    index: str = "auto"
    activate: bool = True
    calibrated_as: int | None = None
    options: RunOptions = field(default_factory=RunOptions)
    refuse: Callable[[Path], str | None] = lambda _: None


@dataclass(frozen=True)
class RebuildProgress:
    """How far a rebuild is.

    Attributes:
        stage: `embed`, `neighbors` or `publish`.
        stage_done: Finished units of the stage.
        stage_total: All units of the stage.
        total: Items to index.
        done: Items that this attempt has finished.
        skipped: Items that an earlier attempt had finished.
        failures: Images that could not be used.
    """

    stage: str
    stage_done: int
    stage_total: int
    total: int
    done: int
    skipped: int
    failures: Sequence[Failure]


@dataclass(frozen=True)
class RebuildResult:
    """What a rebuild made.

    Attributes:
        n_failed: Images left out; the version's report has all of them.
        is_active: Whether the version is searched now.
        remark: Why it is not, when it should be.
    """

    version: int
    n_items: int
    n_labels: int
    index: str
    n_failed: int
    seconds: dict[str, float]
    is_active: bool
    remark: str | None = None

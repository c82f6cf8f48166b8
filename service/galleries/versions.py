"""Versions of a gallery: which is searched, whether its files are whole, which are kept, and new ones made of
live changes in the background.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from vicinal.indexer.errors import GalleryBusyError, GalleryError, IndexerError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import digests_of, remove_again
from vicinal.indexer.jobs.compaction import CompactionPolicy, compact
from vicinal.indexer.jobs.retention import Pruning, RetentionPolicy, prune
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.files import CheckNotes
from vicinal.indexer.views.refined_snapshot import check_refined
from vicinal.indexer.views.snapshot import Snapshot, SnapshotManifest, snapshot_manifest
from vicinal.models.errors import in_one_line
from vicinal.service.errors import ServiceError
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.measuring.records.store import CalibrationStore

logger = logging.getLogger(__name__)


def activate_version(
    gallery: Gallery, version: int, *, as_built: bool = False, bundles: ServedBundles | None = None
) -> None:
    """Let searches use a version, and the calibrations that were made for it, from their next request on.

    What a person removed since stays removed, unless the version is wanted `as_built`.
    """
    reader, held = GalleryReader(gallery), dict[str, bytes]()
    with suppress(GalleryError):
        # The present version may be damaged.
        held = digests_of(gallery, reader.view(), [*gallery.removals.read().items])
    if bundles is not None:
        bundles.resolve(gallery, manifest_of(gallery, version))
        # Searches could not be answered before another process has made them.
        gallery.mend_tables(version)
    has_own = CalibrationStore(gallery.path).has_own(version)
    gallery.pointer.activate(version, as_built=as_built, calibrated_as=version if has_own else None)
    if not as_built:
        remove_again(reader, held)


def manifest_of(gallery: Gallery, version: int) -> SnapshotManifest:
    """Manifest of a version, which names the bundle that it was embedded with."""
    try:
        return snapshot_manifest(gallery.snapshot_path(version))
    except GalleryError:
        # It is missing or damaged: the version is made again, or there is none.
        return gallery.snapshot(version).manifest


def check_version(gallery: Gallery, version: int) -> str | None:
    """Read a version in full and make damaged files and lost tables again; None when all was whole."""
    path, damage = gallery.snapshot_path(version), None
    try:
        Snapshot.open(path).check()
        check_refined(path)
    except GalleryError as error:
        logger.warning("%s: it is made again", error)
        gallery.repair(version)
        damage = str(error)
    gallery.table.check(gallery.pointer.revision_of(version))
    CheckNotes(path).forget()
    if n_made := gallery.mend_tables(version):
        damage = damage or f"its engine lacked {n_made} of the tables of version {version}"
    return damage


def prune_gallery(gallery: Gallery, policy: RetentionPolicy) -> Pruning:
    """Remove versions that a policy does not keep; calibrations in use keep what they are compared with."""
    store = CalibrationStore(gallery.path)
    active = gallery.activation
    # A version that is made of another one by live changes can still be calibrated as that one.
    calibrated_as = set() if active is None else {active.calibrated_as, *active.calibrated.values()}
    in_use = store.in_use({*gallery.versions(), *calibrated_as} - {0})
    return prune(gallery, policy, protected=[record.version for record in in_use])


@dataclass(frozen=True)
class CompactionState:
    """State of a gallery's live changes: how far they are from being a new version."""

    state: Annotated[Literal["idle", "due", "running"], Field(description="In the server that answers.")]
    n_changes: Annotated[int, Field(description="What searches carry along because of live changes.")]
    done: Annotated[int, Field(description="Items whose neighbor lists are made, of a compaction that runs.")]
    total: Annotated[int, Field(description="Items whose neighbor lists it makes.")]
    version: Annotated[int | None, Field(description="Version that this server made last.")]
    problem: Annotated[str | None, Field(description="Why its last attempt failed.")]


class Maintenance:
    """Compactions of one process, one a gallery at a time."""

    def __init__(self, compaction: CompactionPolicy, retention: RetentionPolicy) -> None:
        self.compaction = compaction
        self.retention = retention
        self._lock = threading.Lock()
        self._running: dict[str, threading.Thread] = {}
        self._progress: dict[str, tuple[int, int]] = {}
        self._made: dict[str, int] = {}
        self._problems: dict[str, str] = {}

    def compaction_state(self, reader: GalleryReader) -> CompactionState:
        """Tell whether a gallery is being compacted, and what became of the last time."""
        view, name = reader.view(), reader.gallery.name
        is_running = self._is_running(name)
        waiting: Literal["due", "idle"] = "due" if self.compaction.is_due(view) else "idle"
        done, total = self._progress.get(name, (0, 0)) if is_running else (0, 0)
        return CompactionState(
            state="running" if is_running else waiting,
            n_changes=view.n_changes,
            done=done,
            total=total,
            version=self._made.get(name),
            problem=self._problems.get(name),
        )

    def consider(self, reader: GalleryReader) -> bool:
        """Start to compact a gallery when it is due and nobody is at it; returns at once."""
        return self.compaction.is_due(reader.view()) and self.begin(reader)

    def begin(self, reader: GalleryReader) -> bool:
        """Start to compact a gallery, due or not, unless this process is at it; returns at once."""
        name = reader.gallery.name
        with self._lock:
            if self._is_running(name):
                return False
            # A daemon: what one leaves half done when the process ends, the next one removes.
            thread = threading.Thread(
                target=self._compact, args=(reader,), name=f"compact-{name}", daemon=True
            )
            self._running[name] = thread
            thread.start()
            return True

    def wait(self) -> None:
        """Wait until everything that was started is done."""
        with self._lock:
            running = list(self._running.values())
        for thread in running:
            thread.join()

    def _is_running(self, name: str) -> bool:
        thread = self._running.get(name)
        return thread is not None and thread.is_alive()

    def _compact(self, reader: GalleryReader) -> None:
        name = reader.gallery.name
        self._progress.pop(name, None)
        try:
            done = compact(reader, on_progress=lambda _stage, *counts: self._progress.update({name: counts}))
            prune_gallery(reader.gallery, self.retention)
        except GalleryBusyError as error:
            logger.info("gallery '%s' is not compacted now: %s", name, error)
        except (IndexerError, ServiceError, OSError) as error:
            # Searches and changes go on without it; the next change tries again.
            self._problems[name] = in_one_line(error)
            logger.exception("gallery '%s' could not be compacted", name)
        else:
            self._problems.pop(name, None)
            if done is not None:
                self._made[name] = done.version
                logger.info("gallery '%s' was compacted into version %d", name, done.version)

"""Open galleries: a reader and a matcher each, swapped with every change; nothing damaged is searched."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from vicinal.indexer.engines import ENGINE
from vicinal.indexer.errors import (
    DamagedGalleryError,
    EngineError,
    GalleryBusyError,
    GalleryNotFoundError,
    GalleryNotRefinedError,
    IndexerError,
    StorageError,
)
from vicinal.indexer.gallery import Gallery, list_galleries
from vicinal.indexer.graph.gpu import IndexDevices
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.files import CheckNotes, Damage, hold_file
from vicinal.indexer.storage.gallery_names import GALLERY_NAME
from vicinal.indexer.views.refined_snapshot import check_refined, refined_bytes
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.galleries.bundles import ServedBundle, ServedBundles
from vicinal.service.galleries.search_counts import DriftMonitor
from vicinal.service.galleries.versions import Maintenance
from vicinal.service.measuring.drift import DriftLevel
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.problem_types import ERRORS
from vicinal.service.search.answers import CalibrationState
from vicinal.service.search.pipeline import PipelineSource

logger = logging.getLogger(__name__)
IntegrityState = Literal["unchecked", "checking", "whole", "damaged"]
# Between two looks whether another process is done with the same files.
_WAIT_SECONDS = 0.5
# Between two tries to make lost tables again.
_MENDING_NANOSECONDS = 10_000_000_000
# After the first gallery was opened: its first searches go before.
_FIRST_SECONDS = 1.0
# Whatever keeps a gallery from being opened, it keeps no other from being told of.
UNREADABLE = (*ERRORS, OSError)


@dataclass(frozen=True)
class CheckedGallery:
    """Knowledge of a gallery's files: how far they are whole."""

    state: Annotated[
        IntegrityState,
        Field(
            description="Whether every byte of the files that are searched was compared with what was "
            "written: `whole`; `checking`; `damaged`, and not searched; or `unchecked`."
        ),
    ] = "unchecked"
    checked_share: Annotated[float, Field(description="Share of the bytes that a check has compared.")] = 0.0
    checked_at: Annotated[
        datetime | None, Field(description="When a check of this server was last over; null before.")
    ] = None


_UNCHECKED = CheckedGallery()


@dataclass(frozen=True)
class GalleryState:
    """State of a gallery: whether it can be searched, and how searches without further options are made."""

    __pydantic_config__ = ConfigDict(json_schema_serialization_defaults_required=True)

    name: str
    problem: Annotated[str | None, Field(description="Why not; null when it can.")] = None
    lacks_engine: Annotated[bool, Field(description="Whether that lies with Milvus alone.")] = False
    bundle: Annotated[
        str | None,
        Field(description="Fingerprint of the bundle that it is searched with; null when it cannot be."),
    ] = None
    pipeline: Annotated[str | None, Field(description="Pipeline of searches without further options.")] = None
    pipeline_source: Annotated[
        PipelineSource,
        Field(description="What chose it: the settings, a comparison of pipelines, or a calibration."),
    ] = "settings"
    pipeline_reason: Annotated[
        str | None, Field(description="Why a pipeline that was chosen is not used.")
    ] = None
    calibration: Annotated[
        CalibrationState,
        Field(description="Whether the threshold of searches without further options is calibrated."),
    ] = "none"
    calibration_reason: Annotated[str | None, Field(description="Why it is not `current`.")] = None
    drift: DriftLevel = "unknown"
    files: Annotated[CheckedGallery, Field(description="How far its files are known to be whole.")] = (
        _UNCHECKED
    )


@dataclass
class _Check:
    """State of the check of one opened version."""

    reader: GalleryReader
    snapshot: Snapshot
    notes: CheckNotes
    opened: int = field(default_factory=time.monotonic_ns)
    is_waiting: bool = False
    is_whole: bool = False
    total: int = 0
    done: int = 0
    over: int | None = None
    checked_at: datetime | None = None
    # Where it cannot be noted on the disk.
    found: Damage | None = None

    @property
    def damage(self) -> Damage | None:
        return self.found or self.notes.damage()


class Integrity:
    """Checks of one process, one at a time; `hours` lie between two checks of a gallery."""

    def __init__(self, *, mb_per_second: float, hours: float) -> None:
        self._bytes_per_second = 1e6 * mb_per_second
        self._nanoseconds = hours * 3600e9
        self._lock = threading.Lock()
        self._checks: dict[str, _Check] = {}
        self._due: deque[_Check] = deque()
        self._thread: threading.Thread | None = None
        self._may_begin = threading.Event()

    def watch(self, reader: GalleryReader, snapshot: Snapshot) -> bool:
        """Have the files of a version checked, and refuse damaged ones; it asks the file system twice."""
        if snapshot.is_replaced:
            reader.reopen()
            return False
        name = reader.gallery.name
        with self._lock:
            check = self._checks.get(name)
            if check is None or check.snapshot is not snapshot:
                check = self._checks[name] = _Check(reader, snapshot, CheckNotes(snapshot.path))
        damage = check.damage
        if self._is_due(check, damage):
            self._enqueue(check)
        if damage is not None:
            raise damage.error
        return True

    def require_whole(self, name: str) -> None:
        """Refuse what was found damaged while it was searched."""
        check = self._checks.get(name)
        damage = None if check is None else check.damage
        if damage is not None:
            raise damage.error

    def state(self, name: str) -> CheckedGallery:
        """State of the check of a gallery."""
        check = self._checks.get(name)
        if check is None:
            return CheckedGallery()
        share = min(1.0, check.done / check.total) if check.total else float(check.is_whole)
        state: IntegrityState = "checking" if check.is_waiting else "unchecked"
        if check.damage is not None:
            state = "damaged"
        elif check.is_whole:
            state = "whole"
        return CheckedGallery(state, share, check.checked_at)

    def forget(self, name: str) -> None:
        """Let go of a gallery."""
        with self._lock:
            self._checks.pop(name, None)

    def wait(self) -> None:
        """Wait until everything that was started is done."""
        thread = self._thread
        if thread is not None:
            self._may_begin.set()
            thread.join()

    def _is_due(self, check: _Check, damage: Damage | None) -> bool:
        if check.is_waiting:
            return False
        since = math.inf if check.over is None else time.monotonic_ns() - check.over
        if check.snapshot.lacks_table and since > _MENDING_NANOSECONDS:
            return True
        if check.over is None or (damage is not None and damage.may_be_mended):
            return True
        return time.monotonic_ns() - check.over > self._nanoseconds

    def _enqueue(self, check: _Check) -> None:
        with self._lock:
            if check.is_waiting:
                return
            check.is_waiting = True
            self._due.append(check)
            if self._thread is None:
                # A daemon: what is not checked when the process ends, the next one checks.
                self._thread = threading.Thread(target=self._work, name="checks of galleries", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        self._may_begin.wait(_FIRST_SECONDS)
        self._may_begin.set()
        while True:
            with self._lock:
                if not self._due:
                    self._thread = None
                    return
                check = self._due.popleft()
            try:
                self._check_once(check, check.opened if check.over is None else time.monotonic_ns())
            except (IndexerError, OSError) as error:
                # It was deleted or renamed meanwhile, or its records are damaged, which searches say.
                logger.warning("gallery '%s' could not be checked: %s", check.reader.gallery.name, error)
            check.checked_at, check.over, check.is_waiting = datetime.now(UTC), time.monotonic_ns(), False

    def _check_once(self, check: _Check, asked: int) -> None:
        """Check a version, unless another process of the machine has done so since a moment."""
        # Taking a lock makes the folder it lies in: that of a gallery may just have gone.
        if not check.snapshot.is_replaced:
            self._mend_tables(check)
        while not check.snapshot.is_replaced:
            if check.notes.is_checked_since(asked):
                check.is_whole, check.found = True, None
                return
            lock = check.reader.gallery.path / "check.lock"
            try:
                with hold_file(lock, "another process checks"):
                    if not check.notes.is_checked_since(asked):
                        self._compare(check)
                        return
            except GalleryBusyError:
                time.sleep(_WAIT_SECONDS)
            except StorageError:
                # On a read-only disk nobody can tell others.
                self._compare(check)
                return

    def _compare(self, check: _Check) -> None:
        gallery, snapshot = check.reader.gallery, check.snapshot
        began, version = time.monotonic_ns(), snapshot.manifest.version
        active = gallery.activation
        revisions = {snapshot.manifest.revision}
        if active is not None and active.version == version:
            revisions.add(active.revision)
        tables = {path: n for revision in revisions for path, n in gallery.table.files(revision).items()}
        check.done, check.total = 0, snapshot.n_bytes + refined_bytes(snapshot.path) + sum(tables.values())
        started = time.monotonic()

        def on_read(n_bytes: int) -> None:
            """Count what was read, and let searches go before."""
            check.done += n_bytes
            ahead = started + check.done / self._bytes_per_second - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)

        try:
            snapshot.check(on_read=on_read)
            check_refined(snapshot.path, on_read=on_read)
        except DamagedGalleryError as error:
            # What lies there now is another version, which its own check compares.
            if not snapshot.is_replaced:
                self._note(check, Damage.of(error))
                self._mend(check, error)
            return
        try:
            for revision in revisions:
                gallery.table.check(revision, on_read=on_read)
        except DamagedGalleryError as error:
            self._note(check, Damage.of(error))
            return
        check.notes.note_whole(began)
        check.is_whole, check.found = True, None

    def _mend_tables(self, check: _Check) -> None:
        """Make the tables again that a version lacks in its engine; the next search opens their files."""
        gallery, version = check.reader.gallery, check.snapshot.manifest.version
        try:
            with hold_file(gallery.path / "check.lock", "another process checks"):
                if n_made := gallery.mend_tables(version):
                    logger.warning("gallery '%s' has %d of its tables again", gallery.name, n_made)
        except (EngineError, GalleryBusyError, StorageError) as error:
            # Searches tell of it, and the next check tries again.
            logger.info("tables of gallery '%s' could not be looked at: %s", gallery.name, error)

    def _note(self, check: _Check, damage: Damage) -> None:
        check.found, check.is_whole = damage, False
        check.notes.note_damage(damage)
        logger.error("gallery '%s' is not searched: %s", check.reader.gallery.name, damage.problem)

    def _mend(self, check: _Check, error: DamagedGalleryError) -> None:
        """Make the files of a version again; the next search opens them."""
        gallery = check.reader.gallery
        logger.warning("%s: it is made again", error)
        try:
            gallery.repair(check.snapshot.manifest.version)
        except IndexerError as reason:
            way_back = (
                f"{error}, and it cannot be made again: {reason}; or put another version in force by "
                f"`vicinal gallery activate {gallery.name} VERSION`"
            )
            self._note(check, Damage.of(error, way_back))


class OpenGalleries:
    """Galleries of a data folder, opened when first asked for."""

    def __init__(self, bundles: ServedBundles) -> None:
        self.bundles = bundles
        self.path = bundles.settings.galleries_path
        self.index_devices = IndexDevices(bundles.settings.index_device)
        self.drift = DriftMonitor()
        self.maintenance = Maintenance(bundles.settings.compaction, bundles.settings.retention)
        self.integrity = Integrity(
            mb_per_second=bundles.settings.check_mb_per_second, hours=bundles.settings.check_hours
        )
        self._lock = threading.Lock()
        self._readers: dict[str, GalleryReader] = {}
        self._matchers: dict[str, Matcher] = {}

    @property
    def own(self) -> ServedBundle:
        """The bundle of the settings, opened when it is needed first; see `ServedBundles.own`."""
        return self.bundles.own

    def names(self) -> list[str]:
        """Galleries that were indexed, by name."""
        return [gallery.name for gallery in list_galleries(self.path)]

    def gallery(self, name: str) -> Gallery:
        """A gallery by name."""
        if not GALLERY_NAME.fullmatch(name):
            raise GalleryNotFoundError(f"there is no gallery '{name}'")
        gallery = Gallery.open(self.path / name, engine=self.bundles.engine)
        if gallery.space is None and self.bundles.own_space is None:
            self.bundles.resolve(gallery, None)
        return gallery

    def reader(self, name: str) -> GalleryReader:
        """Reader of a gallery, which live changes are made with; it stays open."""
        reader = self._readers.get(name)
        if reader is None:
            gallery = self.gallery(name)
            with self._lock:
                reader = self._readers.setdefault(name, GalleryReader(gallery, self.index_devices))
        return reader

    def matcher(self, name: str) -> Matcher:
        """Matcher of the present state of a gallery, which a request keeps to the end."""
        reader = self.reader(name)
        try:
            view = reader.view()
        except GalleryNotFoundError:
            self.close(name)
            raise
        if not self.integrity.watch(reader, view.snapshot):
            view = reader.view()
            self.integrity.watch(reader, view.snapshot)
        matcher = self._matchers.get(name)
        if matcher is not None and matcher.view is view:
            return matcher
        # Before the lock is taken: opening takes seconds, and other galleries are searched meanwhile.
        self.bundles.resolve(reader.gallery, view.snapshot.manifest)
        with self._lock:
            known = self._matchers.get(name)
            matcher = self._matchers[name] = self.bundles.matcher(reader.gallery, view, known)
        return matcher

    def refresh(self) -> None:
        """Open what has changed of the galleries that are open, so that no search waits for it."""
        for name in list(self._matchers):
            # Searches tell what is wrong with it.
            with suppress(*UNREADABLE):
                self.matcher(name)

    def opened(self, name: str) -> Matcher | None:
        """Matcher of a gallery as this process last looked at it; None where it has not. Opens nothing."""
        return self._matchers.get(name)

    def changed(self, name: str) -> None:
        """Start a compaction where live changes have become enough; for who has made one."""
        # Searches tell those who ask; the change itself was made.
        with suppress(EngineError, GalleryNotRefinedError):
            self.matcher(name).prepare()
        self.maintenance.consider(self.reader(name))

    def close(self, name: str) -> None:
        """Let go of a gallery: the files of a deleted one stay on the disk for as long as they are open."""
        self._readers.pop(name, None)
        self._matchers.pop(name, None)
        self.integrity.forget(name)

    def wait(self) -> None:
        """Wait until everything that was started in the background is done."""
        self.integrity.wait()
        self.maintenance.wait()

    def states(self) -> list[GalleryState]:
        """Every gallery with what keeps it from being searched; of a replica those that were asked for."""
        settings, names = self.bundles.settings, self.names()
        return [self._state(name) for name in names if name in self._readers or not settings.has_home]

    def _engine_problem(self, snapshot: Snapshot) -> str | None:
        """Reason why no engine finds a version's candidates; None where one does, or none is to."""
        engine = snapshot.manifest.index
        if engine != ENGINE:
            return None
        lacks = "Milvus lacks a table of this version: it is made again"
        return self.bundles.engine.look() or (lacks if snapshot.lacks_table else None)

    def _state(self, name: str) -> GalleryState:
        lacks_engine = False
        try:
            matcher = self.matcher(name)
            # A gallery that lacks what `auto` stands for answers no search that asks for nothing else.
            matcher.prepare()
            chosen = matcher.active_pipeline
            threshold = matcher.thresholds.in_force(chosen.pipeline)
            # Without searches nobody else would find out that it answers again.
            problem = self._engine_problem(matcher.snapshot)
            lacks_engine = problem is not None
        except UNREADABLE as error:
            problem, lacks_engine = str(error), isinstance(error, EngineError)
        if problem is not None:
            return GalleryState(name, problem, lacks_engine, files=self.integrity.state(name))
        return GalleryState(
            name,
            bundle=matcher.snapshot.manifest.bundle,
            pipeline=chosen.pipeline.key,
            pipeline_source=chosen.source,
            pipeline_reason=chosen.reason,
            calibration=threshold.state,
            calibration_reason=threshold.reason,
            drift=self.drift.level(name, chosen.pipeline.key, threshold),
            files=self.integrity.state(name),
        )

"""Maintenance: compactions of galleries in the background."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from vicinal.indexer.errors import GalleryBusyError, IndexerError
from vicinal.indexer.jobs.compaction import CompactionPolicy, compact
from vicinal.indexer.jobs.retention import RetentionPolicy
from vicinal.indexer.reader import GalleryReader
from vicinal.models.errors import in_one_line
from vicinal.service.errors import ServiceError
from vicinal.service.galleries.versions import prune_gallery

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CompactionState:
    """How far the live changes of a gallery are from being a new version."""

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
        with self._lock:
            thread = self._running.get(f"compact-{name}")
        is_running = thread is not None and thread.is_alive()
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
        name = f"compact-{reader.gallery.name}"
        return self._start(threading.Thread(target=self._compact, args=(reader,), name=name, daemon=True))

    def wait(self) -> None:
        """Wait until everything that was started is done."""
        with self._lock:
            running = list(self._running.values())
        for thread in running:
            thread.join()

    def _start(self, thread: threading.Thread) -> bool:
        """Start a thread, unless one of its name is running."""
        with self._lock:
            running = self._running.get(thread.name)
            if running is not None and running.is_alive():
                return False
            # Threads are daemons: what one leaves half done when the process ends, the next one removes.
            self._running[thread.name] = thread
            thread.start()
            return True

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

"""Upkeep: compacts changed galleries in the background, and removes versions that are no longer kept."""

from __future__ import annotations

import logging
import threading

from indexer.compaction import CompactionPolicy, compact
from indexer.errors import GalleryBusyError, IndexerError
from indexer.gallery import Gallery
from indexer.reader import GalleryReader
from indexer.retention import Pruning, RetentionPolicy, prune
from service.calibration_store import CalibrationStore
from service.errors import ServiceError

__all__ = ["Upkeep", "prune_gallery"]

logger = logging.getLogger(__name__)


class Upkeep:
    """Compactions of one process, one a gallery at a time.

    Args:
        compaction: When a gallery is compacted.
        retention: Which versions stay.
    """

    def __init__(self, compaction: CompactionPolicy, retention: RetentionPolicy) -> None:
        self.compaction = compaction
        self.retention = retention
        self._lock = threading.Lock()
        self._running: dict[str, threading.Thread] = {}

    def consider(self, reader: GalleryReader) -> bool:
        """Start to compact a gallery when it is due and nobody is at it; returns at once.

        Returns:
            Whether a compaction was started.
        """
        if not self.compaction.is_due(reader.view()):
            return False
        name = reader.gallery.name
        with self._lock:
            running = self._running.get(name)
            if running is not None and running.is_alive():
                return False
            # A daemon: what is left of it when the process ends is removed by the next one.
            self._running[name] = threading.Thread(
                target=self._compact, args=(reader,), name=f"compact-{name}", daemon=True
            )
            self._running[name].start()
            return True

    def wait(self) -> None:
        """Wait until every compaction that was started is done."""
        with self._lock:
            running = list(self._running.values())
        for thread in running:
            thread.join()

    def _compact(self, reader: GalleryReader) -> None:
        name = reader.gallery.name
        try:
            done = compact(reader)
            prune_gallery(reader.gallery, self.retention)
        except GalleryBusyError as error:
            logger.info("gallery '%s' is not compacted now: %s", name, error)
        except (IndexerError, ServiceError, OSError):
            # Searches and changes go on without it; the next change tries again.
            logger.exception("gallery '%s' could not be compacted", name)
        else:
            if done is not None:
                logger.info("gallery '%s' was compacted into version %d", name, done.version)


def prune_gallery(gallery: Gallery, policy: RetentionPolicy) -> Pruning:
    """Remove versions that a policy does not keep; calibrations in use keep what they are compared with.

    Raises:
        GalleryBusyError: Another job is writing or compacting.
        CalibrationRecordError: A calibration is damaged, so that nobody knows what it needs.
    """
    store = CalibrationStore(gallery.calibrations_path)
    in_use = [store.active(record.pipeline) for record in store.history()]
    return prune(gallery, policy, protected=[record.version for record in in_use if record is not None])

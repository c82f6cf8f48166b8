"""Promise watch: after each answer to a search, what was promised is tried with all answers so far."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from vicinal.calibration import CalibrationError
from vicinal.models.progress import no_progress
from vicinal.service.answering.drawn import drawn_searches
from vicinal.service.answering.store import SearchStore
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.promise import PromiseCheck, check_calibration
from vicinal.service.process import BackgroundWork

logger = logging.getLogger(__name__)
# A promise that is looked at after each of many answers is found broken by chance more often than one that
# is tried once: so often may a single look err.
_ERROR_RATE = 0.01


def try_promise(matcher: Matcher) -> PromiseCheck | None:
    """Try what the calibration in force of a gallery promised with the answers so far, and keep what was
    found; None where nothing is promised, or the answers can show none of it.
    """
    store, pipeline = SearchStore(matcher.gallery.path), matcher.pipeline
    record = matcher.calibrations.active(pipeline) if store.exists else None
    if record is None or record.evidence is None or matcher.thresholds.of_record(record).value is None:
        return None
    calibrator = matcher.calibrator(record.pipeline)
    try:
        drawn = drawn_searches(store, matcher.pictures, record.pipeline.key)
        found = check_calibration(
            calibrator,
            record,
            drawn,
            noun=matcher.embedder.bundle.manifest.noun,
            error_rate=_ERROR_RATE,
            on_progress=no_progress,
        )
    except CalibrationError:
        return None
    matcher.calibrations.keep_check(found)
    return found


class PromiseWatch(BackgroundWork):
    """Tries promises, one at a time, on a thread of its own while it is entered as a context.

    The thread rests for as long as a try took; answers that come meanwhile are tried together. `find_matcher`
    gives the matcher of a gallery by its name.
    """

    name = "promises"

    def __init__(self, find_matcher: Callable[[str], Matcher]) -> None:
        super().__init__()
        self._find_matcher = find_matcher
        self._waiting: dict[str, None] = {}

    def answered(self, gallery: str) -> None:
        """Take note that an answer of a gallery was kept, or taken back; nothing waits here."""
        with self._changed:
            if self._thread is not None:
                self._waiting[gallery] = None
                self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_stopping)
                if not self._waiting:
                    return
                gallery = next(iter(self._waiting))
                del self._waiting[gallery]
            started = time.monotonic()
            self._try(gallery)
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopping, time.monotonic() - started)

    def _try(self, gallery: str) -> None:
        try:
            try_promise(self._find_matcher(gallery))
        except Exception as error:  # Whatever it is, the answer is kept, and the next one tries again
            logger.warning("what gallery '%s' was promised cannot be tried: %s", gallery, error)

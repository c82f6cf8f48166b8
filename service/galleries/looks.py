"""Looks: a server looks at its galleries again and again, so that no request waits for one to open."""

from __future__ import annotations

import logging

from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.process import BackgroundWork

logger = logging.getLogger(__name__)


class GalleryLooks(BackgroundWork):
    """Keeps the open galleries of a process current, from a thread, while the context lasts."""

    name = "looks at galleries"
    # It may be opening galleries that are large or not in memory. A daemon: the process ends without it.
    stop_seconds = 3.0

    def __init__(self, galleries: OpenGalleries, poll_seconds: float) -> None:
        super().__init__()
        self._galleries, self._poll_seconds = galleries, poll_seconds

    def _work(self) -> None:
        is_failing = False
        while not self._is_stopping:
            try:
                self._galleries.states()
                is_failing = False
            except Exception:
                # Whatever it is, requests meet it too; without this thread they only wait a little longer.
                if not is_failing:
                    logger.exception("galleries cannot be looked at")
                is_failing = True
            self._waited(self._poll_seconds)

"""Notices: replicas tell each other that a gallery has changed, so that no request waits for it to open."""

from __future__ import annotations

import logging
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from vicinal.indexer.errors import IndexerError
from vicinal.service.errors import RedisAwayError
from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.process import BackgroundWork
from vicinal.service.redis_link import RedisLink

if TYPE_CHECKING:
    from redis.client import PubSub

logger = logging.getLogger(__name__)
_CHANNEL = "vicinal:galleries"
# Polls without any word from Redis after which the subscription counts as broken.
_SILENT_POLLS = 3
_LISTEN_SECONDS = 0.2


def announce_change(link: RedisLink | None, gallery: str) -> None:
    """Tell the other replicas that a gallery has changed; without Redis they find out by polling."""
    if link is not None:
        with suppress(RedisAwayError):
            link.ask(lambda redis: redis.publish(_CHANNEL, gallery))


class ChangeNotices(BackgroundWork):
    """Keeps the open galleries of a process current, from a thread, while the context lasts."""

    name = "change notices"
    # It may be opening galleries that are large or not in memory. A daemon: the process ends without it.
    stop_seconds = 3.0

    def __init__(self, galleries: OpenGalleries, link: RedisLink | None, *, poll_seconds: float) -> None:
        super().__init__()
        self._galleries = galleries
        self._link = link
        self._failures: tuple[type[Exception], ...] = () if link is None else link.failures
        self._poll_seconds = poll_seconds
        self._is_poll_failing = False

    def _work(self) -> None:
        while not self._is_stopping:
            self._poll()
            subscription = None if self._link is None else self._link.subscribed(_CHANNEL)
            if subscription is None:
                self._waited(self._poll_seconds)
            else:
                with closing(subscription):
                    self._listen(subscription)

    def _listen(self, subscription: PubSub) -> None:
        """Follow the notices until Redis falls silent, and poll as well: not every change has a notice."""
        heard = polled = time.monotonic()
        while not self._is_stopping:
            try:
                # Not a question to the link: that nothing comes does not show that Redis answers.
                message = subscription.get_message(timeout=_LISTEN_SECONDS)
                now = time.monotonic()
                if message is not None:
                    heard = now
                    self._open(message)
                if now - polled >= self._poll_seconds:
                    polled = now
                    subscription.ping()
                    self._poll()
            except self._failures:
                return
            if now - heard > _SILENT_POLLS * self._poll_seconds:
                return

    def _poll(self) -> None:
        try:
            self._galleries.states()
            self._is_poll_failing = False
        except Exception:
            # Whatever it is, requests meet it too; without this thread they only wait a little longer.
            if not self._is_poll_failing:
                logger.exception("galleries cannot be looked at")
            self._is_poll_failing = True

    def _open(self, message: dict[str, Any]) -> None:
        if message["type"] != "message":
            return
        try:
            self._galleries.matcher(message["data"].decode())
        except IndexerError as error:
            # It was deleted, or /readyz says what is wrong with it.
            logger.debug("a gallery that changed cannot be opened: %s", error)

"""Home of several replicas: a process of each follows it."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from pydantic import ConfigDict, Field

from vicinal.indexer.errors import GalleryBusyError, StorageError
from vicinal.indexer.state.state import CHANNEL
from vicinal.indexer.storage.files import hold_file
from vicinal.indexer.storage.home import Mirror
from vicinal.indexer.storage.home.joining import join
from vicinal.service.database import open_database
from vicinal.service.errors import RequestError
from vicinal.service.process import Looks
from vicinal.service.settings import Settings

logger = logging.getLogger(__name__)
# Between two looks where nobody tells of a change, and between two tries after one that failed.
_LOOK_SECONDS = 1.0
# A replica whose last look is older is behind: one look takes some milliseconds.
_LATE_SECONDS = 3.0
_TIDY_SECONDS = 6 * 3600.0


@dataclass(frozen=True)
class HomeState:
    """State of a replica: how far it is behind its home."""

    __pydantic_config__ = ConfigDict(json_schema_serialization_defaults_required=True)

    replica: Annotated[str, Field(description="Id of the replica that answers.")]
    entry: Annotated[int, Field(description="Number of the last change of any replica that it holds.")]
    seconds_behind: Annotated[
        float | None,
        Field(description="Seconds since it held all that the home did; null before it ever did."),
    ]
    home: Annotated[
        str | None, Field(description="Where the home is; null without a key for all galleries.")
    ] = None

    @property
    def problem(self) -> str | None:
        """Sentence on how far it is behind; None where it is not."""
        if self.seconds_behind is not None and self.seconds_behind < _LATE_SECONDS:
            return None
        seconds = "" if self.seconds_behind is None else f"{self.seconds_behind:,.0f} seconds "
        return (
            f"replica {self.replica} is {seconds}behind its home: it answers from what is here, and refuses "
            "changes (503) while the home or its database does not answer"
        )


def open_home(settings: Settings) -> Mirror | None:
    """The mirror that the data folder is, joined to the home of the settings; None without a home.

    One that has joined before serves what it holds while its home is away.
    """
    if not settings.has_home:
        return None
    if open_database(settings) is None:
        raise RequestError("replicas share what they remember: set database, the same for all")
    mirror, home = Mirror.of(settings.data_dir), settings.home
    if home is not None and (mirror is None or mirror.home not in (home, str(Path(home).absolute()))):
        mirror = join(settings.data_dir, home)
    if mirror is not None:
        mirror.layer.leaves_vectors = settings.keep_vectors == "engine"
    try:
        bring_up_to_date(settings.data_dir)
    except StorageError as error:
        logger.warning("%s; going on with what lies in '%s'", error, settings.data_dir)
    return mirror


def bring_up_to_date(data_dir: Path) -> None:
    """Bring what other replicas changed here, where a data folder has a home."""
    mirror = Mirror.of(data_dir)
    if mirror is not None:
        mirror.pull()


def home_state(mirror: Mirror) -> HomeState:
    """State of a replica, as any of its processes sees it."""
    lag = mirror.lag()
    return HomeState(mirror.replica, lag.number, lag.seconds, mirror.home)


class HomeMetrics:
    """Counter of what came from the home, and collector of how far the replica is behind."""

    def __init__(self, mirror: Mirror, registry: CollectorRegistry) -> None:
        self._mirror = mirror
        fetched = Counter("vicinal_home_fetched_bytes", "Bytes that came from the home", registry=registry)
        mirror.on_fetch = fetched.inc

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """All series."""
        yield GaugeMetricFamily(
            "vicinal_home_behind_seconds",
            "Time since everything in the home lay here",
            home_state(self._mirror).seconds_behind,
        )


class HomeFollower(Looks):
    """Brings what other replicas changed here, in one process of a replica at a time; the others only look
    how far that is. From time to time one replica removes from the home what none needs any more.
    """

    def __init__(self, mirror: Mirror, on_change: Callable[[], object] = lambda: None) -> None:
        super().__init__("the home", mirror.pull, _LOOK_SECONDS)
        self._mirror, self._on_change = mirror, on_change
        self._lock = mirror.folder / "leases" / "follower.lock"
        # Not all at once, and not at every start.
        self._tidy_at = time.monotonic() + _TIDY_SECONDS * random.random()

    def _work(self) -> None:
        while not self._is_stopping:
            with suppress(GalleryBusyError, StorageError), hold_file(self._lock, "another process follows"):
                self._follow()
            if self.tried(self._mirror.follow):
                self._on_change()
            self._waited(_LOOK_SECONDS)

    def _follow(self) -> None:
        with self._mirror.shared.database.listening(CHANNEL) as wait:
            while not self._is_stopping:
                if self.tried(self._mirror.pull):
                    self._on_change()
                if time.monotonic() > self._tidy_at:
                    self._tidy_at = time.monotonic() + _TIDY_SECONDS
                    threading.Thread(target=self._tidy, name="tidying of the home", daemon=True).start()
                wait(_LOOK_SECONDS)

    def _tidy(self) -> None:
        try:
            self._mirror.tidy()
        except StorageError as error:
            logger.warning("%s; it is tidied up later", error)

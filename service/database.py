"""Database that several machines share: the one of the settings, and a thread that follows its changes."""

from __future__ import annotations

import importlib.util
import logging

from vicinal.indexer.errors import IndexerError
from vicinal.indexer.state import use_database
from vicinal.indexer.state.database import postgres
from vicinal.indexer.state.state import SharedState, shared_state
from vicinal.models.errors import MissingPackageError
from vicinal.service.process import BackgroundWork
from vicinal.service.settings import Settings

logger = logging.getLogger(__name__)
_LOOK_SECONDS = 0.5


def open_database(settings: Settings) -> SharedState | None:
    """Have the state of the data folder where the settings say; None: in files of its own.

    Raises:
        GalleryError: That is no address of PostgreSQL.
        MissingPackageError: psycopg is not installed.
    """
    if settings.database is None:
        return None
    if importlib.util.find_spec("psycopg") is None:
        raise MissingPackageError("psycopg", "postgres", "VICINAL_DATABASE")
    database, known = postgres(settings.database.get_secret_value()), shared_state(settings.data_dir)
    if known is not None and known.database.address == database.address:
        return known
    return use_database(settings.data_dir, database)


class DatabaseFollower(BackgroundWork):
    """Looks for changes of other processes, so that nobody else has to ask on the way of a search."""

    name = "database"
    # It may wait for a database that does not answer. A daemon: the process ends without it.
    stop_seconds = 3.0

    def __init__(self, shared: SharedState) -> None:
        super().__init__()
        self._shared = shared
        self._is_failing = False

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._shared.is_followed = False

    def _work(self) -> None:
        while not self._is_stopping:
            self._look()
            self._waited(_LOOK_SECONDS)

    def _look(self) -> None:
        try:
            self._shared.follow()
        except IndexerError as error:
            if not self._is_failing:
                logger.warning("%s; what was read last counts, tried again every half a second", error)
            self._is_failing = True
            return
        if self._is_failing:
            logger.warning("%s answers again", self._shared.database.place)
        self._is_failing, self._shared.is_followed = False, True

"""Database that several machines share, as the settings name it."""

from __future__ import annotations

import importlib.util

from vicinal.indexer.state import use_database
from vicinal.indexer.state.database import postgres
from vicinal.indexer.state.state import SharedState, shared_state
from vicinal.models.errors import MissingPackageError
from vicinal.service.settings import Settings


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

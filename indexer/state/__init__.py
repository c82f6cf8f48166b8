"""State: all that is remembered beside versions, as rows of SQLite or PostgreSQL."""

from vicinal.indexer.state.database import Database, DatabaseAwayError
from vicinal.indexer.state.rows import DamagedRowError, Rows
from vicinal.indexer.state.state import State, server_state, state_of, use_database

__all__ = [
    "DamagedRowError",
    "Database",
    "DatabaseAwayError",
    "Rows",
    "State",
    "server_state",
    "state_of",
    "use_database",
]

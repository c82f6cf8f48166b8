"""Bringing in: what older files of a folder say becomes rows, once, when its database is made.

The files stay where they are. What is damaged among them is told and left out; nothing else is lost with it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from vicinal.indexer.state import old_pointer, old_records, old_searches
from vicinal.indexer.state.old_keys import bring_in_keys
from vicinal.indexer.state.rows import Rows

logger = logging.getLogger(__name__)
# What brings in one kind of files, and the names of these in the folder of a gallery or of a server's data.
Bringer = Callable[[Path, Rows], None]
_OF_GALLERIES: tuple[tuple[Bringer, tuple[str, ...]], ...] = (
    (old_pointer.bring_in, old_pointer.NAMES),
    (old_records.bring_in_records, old_records.FOLDERS),
    (old_searches.bring_searches, old_searches.NAMES),
)
_OF_SERVERS: tuple[tuple[Bringer, tuple[str, ...]], ...] = (
    (bring_in_keys, ("keys/keys.json", "audit/keys-are-on")),
)


def old_files(folder: Path, *, of_server: bool) -> list[Path]:
    """Older files and folders that are there, whose rows are kept since they were brought in."""
    found = {folder / name for _, names in _bringers(of_server) for name in names}
    return sorted(one for one in found if one.exists())


def has_any(folder: Path, *, of_server: bool) -> bool:
    """Tell whether a folder has older files to be brought in."""
    # Asked at every request where nothing was ever kept: paths of pathlib take several times as long.
    return any(os.access(f"{folder}/{name}", os.F_OK) for _, names in _bringers(of_server) for name in names)


def bring_in(folder: Path, rows: Rows, *, of_server: bool) -> None:
    """Make rows of all that older files in a folder say."""
    for bring, names in _bringers(of_server):
        if any((folder / name).exists() for name in names):
            bring(folder, rows)
            logger.info("'%s': brought in what %s said", folder, ", ".join(names))


def _bringers(of_server: bool) -> tuple[tuple[Bringer, tuple[str, ...]], ...]:
    return _OF_SERVERS if of_server else _OF_GALLERIES

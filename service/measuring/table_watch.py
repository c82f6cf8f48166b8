"""Table watch: whether a team's table moved on since a version was read from it, asked twice a minute."""

from __future__ import annotations

import threading
import time
from typing import Self

from vicinal.indexer.errors import EngineError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.sources.team_table import TableChange, TableMark, TeamTable
from vicinal.indexer.views.view import GalleryView

_SECONDS = 30.0


class TableWatch:
    """Watch of the table that a version of a gallery was read from.

    What is known is given at once; where that is old, a thread asks the engine for the next one.
    """

    def __init__(self, gallery: Gallery, view: GalleryView, table: TeamTable) -> None:
        self.table = table
        kept = gallery.reports.of(view.snapshot.manifest.version).get("table_mark")
        self.mark = None if kept is None else TableMark.model_validate(kept)
        self._engines = gallery.tables.engines
        self._lock = threading.Lock()
        self._next = 0.0
        self._change: TableChange | None = None

    @classmethod
    def of(cls, gallery: Gallery, view: GalleryView) -> Self | None:
        """Watch of a view's table; None where it was read from none."""
        table = view.snapshot.manifest.team_table
        return None if table is None else cls(gallery, view, table)

    @property
    def change(self) -> TableChange | None:
        """Change of the table, as was known when it was last asked."""
        is_first = not self._next
        if not self._is_due():
            return self._change
        if is_first and not self.table.is_copied:
            # Every search asks this engine anyway.
            return self.look()
        threading.Thread(target=self.look, name="table-watch", daemon=True).start()
        return self._change

    @property
    def says(self) -> str | None:
        """Words for what became of the table; None for nothing."""
        return self.words(self.change)

    def look(self) -> TableChange | None:
        """Ask the engine now; where it does not answer, what was known stays."""
        if self.mark is None or self.table.engine not in self._engines.names:
            # Of a copy nothing else needs the engine.
            return None
        try:
            with self._engines.reading(self.table) as reader:
                self._change = self.mark.change(reader.mark())
        except EngineError:
            # Told where the engine is asked for candidates.
            pass
        return self._change

    def words(self, change: TableChange | None) -> str | None:
        """See `says`."""
        if change is None or self.mark is None:
            return None
        return (
            f"table '{self.table.name}' {change.words} since it was read on "
            f"{self.mark.at:%Y-%m-%d %H:%M} UTC: run vicinal index again"
        )

    def _is_due(self) -> bool:
        with self._lock:
            is_due = self.mark is not None and time.monotonic() >= self._next
            if is_due:
                self._next = time.monotonic() + _SECONDS
        return is_due

"""Team table: what a gallery keeps of the table that a team has in an engine, and how the table moved on."""

from __future__ import annotations

from datetime import datetime

from vicinal.calibration.frozen import Frozen


class TeamTable(Frozen):
    """Names of a team's table and its columns; where the engine is and who may read there, no file says.

    Attributes:
        engine: Name of the engine, as the option `index` has it.
        name: Name of the table or collection, maybe with a schema in front.
        columns: Names of the columns `id` and `embedding`, and of `label` and `path` where there are any.
        prefix: Beginning of the items' ids before those of the table.
        is_copied: Whether the gallery holds copies of the vectors, and the table is only watched.
    """

    engine: str
    name: str
    columns: dict[str, str]
    prefix: str = ""
    is_copied: bool = False

    @property
    def index(self) -> str:
        """Name of what finds candidates there, in place of a kind of index."""
        return f"over-{self.engine}"


class TableChange(Frozen):
    """Change of a table since a mark, in words after its name; rows that it touched, None where not known."""

    words: str
    n_rows: int | None = None


class TableMark(Frozen):
    """State of a team's table at a time.

    Attributes:
        at: When it was read.
        n_rows: Its rows, where they were counted.
        counters: Rows that were ever added, changed and removed, where the engine counts these.
        place: Number of its file or collection, another one where it was made again.
        last: What else changes with it, such as its last id.
    """

    at: datetime
    n_rows: int | None = None
    counters: tuple[int, int, int] | None = None
    place: int | None = None
    last: str | None = None

    def change(self, now: TableMark) -> TableChange | None:
        """Change of the table until now; None where nothing is known to have changed."""
        if self.place != now.place:
            # Nothing is counted of a table that is emptied as a whole, either.
            return TableChange(words="was made again")
        if self.counters is not None and now.counters is not None:
            if self.counters == now.counters:
                return None
            added, changed, removed = (b - a for a, b in zip(self.counters, now.counters, strict=True))
            if min(added, changed, removed) < 0:
                return TableChange(words="may have changed, as its counters began anew")
            return TableChange(words=_words(added - removed, changed), n_rows=added + changed + removed)
        if self.n_rows != now.n_rows:
            more = (now.n_rows or 0) - (self.n_rows or 0)
            return TableChange(words=_words(more, 0), n_rows=abs(more))
        return None if self.last == now.last else TableChange(words="has other rows, or changed ones")


def _words(more: int, changed: int) -> str:
    row = "row" if abs(more) == 1 else "rows"
    says = [f"has {abs(more):,} {row} {'more' if more > 0 else 'less'}"] if more else []
    says += [f"was changed in {changed:,} {'row' if changed == 1 else 'rows'}"] if changed else []
    return " and ".join(says) or "had rows replaced"

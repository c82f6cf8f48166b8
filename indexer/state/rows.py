"""Rows of one gallery, or of a server, in one transaction; each is compared with its seal when it is read."""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    delete,
    extract,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from vicinal.indexer.errors import GalleryError
from vicinal.indexer.state import schema

Where = ColumnElement[bool]
OnDamage = Callable[["DamagedRowError"], None]
# Values of one statement: SQLite takes some 32,000 of them, PostgreSQL 65,535.
_TOGETHER = 500
# Rows in memory of a whole table; some hold a megabyte and more.
_AT_A_TIME = 100


class DamagedRowError(GalleryError):
    """A row is not what was written."""

    def __init__(self, place: str, table: Table, row: Mapping[str, Any]) -> None:
        named = ", ".join(f"{one.name}={row[one.name]!r}" for one in table.primary_key if one.name in row)
        super().__init__(f"a row of '{table.name}' ({named}) in {place} is not what was written")
        self.table, self.row = table.name, dict(row)


class Rows:
    """Rows in one transaction; conditions are SQLAlchemy's, on the columns of `schema`."""

    def __init__(self, connection: Connection, gallery_key: int, place: str, changed: int = 0) -> None:
        self.connection = connection
        # Number of this change, of a gallery in a shared database.
        self.changed = changed
        self._key = gallery_key
        self._place = place
        self._insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert

    @property
    def place(self) -> str:
        """Words for where they are."""
        return self._place

    def all(
        self,
        table: Table,
        *where: Where,
        order_by: Sequence[Any] = (),
        limit: int | None = None,
        on_damage: OnDamage | None = None,
    ) -> list[Row[Any]]:
        """Rows that fit; a damaged one is an error, or is told and left out.

        Raises:
            DamagedRowError: A row is not what was written, and nobody takes it.
        """
        asked = self._of(select(table), table, where).order_by(*order_by).limit(limit)
        return list(self._checked(table, self.connection.execute(asked), on_damage))

    def parts(self, table: Table, *, on_damage: OnDamage | None = None) -> Iterator[list[Row[Any]]]:
        """All rows of a table that may be large, some at a time; for errors see `all`."""
        options = {"yield_per": _AT_A_TIME}
        found = self.connection.execute(self._of(select(table), table, ()), execution_options=options)
        for part in found.partitions():
            yield list(self._checked(table, part, on_damage))

    def _checked(
        self, table: Table, found: Iterable[Row[Any]], on_damage: OnDamage | None
    ) -> Iterator[Row[Any]]:
        for row in found:
            values = row._asdict()
            if seal_of(table, values) == row.seal:
                yield row
            elif on_damage is None:
                raise DamagedRowError(self._place, table, values)
            else:
                on_damage(DamagedRowError(self._place, table, values))

    def first(self, table: Table, *where: Where, order_by: Sequence[Any] = ()) -> Row[Any] | None:
        """The first row that fits; None without any."""
        return next(iter(self.all(table, *where, order_by=order_by, limit=1)), None)

    def values(self, column: ColumnElement[Any], *where: Where, order_by: Sequence[Any] = ()) -> list[Any]:
        """Values of a column, without a look at seals: for what is only counted, or listed by name."""
        table: Any = column.table
        return list(self.connection.scalars(self._of(select(column), table, where).order_by(*order_by)))

    def count(self, table: Table, *where: Where) -> int:
        """Number of rows that fit."""
        asked = self._of(select(func.count()).select_from(table), table, where)
        return int(self.connection.scalar(asked) or 0)

    def has(self, table: Table, *where: Where) -> bool:
        """Tell whether a row fits."""
        asked = self._of(select(1).select_from(table), table, where).limit(1)
        return self.connection.scalar(asked) is not None

    def add(self, table: Table, *rows: Mapping[str, Any]) -> None:
        """Add rows; one whose key is taken is an error of the database."""
        if rows:
            self.connection.execute(insert(table), [self.sealed(table, one) for one in rows])

    def put(self, table: Table, *rows: Mapping[str, Any], keep: bool = False) -> None:
        """Add rows in place of those with the same keys; with `keep` these stay."""
        keys, adding = [column.name for column in table.primary_key], self._insert(table)
        if keep:
            adding = adding.on_conflict_do_nothing(index_elements=keys)
        else:
            others = {column.name: adding.excluded[column.name] for column in table.c}
            adding = adding.on_conflict_do_update(
                index_elements=keys,
                set_={name: value for name, value in others.items() if name not in keys},
            )
        if rows:
            self.connection.execute(adding, [self.sealed(table, one) for one in rows])

    def change(self, table: Table, *where: Where, **values: Any) -> int:
        """Change columns of the rows that fit; how many did. A damaged row is not changed, but an error."""
        if all(table.c[name].info.get("loose") for name in values):
            return self.connection.execute(self._of(update(table), table, where).values(values)).rowcount
        found = self.all(table, *where)
        for row in found:
            self.put(table, {**row._asdict(), **values})
        return len(found)

    def remove(self, table: Table, *where: Where) -> int:
        """Remove the rows that fit; how many did."""
        return self.connection.execute(self._of(delete(table), table, where)).rowcount

    def remove_each(self, column: ColumnElement[Any], values: Iterable[Any]) -> None:
        """Remove the rows whose column has one of many values."""
        table: Any = column.table
        listed = list(values)
        for start in range(0, len(listed), _TOGETHER):
            self.remove(table, column.in_(listed[start : start + _TOGETHER]))

    def remove_damaged(self, number: ColumnElement[Any]) -> list[DamagedRowError]:
        """Remove rows that are not what was written, by the column of their numbers; what they were."""
        table: Any = number.table
        found: list[DamagedRowError] = []
        self.all(table, on_damage=found.append)
        self.remove_each(number, [one.row[str(number.key)] for one in found])
        return found

    def next_number(self, name: str) -> int:
        """The next number for a kind of things, never given before, from 1 on."""
        known = self.first(schema.numbers, schema.numbers.c.name == name)
        value = 1 if known is None else known.value + 1
        self.put(schema.numbers, {"name": name, "value": value})
        return value

    def now(self) -> float:
        """Seconds since 1970 by the one clock of all who share the database."""
        if self.connection.dialect.name == "sqlite":
            return time.time()
        return float(self.connection.scalar(select(extract("epoch", func.clock_timestamp()))) or 0)

    def of(self, asked: Select[Any], table: Table) -> Select[Any]:
        """A question of one's own about a table, for the rows of this gallery; it compares no seals."""
        return self._of(asked, table, ())

    def _of(self, statement: Any, table: Table, where: Iterable[Where]) -> Any:
        if "gallery_key" in table.c:
            statement = statement.where(table.c.gallery_key == self._key)
        return statement.where(*where) if where else statement

    def sealed(self, table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row with all columns and its seal, as it is stored; it belongs to this gallery."""
        full = {column.name: row.get(column.name) for column in table.c}
        if "gallery_key" in full:
            full["gallery_key"] = self._key
        # A key that the database gives is not known yet.
        given = {
            name: value for name, value in full.items() if value is not None or not _is_given(table, name)
        }
        return given | {"seal": seal_of(table, full)}


def seal_of(table: Table, row: Mapping[str, Any]) -> bytes:
    """SHA-256 of a row's columns but loose ones, keys that the database gives, and the gallery's key."""
    digest = hashlib.sha256(table.name.encode())
    for column in table.c:
        name = column.name
        if name in ("gallery_key", "seal") or column.info.get("loose") or _is_given(table, name):
            continue
        value = _encoded(row[name])
        digest.update(b"%s %d " % (name.encode(), len(value)))
        digest.update(value)
    return digest.digest()


def _is_given(table: Table, name: str) -> bool:
    return table.autoincrement_column is not None and table.autoincrement_column.name == name


def _encoded(value: Any) -> bytes:
    if value is None:
        return b"-"
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    if isinstance(value, int):
        return b"i%d" % value
    return b"t" + value.encode() if isinstance(value, str) else b"b" + bytes(value)

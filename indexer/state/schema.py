"""Every table: what is remembered of a gallery, and of a server.

Tables of a gallery lie in its `gallery.db`, where `gallery_key` is 0; those of a server in `server.db`. A
shared PostgreSQL holds both, with the key that `galleries` gives. Times are seconds since 1970, in UTC.

Every row ends with its seal, the SHA-256 of all its columns but those that are `loose`: these change often
and decide nothing. `rows.py` makes and compares it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Float, Integer, LargeBinary, MetaData, Sequence, Table, Text

GALLERY, SERVER = MetaData(), MetaData()
# Sequences, revisions and times in nanoseconds pass 2^31.
_Number = BigInteger().with_variant(Integer, "sqlite")


def _table(metadata: MetaData, name: str, *columns: Column[Any]) -> Table:
    key = [Column("gallery_key", Integer, primary_key=True, autoincrement=False)]
    return Table(name, metadata, *(key if metadata is GALLERY else []), *columns, Column("seal", LargeBinary))


def _key(name: str, kind: Any = Text) -> Column[Any]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _loose(name: str, kind: Any) -> Column[Any]:
    return Column(name, kind, info={"loose": True})


# What every database has: the number of its last migration, and the last number that was given to a thing.
schema_version = Table("schema_version", MetaData(), Column("number", Integer, nullable=False))
numbers = _table(GALLERY, "numbers", _key("name"), Column("value", _Number, nullable=False))

# --- documents: JSON that is kept under a name -------------------------------------------------------------
# kind: calibration, comparison, report and so on; a document that a gallery has once has the id ''.
documents = _table(
    GALLERY,
    "documents",
    _key("kind"),
    _key("id"),
    Column("at", Float, nullable=False),
    Column("content", Text, nullable=False),
)
# Arrays and pages beside a document, each under a name.
attachments = _table(
    GALLERY,
    "attachments",
    _key("kind"),
    _key("id"),
    _key("name"),
    Column("content", LargeBinary, nullable=False),
)

# --- server: galleries of a shared database ----------------------------------------------------------------
# changed: number of the gallery's last change, which goes up over all galleries.
changes = Sequence("vicinal_change", metadata=SERVER)
galleries = _table(
    SERVER,
    "galleries",
    Column("key", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    _loose("changed", _Number),
)

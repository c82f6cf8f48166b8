"""Every table: what is remembered of a gallery, and of a server.

Tables of a gallery lie in its `gallery.db`, where `gallery_key` is 0; those of a server in `server.db`. A
shared PostgreSQL holds both, with the key that `galleries` gives. Times are seconds since 1970, in UTC.

Every row ends with its seal, the SHA-256 of all its columns but those that are `loose`: these change often
and decide nothing. `rows.py` makes and compares it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Sequence,
    Table,
    Text,
)

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

# --- what people said: kept searches, answers to them, verdicts on pairs -----------------------------------
# embedding: float32, L2-normalized; fields: JSON of what was answered; key: random, in [0, 1); sender: salted
# hash, empty when the visit is over.
searches = _table(
    GALLERY,
    "searches",
    _key("id"),
    Column("at", Float, nullable=False),
    Column("key", Float, nullable=False),
    _loose("sender", Text),
    Column("visit", Text, nullable=False),
    Column("embedding", LargeBinary, nullable=False),
    Column("signature", LargeBinary),
    Column("fields", Text, nullable=False),
    Column("drawn_at", Float),
    Column("item_id", Text),
)
Index("searches_by_key", searches.c.gallery_key, searches.c.key)
Index("searches_by_time", searches.c.gallery_key, searches.c.at)
Index("searches_by_sender", searches.c.gallery_key, searches.c.sender, searches.c.at)
pictures = _table(GALLERY, "pictures", _key("search"), Column("content", LargeBinary, nullable=False))
# A number below zero is of a hint, which counts for nobody but who gave it.
answers = _table(
    GALLERY,
    "answers",
    _key("number", _Number),
    Column("search", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("item_id", Text),
    Column("label", Text),
    Column("by", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("taken_back_at", Float),
)
Index("answers_by_search", answers.c.gallery_key, answers.c.search)
# A picture and an item that an answer calls different; it outlives its search. The number `different` is
# another one after each change. content: SHA-256 of the item's file; embedding: of the picture, by a bundle.
different = _table(
    GALLERY,
    "different",
    _key("answer", _Number),
    _key("item_id"),
    Column("search", Text, nullable=False),
    Column("content", LargeBinary),
    Column("bundle", Text, nullable=False),
    Column("embedding", LargeBinary, nullable=False),
    Column("by", Text, nullable=False),
    Column("at", Float, nullable=False),
)
# Searches that were put to persons, in this order.
asked = _table(
    GALLERY,
    "asked",
    _key("number", _Number),
    Column("search", Text, nullable=False),
    Column("by", Text, nullable=False),
    Column("at", Float, nullable=False),
)
# What a person said of two items: same, different or unsure. session: the one that asked; '' of what was
# called no copies, where one number stands for several pairs. pair: place among those that the session drew.
verdicts = _table(
    GALLERY,
    "verdicts",
    _key("number", _Number),
    _key("place", Integer),
    Column("session", Text, nullable=False),
    Column("pair", Integer),
    Column("first", Text),
    Column("other", Text),
    Column("first_content", Text),
    Column("other_content", Text),
    Column("said", Text, nullable=False),
    Column("by", Text, nullable=False),
    Column("at", Float, nullable=False),
)
# What others need not get with a gallery.
OF_SEARCHES = (searches, pictures, answers, different, asked)

# --- what is in force --------------------------------------------------------------------------------------
# Changes of which calibration is in force: the newest of a slot counts. slot: the key of a pipeline, or
# 'version <v>: <key>' for one version alone; kind: activate or roll_back.
activations = _table(
    GALLERY,
    "activations",
    _key("number", _Number),
    Column("slot", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("calibration", Text, nullable=False),
    Column("at", Float),
)
# Searches that one process counted by their top score since a calibration was put in force.
search_counts = _table(
    GALLERY,
    "search_counts",
    _key("calibration"),
    _key("counter"),
    Column("since", Float),
    Column("content", Text, nullable=False),
)

# --- what is searched --------------------------------------------------------------------------------------
# Moves of the active pointer, of which the newest holds. revisions, calibrated: JSON objects, by version.
moves = _table(
    GALLERY,
    "moves",
    _key("number", _Number),
    Column("version", _Number, nullable=False),
    Column("revision", _Number, nullable=False),
    Column("next_number", _Number, nullable=False),
    Column("token", Text, nullable=False),
    Column("calibrated_as", _Number, nullable=False),
    Column("last_version", _Number, nullable=False),
    Column("revisions", Text, nullable=False),
    Column("calibrated", Text, nullable=False),
    Column("at", Float, nullable=False),
)
# Items that persons removed or set aside (kind), by id and the SHA-256 of the file. number: of the removal.
# source: None for uploads. modified_at: microseconds. Of those that are set aside: by, why, the item that
# stays instead, details (JSON); the whole row is an attachment.
removals = _table(
    GALLERY,
    "removals",
    _key("item"),
    _key("content", LargeBinary),
    Column("number", _Number, nullable=False),
    Column("kind", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("source", Text),
    Column("uri", Text),
    Column("file_size", _Number),
    Column("modified_at", _Number),
    Column("follows_content", Integer, nullable=False),
    Column("by", Text),
    Column("why", Text),
    Column("instead", Text),
    Column("details", Text),
)
Index("removals_by_content", removals.c.gallery_key, removals.c.content)

# --- server: galleries of a shared database ----------------------------------------------------------------
# changed: number of the gallery's last change, which goes up over all galleries. The name '' is the server.
changes = Sequence("vicinal_change", metadata=SERVER)
galleries = _table(
    SERVER,
    "galleries",
    Column("key", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    _loose("changed", _Number),
)

# --- server: jobs and keys ---------------------------------------------------------------------------------
# What was asked for is sealed; all that a job comes to is loose, as each batch changes it. folders, progress,
# problem_members, request, result: JSON. lease_until: until when its worker counts as alive.
jobs = _table(
    SERVER,
    "jobs",
    _key("id"),
    Column("kind", Text, nullable=False),
    Column("gallery", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("folders", Text),
    Column("created_at", Float, nullable=False),
    _loose("state", Text),
    _loose("attempt", Integer),
    _loose("worker", Text),
    _loose("lease_until", Float),
    _loose("cancel_requested", Integer),
    _loose("revision", Integer),
    _loose("progress", Text),
    _loose("problem", Text),
    _loose("problem_type", Text),
    _loose("problem_members", Text),
    _loose("result", Text),
    _loose("updated_at", Float),
    _loose("started_at", Float),
    _loose("finished_at", Float),
)
# kind: log, lines of JSON; failures, files that the job could not use; each a compressed list.
job_lists = _table(
    SERVER, "job_lists", _key("id"), _key("kind"), Column("content", LargeBinary, nullable=False)
)
# content: JSON with the hash of the key, and what it is for.
keys = _table(SERVER, "keys", _key("id"), Column("content", Text, nullable=False))
# Further names of galleries.
aliases = _table(SERVER, "aliases", _key("name"), Column("gallery", Text, nullable=False))
# keys: on or off, once there was one.
facts = _table(SERVER, "facts", _key("name"), Column("value", Text, nullable=False))

# --- home of replicas: used in a shared database alone -----------------------------------------------------
# Files of a gallery in the home: path below the gallery's folder, name of the object with its content, and
# the number of the change with which it came. They belong to a place, so that copied rows leave them out.
files = _table(
    SERVER,
    "files",
    Column("gallery_key", Integer, ForeignKey("galleries.key", ondelete="CASCADE"), primary_key=True),
    _key("path"),
    Column("object", Text, nullable=False),
    Column("bytes", _Number, nullable=False),
    Column("changed", _Number, nullable=False),
)
Index("files_object", files.c.object)
# Who may change what: each holder of a scope has a token higher than the one before. until: by the clock of
# the database; 0 where it was given back.
leases = _table(
    SERVER,
    "leases",
    _key("scope"),
    Column("token", _Number, nullable=False),
    Column("holder", Text, nullable=False),
    Column("replica", Text, nullable=False),
    _loose("until", Float),
)

"""Batches of events: what a replica tells the others of its kept searches, an SQLite file each.

A batch has all that its replica knows of each search that something happened to: the search with its picture,
answers, whom it was put to, what was called different, the item that it became. Rows merge whatever the order
in which batches come, and however often: sets unite, the first draw and the first taking back count, the last
addition does, and what was deleted stays so. Of answers of one person the later one holds, as on one machine.

The functions work on an open file of kept searches (`answering.store`). One that is shared has tables of its
own, whose triggers note which searches others are to be told of, whatever code changes them.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

# `user_version` of a file that is shared, and of a batch.
_SHARED, _FORMAT = 2, 1
# Pages of a batch: most of its tables are small.
_PAGE_BYTES = 1024
# Searches of one batch: with their pictures some 10 MB.
MOST_TOGETHER = 256
# Answers are numbered by milliseconds and chance, so that no two replicas give the same number, and numbers
# stay below 2**53, which every JSON reader takes for whole.
_CHANCE_BITS = 11

_OWN = "not exists (select 1 from wanted where name = 'taking in')"


def _tell(on: str, search: str) -> str:
    """Trigger that notes a search to be told of. Without `insert or replace`, since the statement that sets a
    trigger off decides on conflicts in it.
    """
    name = on.replace(" ", "_").replace(",", "")
    return (
        f"create trigger if not exists tell_{name} after {on} when {_OWN} begin "
        f"delete from outbox where search = {search}; insert into outbox (search) values ({search}); end;"
    )


_SCHEMA = f"""
begin immediate;
create table if not exists outbox (number integer primary key autoincrement, search text not null unique);
create table if not exists batches (
    name text primary key, is_own integer not null, at real not null, has_senders integer not null
) without rowid;
create table if not exists held (
    batch text not null, search text not null, at real, key real, primary key (batch, search)
) without rowid;
create index if not exists held_by_search on held (search);
create table if not exists gone (search text primary key, at real not null) without rowid;
create table if not exists unpaired (
    answer integer not null, item_id text not null, search text not null, at real not null,
    primary key (answer, item_id)
) without rowid;
create table if not exists same_visits (visit text primary key, as_visit text not null) without rowid;
create index if not exists same_as on same_visits (as_visit);
create index if not exists by_visit on searches (visit);
create table if not exists added (search text primary key, item_id text, at real not null) without rowid;
create index if not exists asked_by_search on asked (search);
create index if not exists different_by_search on different (search);
create trigger if not exists stay_gone before insert on searches
    when exists (select 1 from gone where search = new.id) begin select raise(ignore); end;
create trigger if not exists unpaired_too after delete on different begin
    insert into unpaired select old.answer, old.item_id, old.search, old.at where not exists
    (select 1 from unpaired where answer = old.answer and item_id = old.item_id); end;
{_tell("insert on searches", "new.id")}
{_tell("update of drawn_at on searches", "new.id")}
{_tell("insert on added", "new.search")}
{_tell("insert on answers", "new.search")}
{_tell("update of taken_back_at on answers", "new.search")}
{_tell("insert on asked", "new.search")}
{_tell("insert on different", "new.search")}
{_tell("delete on different", "old.search")}
insert or ignore into added select id, item_id, at from searches where item_id is not null;
insert or ignore into outbox (search)
    select id from searches union select search from different union select '';
pragma user_version = {_SHARED};
commit;
"""
_OWN_TABLES = ("outbox", "batches", "held", "gone", "unpaired", "added", "same_visits")
_DELETED_BEFORE = "(select coalesce(max(value), 0) from wanted where name = 'deleted_before')"
_SEARCH = "id, at, key, sender, embedding, signature, fields, drawn_at, picture"
_ANSWER = "number, search, kind, item_id, label, by, at, taken_back_at"
_PAIR = "answer, search, item_id, content, bundle, embedding, by, at"
# Tables of a batch: columns, and the one that names the search.
_TABLES = {
    "searches": (f"{_SEARCH}, visit", "id"),
    "answers": (_ANSWER, "search"),
    "asked": ("search, by, at", "search"),
    "different": (_PAIR, "search"),
    "unpaired": ("answer, item_id, search, at", "search"),
    "added": ("search, item_id, at", "search"),
    "gone": ("search, at", "search"),
}
# When a search of a batch, or a picture that was called different, is from; null where only notes are left.
_HELD = """
select search, min(at), min(key) from (
    select id search, at, key from batch.searches
    union all select search, at, null from batch.different
    union all select search, null, null from batch.answers
    union all select search, null, null from batch.asked
    union all select search, null, null from batch.unpaired
    union all select search, null, null from batch.added
    union all select search, null, null from batch.gone
    union all select '', null, null from batch.moments
) group by search
"""
# Both say what cannot hold too, of one person and search: `a` was said before `b`.
_REPLACED = """
b.search = a.search and b.by = a.by and (b.at, b.number) > (a.at, a.number) and (
    (a.kind != 'wrong' and b.kind != 'wrong')
    or (a.kind = 'wrong' and b.kind = 'wrong' and a.item_id = b.item_id)
    or (a.kind in ('item', 'wrong') and b.kind in ('item', 'wrong') and a.item_id = b.item_id)
)
"""


class Told(NamedTuple):
    """State that a batch was written from: the last note that it heeds, and what it holds."""

    last: int
    held: list[tuple[str, float | None, float | None]]
    has_senders: bool


def is_shared(file: sqlite3.Connection) -> bool:
    """Tell whether others are told of what happens to these searches."""
    return bool(file.execute("pragma user_version").fetchone()[0] == _SHARED)


def share(file: sqlite3.Connection) -> None:
    """Note from now on what others are to be told of, and first all that there is."""
    if not is_shared(file):
        file.executescript(_SCHEMA)


def stop_sharing(file: sqlite3.Connection) -> None:
    """Forget what others would be told of: the searches are this machine's alone."""
    if is_shared(file):
        made = (
            "select name from sqlite_master where type = 'trigger' and (name like 'tell_%' or name in (?, ?))"
        )
        triggers = [name for (name,) in file.execute(made, ("stay_gone", "unpaired_too"))]
        drops = [f"drop trigger {one};" for one in triggers] + [f"drop table {one};" for one in _OWN_TABLES]
        file.executescript(f"begin immediate; {' '.join(drops)} pragma user_version = 1; commit;")


def new_number(file: sqlite3.Connection, now: datetime, *, is_hint: bool) -> int | None:
    """Number of an answer that no other replica gives, below zero of a hint; None where the file counts."""
    if not is_hint and not is_shared(file):
        return None
    number = (int(now.timestamp() * 1000) << _CHANCE_BITS) | secrets.randbits(_CHANCE_BITS)
    return -number if is_hint else number


def told_at(number: int) -> float:
    """Seconds from 1970 to an answer of this number; few where a file counted by itself."""
    return (abs(number) >> _CHANCE_BITS) / 1000


def note_added(file: sqlite3.Connection, search_id: str, item_id: str | None, now: datetime) -> None:
    """Note when a search became an item, or none again."""
    if is_shared(file):
        file.execute("delete from added where search = ?", (search_id,))
        file.execute("insert into added values (?, ?, ?)", (search_id, item_id, now.timestamp()))


def note_again(file: sqlite3.Connection, search_id: str) -> None:
    """Note that others are to be told of a search."""
    file.execute("delete from outbox where search = ?", (search_id,))
    file.execute("insert into outbox (search) values (?)", (search_id,))


def note_deleted(file: sqlite3.Connection, search_ids: Iterable[str] | None, now: datetime) -> None:
    """Note that searches were deleted on demand; None where the file knows up to which moment all were."""
    if not is_shared(file):
        return
    told = [("",)] if search_ids is None else [(one,) for one in search_ids]
    file.executemany("delete from outbox where search = ?", told)
    file.executemany("insert into outbox (search) values (?)", told)
    if search_ids is not None:
        file.executemany(
            "insert or ignore into gone values (?, ?)", [(*one, now.timestamp()) for one in told]
        )
    forget_deleted(file)


def write_batch(file: sqlite3.Connection, path: Path) -> Told:
    """Write what is known of the searches that were noted first, which may be nothing any more.

    The file of searches is read as it is at one moment; nobody who changes it waits.
    """
    path.touch(mode=0o600)
    with batch_beside(file, path, "rwc"):
        file.execute("pragma batch.journal_mode = off")
        file.execute(f"pragma batch.page_size = {_PAGE_BYTES}")
        file.execute("begin")
        file.execute(
            "create temp table chosen as select number, search from outbox order by number limit ?",
            (MOST_TOGETHER,),
        )
        (last,) = file.execute("select coalesce(max(number), 0) from chosen").fetchone()
        for table, (columns, search) in _TABLES.items():
            order = " order by rowid" if table == "asked" else ""
            file.execute(
                f"create table batch.{table} as select {columns} from main.{table} "
                f"where {search} in (select search from chosen){order}"
            )
        file.execute(
            "create table batch.moments as select name, value from wanted "
            "where name = 'deleted_before' and exists (select 1 from chosen where search = '')"
        )
        file.execute(
            "create table batch.same_visits as select visit, as_visit from same_visits "
            "where as_visit in (select visit from batch.searches)"
        )
        # No two have one content, so that each can be erased.
        file.execute("create table batch.own as select ? as id", (secrets.token_hex(8),))
        held, has_senders = file.execute(_HELD).fetchall(), _has_senders(file)
        file.execute("drop table chosen")
        file.execute(f"pragma batch.user_version = {_FORMAT}")
        file.execute("commit")
    return Told(last, held, has_senders)


def note_told(file: sqlite3.Connection, told: Told, name: str, now: datetime) -> None:
    """Note that a batch was written, and that nobody needs to be told of that again."""
    file.execute("delete from outbox where number <= ?", (told.last,))
    if told.held:
        _note_batch(file, name, told.held, now, is_own=True, has_senders=told.has_senders)


def is_whole(path: Path) -> bool:
    """Tell whether a file is a batch that can be read."""
    try:
        address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as batch:
            version = batch.execute("pragma user_version").fetchone()[0]
            return bool(version == _FORMAT and batch.execute("pragma quick_check").fetchone()[0] == "ok")
    except sqlite3.Error:
        return False


@contextmanager
def batch_beside(file: sqlite3.Connection, path: Path, mode: str = "ro&immutable=1") -> Iterator[None]:
    """A batch beside an open file of searches, before a transaction begins."""
    file.execute("attach ? as batch", (f"{path.absolute().as_uri()}?mode={mode}",))
    try:
        yield
    finally:
        if file.in_transaction:
            file.execute("rollback")
        file.execute("detach batch")


class Merged(NamedTuple):
    """Outcome of a merge: whether anything was deleted, and the searches that are new here."""

    has_deleted: bool
    new: list[str]


def merge_batch(file: sqlite3.Connection, name: str, now: datetime, *, oldest: float, is_own: bool) -> Merged:
    """Merge the batch that lies beside, in a transaction that has begun: what it says holds too.

    Args:
        oldest: Searches that came before this moment have gone by their age.
    """
    file.execute("insert into wanted values ('taking in', 1)")
    has_deleted = _merge_deletions(file)
    new = file.execute(
        f"select id from batch.searches b where at >= ? and at >= {_DELETED_BEFORE} "
        "and id not in (select id from searches) and id not in (select search from gone)",
        (oldest,),
    ).fetchall()
    file.executemany(
        f"insert into searches ({_SEARCH}, visit) select {_SEARCH}, coalesce((select as_visit "
        "from same_visits a where a.visit = b.visit), b.visit) from batch.searches b where id = ?",
        new,
    )
    for visits in file.execute("select visit, as_visit from batch.same_visits").fetchall():
        join_visits(file, *visits)
    file.execute(
        "update searches set drawn_at = b.drawn_at from batch.searches b where b.id = searches.id "
        "and b.drawn_at is not null and (searches.drawn_at is null or searches.drawn_at > b.drawn_at)"
    )
    _merge_additions(file)
    file.execute(
        f"insert into answers ({_ANSWER}) select {_ANSWER} from batch.answers "
        "where number not in (select number from answers) and search in (select id from searches)"
    )
    file.execute(
        "update answers set taken_back_at = b.taken_back_at from batch.answers b where b.number = "
        "answers.number and b.taken_back_at is not null "
        "and (answers.taken_back_at is null or answers.taken_back_at > b.taken_back_at)"
    )
    file.execute(
        "insert into asked select search, by, at from batch.asked b "
        "where search in (select id from searches) "
        "and not exists (select 1 from asked a where a.search = b.search and a.by = b.by and a.at = b.at) "
        "order by rowid"
    )
    file.execute(
        f"insert into different ({_PAIR}) select {_PAIR} from batch.different b where "
        "search not in (select search from gone) and search not in (select id from batch.searches where "
        f"at < {_DELETED_BEFORE}) "
        f"and at >= {_DELETED_BEFORE} "
        "and not exists (select 1 from different a where a.answer = b.answer and a.item_id = b.item_id) "
        "and not exists (select 1 from unpaired a where a.answer = b.answer and a.item_id = b.item_id)"
    )
    held, has_senders = file.execute(_HELD).fetchall(), _has_senders(file)
    _note_batch(file, name, held, now, is_own=is_own, has_senders=has_senders)
    file.execute("delete from wanted where name = 'taking in'")
    _settle(file)
    return Merged(has_deleted, [one for (one,) in new])


def _note_batch(
    file: sqlite3.Connection,
    name: str,
    held: list[tuple[str, float | None, float | None]],
    now: datetime,
    *,
    is_own: bool,
    has_senders: bool,
) -> None:
    row = name, is_own, now.timestamp(), has_senders
    file.execute("insert or replace into batches values (?, ?, ?, ?)", row)
    file.executemany("insert or replace into held values (?, ?, ?, ?)", [(name, *one) for one in held])


def _has_senders(file: sqlite3.Connection) -> bool:
    return bool(file.execute("select count(*) from batch.searches where sender != ''").fetchone()[0])


def join_visits(file: sqlite3.Connection, one: str, other: str) -> bool:
    """Make one visit of two, by the lower name, that of the first search; whether they were two."""
    known = "select as_visit from same_visits where visit = ?"
    roots = {(file.execute(known, (each,)).fetchone() or (each,))[0] for each in (one, other)}
    if len(roots) == 1:
        return False
    low, high = sorted(roots)
    file.execute("update same_visits set as_visit = ? where as_visit = ?", (low, high))
    file.execute("insert into same_visits values (?, ?)", (high, low))
    file.execute("update searches set visit = ? where visit = ?", (low, high))
    return True


def _merge_deletions(file: sqlite3.Connection) -> bool:
    """Take over what was deleted on demand; whether anything was here."""
    file.execute(
        "insert into gone select search, at from batch.gone where search not in (select search from gone)"
    )
    file.execute(
        "insert into wanted select name, value from batch.moments where name not in (select name from wanted)"
    )
    file.execute(
        "update wanted set value = b.value from batch.moments b "
        "where b.name = wanted.name and b.value > wanted.value"
    )
    file.execute(
        "insert into unpaired select answer, item_id, search, at from batch.unpaired b where not exists "
        "(select 1 from unpaired a where a.answer = b.answer and a.item_id = b.item_id)"
    )
    before = file.total_changes
    # What was called different after they were deleted elsewhere goes with its search.
    file.execute(
        f"delete from different where at < {_DELETED_BEFORE} or search in (select search from gone) "
        f"or search in (select id from searches where at < {_DELETED_BEFORE})"
    )
    file.execute(f"delete from searches where at < {_DELETED_BEFORE} or id in (select search from gone)")
    has_deleted = file.total_changes > before
    file.execute(
        "delete from different where exists (select 1 from unpaired a where a.answer = different.answer "
        "and a.item_id = different.item_id)"
    )
    forget_deleted(file)
    return has_deleted


def forget_deleted(file: sqlite3.Connection) -> None:
    """Remove what is left of searches that have gone; that they are gone stays."""
    for table in ("answers", "asked"):
        file.execute(f"delete from {table} where search not in (select id from searches)")
    file.execute("delete from added where search not in (select id from searches)")
    file.execute(f"delete from unpaired where at < {_DELETED_BEFORE} or search in (select search from gone)")


def _merge_additions(file: sqlite3.Connection) -> None:
    """The last word on the item that a search became."""
    file.execute(
        "delete from added where exists (select 1 from batch.added b where b.search = added.search and "
        "(b.at, coalesce(b.item_id, '')) > (added.at, coalesce(added.item_id, '')))"
    )
    file.execute(
        "insert into added select search, item_id, at from batch.added "
        "where search not in (select search from added) and search in (select id from searches)"
    )
    file.execute(
        "update searches set item_id = a.item_id from added a where a.search = searches.id "
        "and searches.id in (select search from batch.added) and searches.item_id is not a.item_id"
    )


def _settle(file: sqlite3.Connection) -> None:
    """Draw the consequences where a search was answered on two replicas; the others are told of them."""
    touched = "in (select search from batch.answers union select search from batch.different)"
    file.execute(
        f"update answers as a set taken_back_at = (select min(b.at) from answers b where {_REPLACED}) "
        f"where search {touched} and exists (select 1 from answers b where {_REPLACED} "
        "and (a.taken_back_at is null or b.at < a.taken_back_at))"
    )
    file.execute(
        f"delete from different where search {touched} and exists (select 1 from answers b where "
        "b.kind = 'item' and b.search = different.search and b.item_id = different.item_id "
        "and (b.number > 0 or b.by = different.by) "
        "and b.at > different.at)"
    )

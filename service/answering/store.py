"""Kept searches of a gallery, and the answers to them, in one SQLite file that all processes share.

<gallery>/searches/searches.sqlite     searches, answers, and what became of them; WAL, whole after any crash
<gallery>/searches/different.changes   grows with what was called different; made where it is missing

A kept search has a random key. The sample are the searches with the lowest keys, as many as are wanted: at
any time a random sample of all that came, whoever kept them (bottom-k sampling; Cohen and Kaplan, 2007).
Beside it lie the newest ones for a while, so that what was just shown can be answered, and all that were
answered.

An answer of who is trusted counts for everybody. That of a key that may only search is a hint: it has a
number below zero and counts for that key alone; of what one key calls different the newest thousand stay.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.errors import StorageError
from vicinal.indexer.hygiene import CLOSE_SIMILARITY, SAME_EMBEDDING, are_same_pictures
from vicinal.indexer.storage.disk import write_ahead
from vicinal.indexer.storage.files import size_of, storing
from vicinal.indexer.storage.home import Mirror
from vicinal.service.answering.event_batches import batch_beside, new_number, note_added, note_deleted, share
from vicinal.service.errors import AnswerNotFoundError, SearchNotFoundError, SearchStoreError

logger = logging.getLogger(__name__)
AnswerKind = Literal["item", "label", "absent", "unsure", "wrong"]
_FOLDER, _FILE = "searches", "searches.sqlite"
_CHANGES = "different.changes"
_N_CHANGES = "select value from wanted where name = 'different'"
_BUSY_SECONDS = 10.0
# Searches that were just answered stay for as long, at most so many of them.
_RECENT = timedelta(minutes=15)
_MOST_RECENT = 1000
# Items that one key which may only search calls different: every search compares with all of them.
_MOST_HINTED = 1000
# A search or an answer that another process or replica keeps is known to all after less.
_MOMENT = timedelta(minutes=1)
_MOST_OF_VISIT = 10
# Searches of one sender for the same thing are of one visit while no more than so long lies between two; then
# nothing tells who asked. Behind one address may be many persons, so that no visit lasts longer than an hour.
_ONE_VISIT = timedelta(minutes=10)
_LONGEST_VISIT = timedelta(hours=1)
# Cosine of photos of a thing that one sender took in a row.
_IN_A_ROW = 0.8
_COMPARED_TOGETHER = 2048
_SCHEMA = """
begin immediate;
create table if not exists searches (
    id text primary key, at real not null, key real not null, sender text not null, visit text not null,
    embedding blob not null, signature blob, fields text not null, drawn_at real, item_id text, picture blob
) without rowid;
create index if not exists by_key on searches (key);
create index if not exists by_time on searches (at);
create index if not exists by_sender on searches (sender, at) where sender != '';
create table if not exists answers (
    number integer primary key autoincrement, search text not null, kind text not null, item_id text,
    label text, by text not null, at real not null, taken_back_at real
);
create index if not exists by_search on answers (search);
create table if not exists different (
    answer integer not null, search text not null, item_id text not null, content blob,
    bundle text not null, embedding blob not null, by text not null, at real not null,
    primary key (answer, item_id)
) without rowid;
create trigger if not exists not_different after update of taken_back_at on answers
    when new.taken_back_at is not null begin delete from different where answer = new.number; end;
create trigger if not exists more_different after insert on different
    begin insert or replace into wanted select 'different', 1 + coalesce(max(value), 0) from wanted
    where name = 'different'; end;
create trigger if not exists less_different after delete on different
    begin insert or replace into wanted select 'different', 1 + coalesce(max(value), 0) from wanted
    where name = 'different'; end;
create table if not exists asked (search text not null, by text not null, at real not null);
create table if not exists wanted (name text primary key, value real not null) without rowid;
pragma user_version = 1;
commit;
"""
_COLUMNS = "id, at, key, sender, visit, embedding, signature, fields, drawn_at, item_id"


def new_search_id() -> str:
    """An id that nobody guesses: the second, and chance."""
    return f"{int(datetime.now(UTC).timestamp()):08x}{secrets.token_hex(12)}"


def is_just_made(search_id: str) -> bool:
    """Tell by its id whether a search came within the last minute: it may not have arrived here yet."""
    try:
        return abs(datetime.now(UTC).timestamp() - int(search_id[:8], 16)) < _MOMENT.total_seconds()
    except ValueError:
        return False


@dataclass(frozen=True)
class KeptCandidate:
    """Candidate of a kept search, as it was found."""

    id: str
    label: str | None
    score: float


@dataclass(frozen=True)
class KeptSearch:
    """A query, and what was found for it.

    Attributes:
        sender: Salted hash of who asked, for as long as it tells visits apart; then empty.
        visit: Searches of one visit were taken together, and are asked about once. Where none is given it is
            found when the search is kept: almost the same query, or one that the same sender asked within
            ten minutes and that has the same label or item as its best candidate.
        embedding: (d,) float32, L2-normalized, before refinement.
        signature: 768 bytes, the picture at 16 x 16 pixels; None for a ready embedding.
        candidates: Best ones first, as many as are kept.
        drawn_at: When it was drawn to be asked about; None where it was not.
        item_id: Item that it became; None where it became none.
        in_sample: Whether it belongs to the random sample of all searches.
    """

    embedding: FloatArray
    bundle: str
    version: int
    revision: int
    pipeline: str
    candidates: tuple[KeptCandidate, ...]
    verdict: str | None
    threshold: float | None
    calibration: str | None
    id: str = field(default_factory=new_search_id)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    key: float = field(default_factory=lambda: secrets.randbits(52) / 2.0**52)
    sender: str = ""
    visit: str = ""
    signature: bytes | None = None
    drawn_at: datetime | None = None
    item_id: str | None = None
    in_sample: bool = True

    @property
    def top_score(self) -> float | None:
        """Best score; None where nothing could be compared."""
        return self.candidates[0].score if self.candidates else None


@dataclass(frozen=True)
class SearchAnswer:
    """Answer of a person to a kept search.

    Attributes:
        kind: `item` or `label`: this is it; `absent`: the gallery lacks it; `unsure`: it cannot be told;
            `wrong`: the match `item_id` is not it, which says nothing of the others.
        label: Label of it, with `item` that of the item when it was answered; None where there is none.
        by: Name of the key that answered, or of who used the command.
    """

    number: int
    search: str
    kind: AnswerKind
    item_id: str | None
    label: str | None
    by: str
    at: datetime

    @property
    def is_hint(self) -> bool:
        """Tell whether it counts for nobody but who said it."""
        return self.number < 0


@dataclass(frozen=True)
class DifferentPair:
    """Picture and an item that a person called different; it stays when the search has gone by its age.

    Attributes:
        answer: Number of the answer that says so, by which it can be taken back.
        content: SHA-256 of the item's file; None where that was not known.
        embedding: (d,) float32, L2-normalized, of the picture, by a bundle.
    """

    answer: int
    search: str
    item_id: str
    content: bytes | None
    bundle: str
    embedding: FloatArray
    by: str
    at: datetime

    def counts_for(self, asker: str | None) -> bool:
        """Tell whether it counts where somebody searches; None for nobody in particular."""
        return self.answer > 0 or self.by == asker


class AskedSearch(NamedTuple):
    """Search that a person was asked about."""

    search: str
    by: str
    at: datetime


class SearchStore:
    """Kept searches of one gallery; nothing lies on the disk before the first is kept."""

    def __init__(self, gallery: Path) -> None:
        self.gallery = gallery
        self.path = gallery / _FOLDER / _FILE

    @property
    def exists(self) -> bool:
        """Tell whether a search was ever kept."""
        return self.path.exists()

    def keep(self, searches: Iterable[tuple[KeptSearch, bytes | None]], *, most: int, days: float) -> None:
        """Keep searches with their pictures; let go what is older than some days, or beyond the sample."""
        now = datetime.now(UTC)
        with self.changing(make=True) as file:
            since = _deleted_before(file)
            for search, picture in searches:
                if search.at.timestamp() < since:
                    continue
                file.execute(
                    "insert or ignore into searches (id, at, key, sender, visit, embedding, signature, "
                    "picture, fields) values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        search.id,
                        search.at.timestamp(),
                        search.key,
                        search.sender,
                        search.visit or visit_of(file, search),
                        np.asarray(search.embedding, dtype="<f4").tobytes(),
                        search.signature,
                        picture,
                        _fields_of(search),
                    ),
                )
            _let_go(file, now, most, days)

    def let_go(self, *, most: int | None, days: float) -> None:
        """Remove what is too old, too many of one visit, or beyond the sample; None leaves that as it is."""
        if self.exists:
            now = datetime.now(UTC)
            with self.changing() as file:
                _let_go(file, now, most, days)
                # What asks for the same day and night would fill the sample.
                file.execute(
                    "delete from searches where at < ? and drawn_at is null "
                    "and id not in (select search from answers where number > 0) "
                    "and id in (select id from (select id, row_number() over (partition by visit "
                    "order by key) place from searches) where place > ?)",
                    ((now - _RECENT).timestamp(), _MOST_OF_VISIT),
                )

    def has(self, search_id: str) -> bool:
        """Tell whether a search is kept."""
        return bool(self._read("select 1 from searches where id = ?", search_id))

    def get(self, search_id: str) -> KeptSearch:
        """Find a search."""
        found = self._read(f"select {_COLUMNS} from searches where id = ?", search_id)
        if not found:
            raise SearchNotFoundError(self.gallery.name, search_id)
        return _search(found[0], self.sample_key())

    def picture(self, search_id: str) -> bytes | None:
        """JPEG of what was searched for, small; None for a ready embedding."""
        found = self._read("select picture from searches where id = ?", search_id)
        if not found:
            raise SearchNotFoundError(self.gallery.name, search_id)
        return None if found[0][0] is None else bytes(found[0][0])

    def searches(self, since: datetime | None = None, *, most: int | None = None) -> list[KeptSearch]:
        """Kept searches (`since` a moment), oldest first; with `most` a random sample, and all drawn ones."""
        start, key = 0.0 if since is None else since.timestamp(), self.sample_key()
        found = self._read(
            f"select {_COLUMNS} from searches where at >= ? and (drawn_at is not null or id in (select id "
            "from searches order by key limit ?)) order by at, id",
            start,
            -1 if most is None else most,
        )
        return [_search(row, key) for row in found]

    def answers(
        self, search_id: str | None = None, *, replaced: bool = False, hints: bool = False
    ) -> list[SearchAnswer]:
        """Answers that hold, in the order in which they were given; those of one search, or of all. With
        `replaced` also those in whose place the same person gave another one, with `hints` those too.
        """
        hold = "taken_back_at is null"
        if replaced:
            hold = f"({hold} or exists (select 1 from answers b where b.search = a.search and b.by = a.by "
            hold += "and b.at = a.taken_back_at))"
        hold += "" if hints else " and number > 0"
        one = "" if search_id is None else " and search = ?"
        found = self._read(
            f"select number, search, kind, item_id, label, by, at from answers a where {hold}{one} "
            "order by abs(number)",
            *(() if search_id is None else (search_id,)),
        )
        return [
            SearchAnswer(number, search, kind, item_id, said, by, datetime.fromtimestamp(at, UTC))
            for number, search, kind, item_id, said, by, at in found
        ]

    def has_answer(self, number: int) -> bool:
        """Tell whether an answer was given, or what it called different stays."""
        asked = "select 1 from answers where number = ? union all select 1 from different where answer = ?"
        return bool(self._read(asked, number, number))

    def answer(
        self,
        search_id: str,
        kind: AnswerKind,
        *,
        by: str,
        item_id: str | None = None,
        label: str | None = None,
        different: Mapping[str, bytes | None] | None = None,
        is_hint: bool = False,
    ) -> SearchAnswer:
        """Keep what a person said, in place of what was said before; a wrong match stands alone. `different`
        are the items that it calls different from the picture, each with the SHA-256 of its file.
        """
        now = datetime.now(UTC)
        with self.changing() as file:
            if not file.execute("select 1 from searches where id = ?", (search_id,)).fetchone():
                raise SearchNotFoundError(self.gallery.name, search_id)
            same = "kind = 'wrong' and item_id = ?" if kind == "wrong" else "kind != 'wrong'"
            file.execute(
                "update answers set taken_back_at = ? where search = ? and by = ? and taken_back_at is null "
                f"and {same}",
                (now.timestamp(), search_id, by, *((item_id,) if kind == "wrong" else ())),
            )
            if kind in ("item", "wrong"):
                # Nobody says both of one item.
                file.execute(
                    "update answers set taken_back_at = ? where search = ? and by = ? and taken_back_at "
                    "is null and item_id = ? and kind in ('item', 'wrong')",
                    (now.timestamp(), search_id, by, item_id),
                )
            if kind == "item":
                # What counts for others no hint takes back.
                file.execute(
                    "delete from different where search = ? and item_id = ? and (by = ? or not ?)",
                    (search_id, item_id, by, is_hint),
                )
            known = new_number(file, now, is_hint=is_hint)
            made = file.execute(
                "insert into answers (number, search, kind, item_id, label, by, at) "
                "values (?, ?, ?, ?, ?, ?, ?)",
                (known, search_id, kind, item_id, label, by, now.timestamp()),
            )
            number = int(made.lastrowid or 0)
            file.executemany(
                "insert into different select ?, id, ?, ?, json_extract(fields, '$.bundle'), embedding, ?, ? "
                "from searches where id = ?",
                [
                    (number, one, content, by, now.timestamp(), search_id)
                    for one, content in (different or {}).items()
                ],
            )
            if is_hint:
                file.execute(
                    "delete from different where answer < 0 and by = ? and (answer, item_id) not in (select "
                    "answer, item_id from different where answer < 0 and by = ? order by answer limit ?)",
                    (by, by, _MOST_HINTED),
                )
            return SearchAnswer(number, search_id, kind, item_id, label, by, now)

    def take_back(self, which: int | str) -> None:
        """Take an answer back, or all of a person, and what they called different, also of searches that have
        gone by their age.
        """
        number, answer = ("number", "answer") if isinstance(which, int) else ("by", "by")
        unknown = AnswerNotFoundError(which if isinstance(which, int) else f"of '{which}'")
        if not self.exists:
            raise unknown
        with self.changing() as file:
            done = file.execute(
                f"update answers set taken_back_at = ? where {number} = ? and taken_back_at is null",
                (datetime.now(UTC).timestamp(), which),
            )
            remembered = file.execute(f"delete from different where {answer} = ?", (which,))
            if not done.rowcount and not remembered.rowcount:
                raise unknown

    @property
    def changes_path(self) -> Path:
        """File that grows with every change to what was called different; made where it is missing."""
        return self.path.with_name(_CHANGES)

    def different(self) -> list[DifferentPair]:
        """Pictures and items that persons called different, in the order in which they did."""
        question = (
            "select answer, search, item_id, content, bundle, embedding, by, at from different "
            "order by answer, item_id"
        )
        if not self.exists:
            return []
        try:
            # As a writer, so that what another one is about to commit is not missed.
            with self.changing() as file:
                rows = file.execute(question).fetchall()
        except StorageError:
            rows = self._read(question)
        return [
            DifferentPair(
                answer, search, item_id, content, bundle, np.frombuffer(stored, "<f4"), by, _moment(at)
            )
            for answer, search, item_id, content, bundle, stored, by, at in rows
        ]

    def draw(self, search_ids: Collection[str], *, asked: Collection[str] = (), by: str = "") -> None:
        """Note searches as drawn, and whom some were put to; what was said before counts from now on."""
        if not search_ids and not asked:
            return
        now = datetime.now(UTC).timestamp()
        with self.changing() as file:
            file.executemany(
                "update searches set drawn_at = ? where id = ? and drawn_at is null",
                [(now, one) for one in search_ids],
            )
            file.executemany("insert into asked values (?, ?, ?)", [(one, by, now) for one in asked])

    def asked(self) -> list[AskedSearch]:
        """Searches that persons were asked about, in the order in which they were."""
        found = self._read("select search, by, at from asked order by at, rowid")
        return [AskedSearch(search, by, datetime.fromtimestamp(at, UTC)) for search, by, at in found]

    def page(self, before: tuple[float, str] | None, size: int) -> list[KeptSearch]:
        """Newest searches, or those before the moment and id of one."""
        found = self._read(
            f"select {_COLUMNS} from searches where (at, id) < (?, ?) order by at desc, id desc limit ?",
            *(before or (math.inf, "")),
            size,
        )
        key = self.sample_key()
        return [_search(row, key) for row in found]

    def mark_added(self, search_id: str, item_id: str | None) -> None:
        """Note the item that a search became; None where that was taken back."""
        with self.changing() as file:
            done = file.execute("update searches set item_id = ? where id = ?", (item_id, search_id))
            if done.rowcount:
                note_added(file, search_id, item_id, datetime.now(UTC))

    def delete(self, search_ids: Collection[str] | None = None, *, before: datetime | None = None) -> int:
        """Remove searches with their answers: some, those before a moment, or all; their number."""
        if not self.exists:
            return 0
        now = datetime.now(UTC)
        with self.changing() as file:
            if search_ids is None:
                # What came before is deleted too where another process has not kept it yet.
                until = min(before or now, now).timestamp()
                file.execute(
                    "insert or replace into wanted values ('deleted_before', ?)",
                    (max(until, _deleted_before(file)),),
                )
            if search_ids is not None:
                chosen = [(one,) for one in search_ids]
                file.executemany("delete from different where search = ?", chosen)
            elif before is not None:
                # What was called different since goes with its search, too.
                file.execute(
                    "delete from different where at < ? or search in (select id from searches where at < ?)",
                    (before.timestamp(), before.timestamp()),
                )
                chosen = file.execute(
                    "select id from searches where at < ?", (before.timestamp(),)
                ).fetchall()
            else:
                file.execute("delete from different")
                chosen = file.execute("select id from searches").fetchall()
            done = file.executemany("delete from searches where id = ?", chosen).rowcount
            file.executemany("delete from answers where search = ?", chosen)
            file.executemany("delete from asked where search = ?", chosen)
            note_deleted(file, search_ids, now)
        self.scrub()
        return max(0, done)

    def scrub(self) -> None:
        """Make sure that what was deleted is not to be found in the file either."""
        with self.opened() as file:
            file.execute("pragma wal_checkpoint(truncate)")
            file.execute("vacuum")

    @property
    def n_kept(self) -> int:
        """Number of kept searches."""
        return int(self._read("select count(*) from searches")[0][0]) if self.exists else 0

    @property
    def n_readable(self) -> int | None:
        """The same; None where the file cannot be read."""
        try:
            return self.n_kept
        except (SearchStoreError, StorageError):
            return None

    @property
    def n_bytes(self) -> int:
        """Bytes on the disk."""
        folder = self.path.parent
        return size_of([*folder.glob(f"{_FILE}*"), *folder.glob("events/*/*")])

    def sample_key(self) -> float:
        """Largest key of the sample."""
        found = self._read(
            "select key from searches order by key limit 1 offset "
            "max(0, (select coalesce(max(value), 1) from wanted where name = 'most') - 1)"
        )
        return float(found[0][0]) if found else 1.0

    def _read(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        if not self.exists:
            return []
        with self.opened() as file:
            return file.execute(question, values).fetchall()

    @contextmanager
    def changing(self, *, make: bool = False, beside: Path | None = None) -> Iterator[sqlite3.Connection]:
        """The file in one transaction, which is on the disk afterwards; a batch may lie `beside`."""
        if make and not self.path.exists():
            if not self.gallery.is_dir():
                raise SearchStoreError(f"gallery '{self.gallery.name}' has gone, and its searches with it")
            with storing(f"'{self.path}'"):
                # Not those above it: a gallery that is deleted meanwhile stays so.
                self.path.parent.mkdir(mode=0o700, exist_ok=True)
            # Queries are in it. What SQLite lays beside it is as private as the file itself.
            self.path.touch(mode=0o600)
        with self.opened() as file, nullcontext() if beside is None else batch_beside(file, beside):
            file.execute("begin immediate")
            before = file.execute(_N_CHANGES).fetchone()
            yield file
            # What was copied or restored has none yet.
            if file.execute(_N_CHANGES).fetchone() != before or not self.changes_path.exists():
                # Before others can read it: who sees the file grow waits for the commit.
                with storing(f"'{self.changes_path}'"), self.changes_path.open("ab") as stream:
                    stream.write(b".")
            file.execute("commit")

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """The file, as SQLite opens it."""
        try:
            # It is opened for each use: a gallery may be renamed, deleted and made anew in between.
            address = f"{self.path.absolute().as_uri()}?mode=rw"
            with closing(sqlite3.connect(address, _BUSY_SECONDS, isolation_level=None, uri=True)) as file:
                write_ahead(file, patience=_BUSY_SECONDS)
                file.execute("pragma synchronous=full")
                file.execute("pragma secure_delete=on")
                if not file.execute("pragma user_version").fetchone()[0]:
                    file.executescript(_SCHEMA)
                    if Mirror.of(self.gallery) is not None:
                        share(file)
                yield file
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR):
                raise StorageError(f"kept searches '{self.path}' cannot be written: {error}") from error
            raise SearchStoreError(
                f"kept searches of gallery '{self.gallery.name}' cannot be read: {error}; where that stays, "
                f"move '{self.path}' away with its -wal and -shm, and searches are kept anew"
            ) from error


class SearchProblems:
    """Reasons why searches of galleries are not `kept`, say, each told once in the log."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._reasons: dict[Path, str] = {}

    @property
    def told(self) -> list[str]:
        """Sentences on those that last; a gallery that was deleted has none."""
        return [
            f"searches of gallery '{gallery.name}' are not {self._what}: {reason}"
            for gallery, reason in sorted(self._reasons.items())
            if gallery.is_dir()
        ]

    def tried(self, gallery: Path, do: Callable[[], object]) -> bool:
        """Do something for a gallery, and tell whether it was done: neither failed nor gave False."""
        try:
            is_done = do()
        except Exception as error:  # Whatever it is, the next round tries again
            if gallery.is_dir() and self._reasons.get(gallery) != str(error):
                self._reasons[gallery] = str(error)
                logger.warning("searches of gallery '%s' are not %s: %s", gallery.name, self._what, error)
            return False
        self._reasons.pop(gallery, None)
        return is_done is not False


def standing(answers: Sequence[SearchAnswer]) -> dict[str, list[SearchAnswer]]:
    """Answers by search, one of each person; those about one wrong match are left out."""
    found: dict[str, list[SearchAnswer]] = defaultdict(list)
    for one in answers:
        if one.kind != "wrong":
            found[one.search].append(one)
    return dict(found)


def _deleted_before(file: sqlite3.Connection) -> float:
    found = file.execute("select value from wanted where name = 'deleted_before'").fetchone()
    return float(found[0]) if found else 0.0


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _fields_of(search: KeptSearch) -> str:
    names = ("bundle", "version", "revision", "pipeline", "verdict", "threshold", "calibration")
    fields = {name: getattr(search, name) for name in names}
    return json.dumps({**fields, "candidates": [astuple(one) for one in search.candidates]})


def read_search(file: sqlite3.Connection, search_id: str) -> KeptSearch | None:
    """A search of an open file; whether it is in the sample is not looked at."""
    found = file.execute(f"select {_COLUMNS} from searches where id = ?", (search_id,)).fetchone()
    return None if found is None else _search(found, 1.0)


def _search(row: tuple[Any, ...], sample_key: float) -> KeptSearch:
    search_id, at, key, sender, visit, embedding, signature, text, drawn_at, item_id = row
    fields = json.loads(text)
    candidates = tuple(KeptCandidate(*one) for one in fields.pop("candidates"))
    return KeptSearch(
        **fields,
        candidates=candidates,
        embedding=np.frombuffer(embedding, dtype="<f4"),
        id=search_id,
        at=datetime.fromtimestamp(at, UTC),
        key=key,
        sender=sender,
        visit=visit,
        signature=signature,
        drawn_at=None if drawn_at is None else datetime.fromtimestamp(drawn_at, UTC),
        item_id=item_id,
        in_sample=key <= sample_key,
    )


def visit_of(file: sqlite3.Connection, search: KeptSearch) -> str:
    """Visit of almost the same query, or of what this sender just searched for; else the own id."""
    own, signature = np.asarray(search.embedding, "<f4"), search.signature
    found = file.execute(
        "select visit, embedding, signature from searches where length(embedding) = ? and id != ? "
        f"and signature is {'not ' if signature else ''}null",
        (own.nbytes, search.id),
    )
    while rows := found.fetchmany(_COMPARED_TOGETHER):
        visits, embeddings, signatures = zip(*rows, strict=True)
        cosines = np.frombuffer(b"".join(embeddings), "<f4").reshape(len(rows), -1) @ own
        alike = np.flatnonzero(cosines >= (SAME_EMBEDDING if signature is None else CLOSE_SIMILARITY))
        if signature is not None and len(alike):
            pictures = np.stack([np.frombuffer(signatures[one], np.uint8) for one in alike])
            alike = alike[are_same_pictures(pictures, np.frombuffer(signature, np.uint8)[None])]
        if len(alike):
            return str(visits[alike[0]])
    recent = file.execute(
        "select one.visit, one.embedding, one.fields from searches one "
        "join searches first on first.id = one.visit "
        "where one.sender = ? and one.sender != '' and one.id != ? and one.at between ? and ? "
        "and first.at >= ? order by one.at desc",
        (
            search.sender,
            search.id,
            (search.at - _ONE_VISIT).timestamp(),
            # What another replica kept may have come later.
            (search.at + _ONE_VISIT).timestamp(),
            (search.at - _LONGEST_VISIT).timestamp(),
        ),
    )
    for visit, embedding, text in recent:
        other = np.frombuffer(embedding, "<f4")
        is_alike = len(other) == len(own) and float(other @ own) >= _IN_A_ROW
        if (
            is_alike
            and search.candidates
            and _is_same_thing(search.candidates[0], json.loads(text)["candidates"])
        ):
            return str(visit)
    return search.id


def _is_same_thing(best: KeptCandidate, others: Sequence[Sequence[Any]]) -> bool:
    if not others:
        return False
    other = KeptCandidate(*others[0])
    return best.id == other.id or (best.label is not None and best.label == other.label)


def _let_go(file: sqlite3.Connection, now: datetime, most: int | None, days: float) -> None:
    """Remove searches that are too old, with their answers, and unanswered ones beyond the sample."""
    file.execute("delete from searches where at < ?", ((now - timedelta(days=days)).timestamp(),))
    over = (now - _ONE_VISIT).timestamp()
    file.execute("update searches set sender = '' where at < ? and sender != ''", (over,))
    if most is not None:
        file.execute("insert or replace into wanted values ('most', ?)", (most,))
        file.execute(
            "delete from searches where key > (select key from searches order by key limit 1 offset ?) "
            "and id not in (select search from answers where number > 0) "
            "and (at < ? or id not in (select id from searches order by at desc limit ?))",
            (most - 1, (now - _RECENT).timestamp(), _MOST_RECENT),
        )
    for table in ("answers", "asked"):
        file.execute(f"delete from {table} where search not in (select id from searches)")

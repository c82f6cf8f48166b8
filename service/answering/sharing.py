"""Sharing of kept searches: each replica has its own file, and all read each other's batches in the home.

<gallery>/searches/events/<replica>/<number>.batch   written once; removed when another one says the same

What all batches say together is what every replica comes to, whatever it missed and in whichever order. A
batch that holds what was deleted on demand is written anew without it by whoever sees it first, also where
its replica is gone; so is one whose searches have gone by their age, or of which few are left.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Protocol, Self

from vicinal.indexer.errors import GalleryBusyError
from vicinal.indexer.storage.disk import hold_file, storing
from vicinal.indexer.storage.files import file_identity
from vicinal.indexer.storage.gallery_names import GALLERY_NAME
from vicinal.indexer.storage.home import Mirror
from vicinal.service.answering.event_batches import (
    MOST_TOGETHER,
    is_whole,
    join_visits,
    merge_batch,
    note_again,
    note_told,
    share,
    stop_sharing,
    write_batch,
)
from vicinal.service.answering.store import SearchProblems, SearchStore, read_search, visit_of
from vicinal.service.errors import SearchStoreError
from vicinal.service.process import BackgroundWork
from vicinal.service.settings import Settings

logger = logging.getLogger(__name__)
_EVENTS, _SUFFIX = "events", ".batch"
# Batches of fewer searches become one when they are so old.
_FEW, _SETTLED = MOST_TOGETHER // 2, timedelta(hours=1)
# Searches that have gone by their age leave the home so long after, those of a replica that is gone later.
_OWN_DELAY, _OTHERS_DELAY = timedelta(days=1), timedelta(days=2)
# Who asked is in a batch for as long, as in the file; in one of a replica that is gone a little longer.
_OWN_SENDERS, _OTHERS_SENDERS = timedelta(minutes=10), timedelta(minutes=90)
# Visits may be in two parts where searches came within that time.
_APART = timedelta(hours=1)

_SECONDS_BETWEEN_ROUNDS, _SECONDS_BETWEEN_LOOKS = 2.0, 3600.0


class Home(Protocol):
    """Home of the batches; `indexer.storage.home.Mirror` is one."""

    replica: str

    def put(self, path: Path, content: bytes) -> None:
        """Write a file, in the home and then here."""

    def erase(self, gone: Sequence[Path]) -> None:
        """Remove files with their content, in the home and then here."""


class _NoHome:
    """Home of a machine that is no replica any more."""

    replica = ""

    def put(self, path: Path, content: bytes) -> None:
        """Nobody is told of anything."""

    def erase(self, gone: Sequence[Path]) -> None:
        """Nobody is told of anything."""


class SharedSearches:
    """Kept searches of a gallery on a replica, and what all batches say; without a home what is left."""

    def __init__(self, store: SearchStore, home: Home | None = None) -> None:
        self.store = store
        self._home: Home = home or _NoHome()
        self._folder = store.path.parent / _EVENTS
        self._staging = store.path.with_name("told.partial")
        self._damaged: set[str] = set()

    def begin(self) -> None:
        """Note from now on what others are to be told of; the file is made where there is none."""
        with self.store.changing(make=True):
            pass
        with self.store.opened() as file:
            share(file)
        self._staging.unlink(missing_ok=True)

    def settle(self, *, most: int | None, days: float, thorough: bool = False) -> bool:
        """Take in what others did and tell them what was done here; False where another process is at it.

        Args:
            most: Searches of the sample; None leaves it as it is.
            days: Age at which searches go.
            thorough: Whether batches are made fewer too, and searches are read again that the sample lacks.
        """
        if not (self.store.exists or self._there()):
            return True
        try:
            with hold_file(self.store.path.with_name("events.lock"), "another process settles"):
                self.begin()
                has_come = self._take_in(days)
                if has_come or thorough:
                    self.store.let_go(most=most, days=days)
                if thorough and self._read_again(days):
                    self.store.let_go(most=most, days=days)
                self._replace(self._outdated(days) if thorough else self._deleted())
                return True
        except GalleryBusyError:
            return False

    def end(self, days: float) -> None:
        """Take in what the others did last, and share no more: this machine is on its own again."""
        self._take_in(days)
        with self.store.opened() as file:
            stop_sharing(file)
        shutil.rmtree(self._folder)

    def _there(self) -> dict[str, Path]:
        """Batches of all replicas by their names."""
        found = sorted(self._folder.glob(f"*/*{_SUFFIX}"))
        return {f"{one.parent.name}/{one.stem}": one for one in found}

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"

    def _take_in(self, days: float) -> bool:
        there = self._there()
        with self.store.opened() as file:
            known = {name for (name,) in file.execute("select name from batches")}
        self._forget(known - there.keys())
        has_come = False
        for name in sorted(there.keys() - known - self._damaged):
            has_come |= self._take(name, there[name], days)
        return has_come

    def _take(self, name: str, path: Path, days: float) -> bool:
        if not is_whole(path):
            # One that was removed meanwhile is none.
            if path.exists():
                self._damaged.add(name)
                logger.error("'%s' is damaged: kept searches in it are not shared from here", path)
            return False
        now = datetime.now(UTC)
        oldest = (now - timedelta(days=days)).timestamp()
        is_own = name.startswith(f"{self._home.replica}/")
        try:
            with self.store.changing(beside=path) as file:
                merged = merge_batch(file, name, now, oldest=oldest, is_own=is_own)
        except SearchStoreError:
            if path.exists():
                raise
            return False
        if merged.has_deleted:
            self.store.scrub()
        for search_id in merged.new:
            self._join_visits(search_id, now)
        return True

    def _join_visits(self, search_id: str, now: datetime) -> None:
        """Make one visit of what one replica and another kept before they heard of each other."""
        # One at a time: all that are kept are compared, and who keeps one waits.
        with self.store.changing() as file:
            search = read_search(file, search_id)
            if search is None or search.at < now - _APART:
                return
            found = visit_of(file, search)
            if found != search_id and join_visits(file, search.visit, found):
                note_again(file, search_id)

    def _read_again(self, days: float) -> bool:
        """Take batches in once more that hold searches of the sample which are not here: where some were
        deleted, others that were let go come in their place.
        """
        oldest = (datetime.now(UTC) - timedelta(days=days)).timestamp()
        with self.store.changing() as file:
            lacking = file.execute(
                "select distinct batch from held where key <= ? and at >= ? "
                "and search not in (select id from searches) and search not in (select search from gone)",
                (self.store.sample_key(), oldest),
            ).fetchall()
            # What no batch holds any more, others are told again.
            file.execute(
                "insert or ignore into outbox (search) select id from searches "
                "union select search from different except select search from held where at is not null"
            )
        self._forget([name for (name,) in lacking])
        return bool(lacking) and self._take_in(days)

    def _deleted(self) -> list[str]:
        """Batches that hold what was deleted on demand."""
        with self.store.opened() as file:
            found = file.execute(
                "select distinct batch from held where at is not null "
                "and (search in (select search from gone) "
                "or at < (select coalesce(max(value), 0) from wanted where name = 'deleted_before'))"
            )
            return [name for (name,) in found]

    def _outdated(self, days: float) -> list[str]:
        """These, and batches that are to be written anew for their age, or because little of them is left."""
        now = datetime.now(UTC)
        settled, oldest = (now - _SETTLED).timestamp(), now - timedelta(days=days)
        with self.store.changing() as file:
            file.execute("delete from gone where at < ?", ((oldest - _OTHERS_DELAY).timestamp(),))
            file.execute("delete from same_visits where as_visit not in (select visit from searches)")
            found = file.execute(
                "select name, is_own, batches.at, has_senders, count(*), count(searches.id), min(held.at) "
                "from batches join held on held.batch = name "
                "left join searches on searches.id = held.search group by name"
            ).fetchall()
        few, old = [], []
        for name, is_own, at, has_senders, n, n_left, first in found:
            senders, delay = (_OWN_SENDERS, _OWN_DELAY) if is_own else (_OTHERS_SENDERS, _OTHERS_DELAY)
            is_settled = is_own and at < settled
            if (
                (has_senders and at < (now - senders).timestamp())
                or (first is not None and first < (oldest - delay).timestamp())
                or (is_settled and 2 * n_left < n >= _FEW)
            ):
                old.append(name)
            elif is_settled and n < _FEW:
                few.append(name)
        return [*dict.fromkeys([*self._deleted(), *old, *(few if len(few) > 1 else [])])]

    def _replace(self, names: Collection[str]) -> None:
        """Tell what was noted, and anew what some batches say that still holds; these are removed."""
        with self.store.changing() as file:
            for name in names:
                file.execute(
                    "insert into outbox (search) select search from held where batch = ? "
                    "and search not in (select search from outbox)",
                    (name,),
                )
        while self._tell():
            pass
        if names:
            self._home.erase([self._path(one) for one in names])
        self._forget(names)

    def _tell(self) -> bool:
        """Write the next batch; False where nothing is noted any more."""
        name = f"{self._home.replica}/{time.time_ns() // 1000:016d}"
        with self.store.opened() as file:
            if not file.execute("select 1 from outbox").fetchone():
                return False
            told = write_batch(file, self._staging)
        # Of searches that were let go meanwhile nothing is told.
        if told.held:
            with storing(f"'{self._staging}'"):
                content = self._staging.read_bytes()
            self._home.put(self._path(name), content)
        self._staging.unlink()
        with self.store.changing() as file:
            note_told(file, told, name, datetime.now(UTC))
        return True

    def _forget(self, names: Collection[str]) -> None:
        with self.store.changing() as file:
            for name in names:
                file.execute("delete from batches where name = ?", (name,))
                file.execute("delete from held where batch = ?", (name,))


class SearchSharing(BackgroundWork):
    """Shares the kept searches of a replica's galleries while it is entered; does nothing without a home."""

    name = "shared searches"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._home = Mirror.of(settings.data_dir)
        self._shared: dict[Path, SharedSearches] = {}
        # Look of a gallery's files when it was last settled.
        self._states: dict[Path, tuple[tuple[int, ...], ...]] = {}
        self._problems = SearchProblems("shared")

    @property
    def problems(self) -> list[str]:
        """Reasons why searches of galleries are not shared."""
        return self._problems.told

    def __enter__(self) -> Self:
        if self._home is None:
            for folder in self._folders():
                # What is left of a home that this machine was a replica of.
                if (folder / _EVENTS).exists():
                    end = partial(self._opened(folder).end, self._settings.keep_searches_days)
                    self._problems.tried(folder.parent, end)
            return self
        # Before anyone answers: answers are numbered otherwise from then on.
        for folder in self._folders():
            if (shared := self._opened(folder)).store.exists:
                self._problems.tried(folder.parent, shared.begin)
        return super().__enter__()

    def _work(self) -> None:
        looks_at = time.monotonic()
        while True:
            with self._changed:
                is_over = self._changed.wait_for(lambda: self._is_stopping, _SECONDS_BETWEEN_ROUNDS)
            is_thorough = time.monotonic() >= looks_at
            if is_thorough:
                looks_at = time.monotonic() + _SECONDS_BETWEEN_LOOKS
            for folder in self._folders():
                self._settle(folder, thorough=is_thorough)
            if is_over:
                return

    def _settle(self, folder: Path, *, thorough: bool) -> None:
        state = _state_of(folder)
        if thorough or state != self._states.get(folder):
            settle = partial(
                self._opened(folder).settle,
                most=self._settings.keep_searches or None,
                days=self._settings.keep_searches_days,
                thorough=thorough,
            )
            if self._problems.tried(folder.parent, settle):
                self._states[folder] = state

    def _folders(self) -> list[Path]:
        found = self._settings.galleries_path.glob("*/searches")
        return [
            one for one in found if GALLERY_NAME.fullmatch(one.parent.name) and not one.parent.is_symlink()
        ]

    def _opened(self, folder: Path) -> SharedSearches:
        if folder not in self._shared:
            self._shared[folder] = SharedSearches(SearchStore(folder.parent), self._home)
        return self._shared[folder]


def _state_of(folder: Path) -> tuple[tuple[int, ...], ...]:
    events = folder / _EVENTS
    paths = [*folder.glob("searches.sqlite*"), events, *events.glob("*")]
    return tuple(file_identity(one) for one in paths if not one.name.endswith("-shm"))

"""Follower: lay what the database lists of a home's galleries into a data folder.

A gallery is laid when it is first asked for, and followed from then on. Its files are those rows of `files`
that changed after what lies here; what is listed no more goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from vicinal.calibration.frozen import Frozen
from vicinal.indexer.disk import files_below, hold_file, sha256_of_file
from vicinal.indexer.errors import HomeError
from vicinal.indexer.state import DatabaseAwayError, Rows, State, state_of
from vicinal.indexer.state.schema import files, galleries
from vicinal.indexer.state.state import shared_state
from vicinal.indexer.storage.home import places
from vicinal.indexer.storage.home.laying import LEFT, Layer, MissingObjectError, NotFetchedError, Sources
from vicinal.indexer.storage.home.ledger import Laid, Ledger, Row, identity_of_file
from vicinal.indexer.storage.home.marks import FOLDER
from vicinal.indexer.storage.home.places import WHOLE, sha256_of
from vicinal.indexer.storage.home.stores import HomeStore

# A gallery's lock is held while files are laid, never while any are fetched or brought up.
_PATIENCE = 60.0
MOST_TRIES = 100
# A database that was found away is asked again by who follows it, and by nobody else for so long.
_AWAY_SECONDS = 3.0


class Lag(Frozen):
    """Delay of a mirror: seconds since all that is followed lay here, None before it ever did."""

    seconds: float | None
    number: int


class Follower:
    """A home, and a data folder with what lies in it; `on_fetch` is told how many bytes came."""

    def __init__(self, data_dir: Path, home: str, store: HomeStore) -> None:
        shared = shared_state(data_dir)
        if shared is None:
            raise HomeError(f"'{data_dir}' is a mirror of home '{home}': set its VICINAL_DATABASE, too")
        self.data_dir, self.home, self.store, self.shared = data_dir, home, store, shared
        self.on_fetch: Callable[[int], None] = lambda _: None
        self.folder = data_dir / FOLDER
        self.ledger = Ledger(self.folder / "ledger.sqlite")
        self.layer = Layer(data_dir, self.ledger, store, self.folder / "objects", lambda n: self.on_fetch(n))
        # When all that is followed was last known to lie here, and when the database was last found away.
        self._current = self._away = -float("inf")
        # Since when a look has no answer.
        self._asked = float("inf")
        # The last look, and the changes that did not lie here then.
        self._looked: tuple[float, dict[str, tuple[int, int]]] = -float("inf"), {}

    def lag(self) -> Lag:
        """Delay of the folder behind the home, as this process knows it."""
        number = max((one.seen for one in self.ledger.galleries().values()), default=0)
        seconds = time.monotonic() - self._current
        return Lag(seconds=None if seconds == float("inf") else seconds, number=number)

    def require_home(self) -> None:
        """Refuse a change at once where the database was just found away, or is waited for by who follows."""
        now = time.monotonic()
        if now - self._away < _AWAY_SECONDS or now - self._asked > _AWAY_SECONDS:
            raise DatabaseAwayError(f"{self.shared.database.place} does not answer")

    def follow(self) -> set[str]:
        """Look what changed in the home; names of the galleries that lie here and are behind."""
        self._asked = min(self._asked, time.monotonic())
        try:
            self.shared.follow()
        except DatabaseAwayError:
            self._away = time.monotonic()
            raise
        finally:
            self._asked = float("inf")
        self._away, looked = -float("inf"), time.monotonic()
        now, laid = self.shared.galleries(), self.ledger.galleries()
        late = {name: now.get(name, (0, 0)) for name, one in laid.items() if now.get(name, (0, 0)) != one}
        at, before = self._looked
        # A gallery that changes all the time is late at every look, but not by what the one before found.
        if all(name not in laid or laid[name].seen >= number for name, (_, number) in before.items()):
            self._current = looked if not late else max(at, self._current)
        self._looked = looked, late
        return set(late)

    def pull(self) -> bool:
        """Bring here what changed of the galleries that lie here; tell whether anything did."""
        late = self.follow() | ({WHOLE} if self.ledger.laid(WHOLE) is None else set())
        self._follow_names(late)
        problems: list[HomeError] = []
        for gallery in sorted(late):
            # One that cannot be fetched holds up no other.
            try:
                if gallery == WHOLE or self.ledger.laid(gallery) is not None:
                    self.lay(gallery)
            except HomeError as error:
                problems.append(error)
        if problems:
            raise problems[0]
        if missing := self.ledger.missing():
            self.relay(missing)
        return bool(late)

    def _follow_names(self, late: set[str]) -> None:
        """Rename and remove folders of galleries that have other names by now, or are gone."""
        names = {key: name for name, (key, _) in self.shared.galleries().items()}
        for gallery in sorted(late):
            laid = self.ledger.laid(gallery)
            if laid is None or names.get(laid.key) == gallery:
                continue
            with self.locked(gallery):
                if self.ledger.laid(gallery) != laid:
                    continue
                name, folder = names.get(laid.key), places.folder_of(gallery)
                if name is None or self.ledger.laid(name) is not None:
                    self.layer.drop(folder)
                    self.ledger.forget(gallery, folder)
                else:
                    self.layer.move(folder, places.folder_of(name))
                    self.ledger.rename(gallery, name, folder, places.folder_of(name))

    def lay(self, gallery: str, sources: Sources | None = None) -> None:
        """Bring a gallery here as the database lists it now; nothing is done where it has none of the name.

        Raises:
            HomeError: A file is missing in the home, or is not what it was, or the home does not answer.
            DatabaseAwayError: The database does not answer.
        """
        number, sources = -1, sources or {}
        for _ in range(MOST_TRIES):
            laid = self.ledger.laid(gallery)
            with self.state(gallery).reading() as rows:
                listed = _listed(rows, gallery, laid, self.ledger)
            if laid is not None and (listed is None or listed.laid.key != laid.key):
                # It has another name by now, or is gone.
                self.follow()
                self._follow_names({gallery})
                continue
            if listed is None:
                return
            # Who asks for rows of it from now on finds these.
            self.shared.note(gallery, *listed.laid)
            if listed.laid == laid:
                return
            try:
                self.layer.fetch(listed.rows, listed.gone, sources)
                with self.locked(gallery):
                    if self.ledger.laid(gallery) == laid:
                        done = self.layer.lay(listed.rows, listed.gone, sources)
                        self.ledger.take(gallery, listed.laid, done, listed.gone)
                        return
            except MissingObjectError:
                # Replaced since, and removed: what counts is a later state.
                if listed.laid.seen == number:
                    raise
                number = listed.laid.seen
            except NotFetchedError:
                continue

    def relay(self, rows: Sequence[Row]) -> None:
        """Lay files again that do not lie here as they should."""
        for gallery in {places.gallery_of(row.path) for row in rows}:
            wrong = {row.path: row for row in rows if places.gallery_of(row.path) == gallery}
            for _ in range(MOST_TRIES):
                with suppress(NotFetchedError):
                    self.layer.fetch(wrong, set(), {})
                    with self.locked(gallery):
                        # Those that are as they were noted are still wanted.
                        now = {place: row for place, row in wrong.items() if self.ledger.row(place) == row}
                        self.ledger.note(self.layer.lay(now, set(), {}))
                    break

    def mend(self, place: str) -> bool:
        """Fetch again what of a file or folder differs from the home; tell whether any did, or HomeError."""
        named = self.ledger.row(place)
        rows = {place: named} if named is not None else self.ledger.rows(place)
        wrong = [row for row in rows.values() if not self._is_whole(row)]
        if not wrong:
            return False
        # Copies of a gallery link the same files.
        alike = (one for row in wrong for one in self.ledger.with_content(sha256_of(row.object)))
        known = {row.path: row for row in [*wrong, *(one for one in alike if not self._is_whole(one))]}
        wanting = [row._replace(identity="") for row in known.values()]
        for row in wanting:
            with self.locked(places.gallery_of(row.path)):
                if self.ledger.row(row.path) == known[row.path]:
                    self.ledger.note([row])
        self.relay(wanting)
        return True

    def _is_whole(self, row: Row) -> bool:
        path = self.data_dir / row.path
        if row.identity == LEFT and not path.exists():
            return True
        try:
            return sha256_of_file(path) == sha256_of(row.object)
        except OSError:
            return False

    def mend_table(self, gallery: str) -> None:
        """Bring a gallery's table back to what the home says; only who holds its lease may do it."""
        self.lay(gallery)
        with self.locked(gallery):
            came, gone = self.table_changes(gallery)
            found = [row for place in [*came, *gone] if (row := self.ledger.row(place)) is not None]
            wrong = [row._replace(identity="") for row in found]
            for place in came.keys() - {row.path for row in wrong}:
                (self.data_dir / place).unlink(missing_ok=True)
            self.ledger.note(wrong)
        self.relay(wrong)

    def table_changes(self, gallery: str) -> tuple[dict[str, Path], list[str]]:
        """Files of a gallery's table that are not as the home has them, and those that are gone."""
        folder = places.folder_of(gallery)
        table, seals = f"{folder}/{places.TABLE}", f"{folder}/{places.SEALS}"
        known = {place: row.identity for place, row in self.ledger.rows(table).items()}
        if (row := self.ledger.row(seals)) is not None:
            known[seals] = row.identity
        found = set(files_below(str(self.data_dir / table), table))
        if (self.data_dir / seals).exists():
            found.add(seals)
        came = {place: self.data_dir / place for place in found - known.keys() if places.is_kept(place)}
        for place in found & known.keys():
            if not places.has_unique_name(place):
                path = self.data_dir / place
                if known[place] != identity_of_file(path):
                    came[place] = path
        return came, sorted(known.keys() - found)

    def state(self, gallery: str) -> State:
        """State of a gallery of the home, or of the whole home."""
        return state_of(self.data_dir / places.folder_of(gallery))

    @contextmanager
    def locked(self, gallery: str) -> Iterator[None]:
        """Hold the lock of who lays files of a gallery here."""
        busy = f"gallery '{gallery}' is being laid in '{self.data_dir}' by a process that hangs"
        with hold_file(self.folder / "leases" / f"{gallery}.laying", busy, patience=_PATIENCE):
            yield


@dataclass(frozen=True)
class _Listed:
    """Changes of a gallery since what lies here: files that came or are others, and those that went."""

    laid: Laid
    rows: Mapping[str, Row]
    gone: Set[str]


def _listed(rows: Rows, gallery: str, laid: Laid | None, ledger: Ledger) -> _Listed | None:
    """Changes of a gallery; None where the database does not have it."""
    asked = select(galleries.c.key, galleries.c.changed).where(galleries.c.name == gallery)
    now = rows.connection.execute(asked).first()
    if now is None:
        return None
    seen = 0 if laid is None else laid.seen
    came = {
        place: Row(place, row.object, row.bytes)
        for row in rows.all(files, files.c.changed > seen)
        for place in [places.place_in(gallery, row.path)]
    }
    return _Listed(Laid(*now), came, _gone(rows, gallery, came.keys(), ledger))


def _gone(rows: Rows, gallery: str, came: Set[str], ledger: Ledger) -> Set[str]:
    """Files that lie here and are listed no more; they are only looked for where the number says so."""
    known = ledger.paths(gallery) | came
    if rows.count(files) == len(known):
        return set()
    return known - {places.place_in(gallery, path) for path in rows.values(files.c.path)}

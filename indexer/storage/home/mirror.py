"""Mirror: a data folder that follows a home, and brings every change of its own there first.

<data_dir>/mirror/home.json       which home, and which replica this is; every command obeys it
<data_dir>/mirror/ledger.sqlite   what the home holds, and what of it lies here
<data_dir>/mirror/objects/        what was fetched and is about to be laid
<data_dir>/mirror/away            why the last look at the log failed, if it did
<data_dir>/mirror/looked          when the log was last read to its end, on the clock since this machine began

A small file is written to the home before it is seen here. A gallery's table is changed here, by who holds
the gallery's lease, and brought up with the pointer to it. Nobody compares clocks: a lease is lost when its
holder gives no sign of life for some seconds of the clock of who waits for it, and the log decides who was
first.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from vicinal.calibration.frozen import Frozen
from vicinal.indexer.errors import (
    GalleryBusyError,
    GalleryExistsError,
    HomeError,
    OvertakenError,
    StorageError,
)
from vicinal.indexer.storage.disk import (
    files_below,
    hold_file,
    make_folder,
    replace_file,
    sha256_of_file,
    storing,
)
from vicinal.indexer.storage.home import places
from vicinal.indexer.storage.home.laying import Batch, Layer, MissingObjectError, NotFetchedError
from vicinal.indexer.storage.home.ledger import Ledger, Row, identity_of_file
from vicinal.indexer.storage.home.log import (
    ENTRIES_BETWEEN_CHECKPOINTS,
    LINK,
    Entry,
    Lease,
    Log,
    sha256_of,
)
from vicinal.indexer.storage.home.marks import FOLDER, Mark, identity_in, mark_in, mark_path
from vicinal.indexer.storage.home.stores import MARK, HomeStore, open_store, require_exclusive
from vicinal.indexer.storage.home.uploads import Upload
from vicinal.models.configs.sealed_json import sealed

logger = logging.getLogger(__name__)
# Without a sign of life for so long, a holder has lost its lease.
LEASE_SECONDS = 10.0
_SECONDS_BETWEEN_SIGNS = 2.0
_POLL_SECONDS = 0.05
# A mirror's lock is held while files are laid, never while any are fetched or brought up.
_PATIENCE = 60.0
_MOST_ROWS = 20_000
_SECONDS_BETWEEN_PROOFS = 60.0
_SECONDS_BETWEEN_OWN = 10.0
_MOST_TRIES = 100
# Who follows the home finds it away, or back, that often, however long a call takes.
_AWAY_SECONDS = 15.0
# Of the moment of the last look, as it is written.
_WIDTH = 24


class Lag(Frozen):
    """Delay of a mirror: seconds since it had read the log to its end, None before it ever did."""

    seconds: float | None
    number: int


class HomeContents(Frozen):
    """Description of a home: last entry, files, who wrote them, and which replica holds each lease."""

    number: int
    n_files: int
    n_bytes: int
    replicas: list[str]
    holders: dict[str, str]


@dataclass
class _Hold:
    """A lease that this thread holds."""

    scope: str
    token: int
    holder: str
    ended: threading.Event = field(default_factory=threading.Event)


class _Thread(threading.local):
    """Leases and locks of the present thread."""

    def __init__(self) -> None:
        self.holds: list[_Hold] = []
        # Last entry known when each lock was taken.
        self.bases: list[int] = []


class Mirror:
    """A data folder that follows a home; see `join`, `of`."""

    _opened: ClassVar[dict[tuple[int, Path], Mirror]] = {}

    def __init__(self, data_dir: Path, mark: Mark, store: HomeStore) -> None:
        self.data_dir = data_dir
        self.home = mark.home
        self.replica = mark.replica
        self.identity = mark.identity
        # Told of the number of an entry that was created here, of bytes that came, and of lost races.
        self.on_commit: Callable[[int], None] = _nothing
        self.on_fetch: Callable[[int], None] = _nothing
        self.on_lost_race: Callable[[], None] = _nothing
        self.log = Log(store)
        self._store = store
        self._folder = data_dir / FOLDER
        self._ledger = Ledger(self._folder / "ledger.sqlite")
        self._layer = Layer(data_dir, self._ledger, store, self._folder / "objects", self._count)
        self._thread = _Thread()
        # Signs of life by scope, and since when each has stood still.
        self._watched: dict[str, tuple[int, bytes | None, float, bool]] = {}
        self._proven = self._brought = -float("inf")

    @classmethod
    def join(cls, data_dir: Path, home: str) -> Mirror:
        """Make a data folder a mirror of a home, or open it as one: what the home holds is brought here, and
        galleries that only the folder holds are brought there.

        Raises:
            HomeError: The home does not answer, takes a name twice, or the folder belongs to another.
            GalleryExistsError: Both hold a gallery of one name.
        """
        data_dir = _spelled(data_dir)
        store = open_store(home)
        if isinstance(store_path := getattr(store, "path", None), Path):
            make_folder(store_path)
            if data_dir in [store_path, *store_path.parents] or store_path in data_dir.parents:
                raise HomeError(f"home '{home}' and data folder '{data_dir}' must lie apart")
        require_exclusive(store)
        store.put_if_absent(MARK, sealed(json.dumps({"identity": secrets.token_hex(8), "format": 1})))
        identity = identity_in(store)
        known = mark_in(data_dir)
        if known is not None and known.identity != identity:
            raise HomeError(
                f"'{data_dir}' is a mirror of home '{known.home}', not of '{home}': "
                f"give each home a data folder of its own, or remove '{data_dir / FOLDER}'"
            )
        replica = secrets.token_hex(4) if known is None else known.replica
        mark = Mark(home=store.address, identity=identity, replica=replica)
        make_folder(data_dir / FOLDER)
        mirror = cls(data_dir, mark, store)
        mirror._begin(is_new=known is None)
        if known != mark:
            replace_file(mark_path(data_dir), sealed(mark.model_dump_json()))
        cls._opened.pop((os.getpid(), data_dir), None)
        return mirror

    @classmethod
    def of(cls, path: Path) -> Mirror | None:
        """The mirror that a path lies in; None where it lies in none."""
        path = _spelled(path)
        for folder in (path, *path.parents):
            # Asked for at every write.
            if (folder / FOLDER / MARK).exists():
                return cls._open(folder)
        return None

    @classmethod
    def keeping(cls, path: Path) -> Mirror | None:
        """The mirror that a file lies in, where its home keeps the file; else None."""
        mirror = cls.of(path)
        return mirror if mirror is not None and places.is_kept(mirror.place_of(path)) else None

    @classmethod
    def _open(cls, data_dir: Path) -> Mirror:
        key = (os.getpid(), data_dir)
        opened = cls._opened.get(key)
        if opened is None:
            mark = mark_in(data_dir)
            if mark is None:
                raise HomeError(f"'{mark_path(data_dir)}' is damaged: join the home again")
            opened = cls._opened.setdefault(key, cls(data_dir, mark, open_store(mark.home)))
        return opened

    def place_of(self, path: Path) -> str:
        """Path of a file as the home knows it."""
        return _spelled(path).relative_to(self.data_dir).as_posix()

    # Following

    def pull(self, *, brings_own: bool = False) -> int:
        """Bring what is new in the home here, and own counts there, from time to time or now.

        Returns:
            Number of the last entry.
        """
        try:
            self._catch_up()
        except HomeError as error:
            with suppress(OSError):
                self._away.write_text(str(error), encoding="utf-8")
            raise
        self._away.unlink(missing_ok=True)
        missing = self._ledger.missing()
        if missing:
            self._relay(missing)
        if brings_own or time.monotonic() - self._brought > _SECONDS_BETWEEN_OWN:
            self._brought = time.monotonic()
            self._bring_own()
        return self._ledger.applied()

    def lag(self) -> Lag:
        """Delay of the folder behind the home, by when any process last read the log to its end."""
        seconds = None
        with suppress(OSError, ValueError):
            seconds = time.monotonic() - float(self._looked.read_text())
        return Lag(seconds=None if seconds is None or seconds < 0 else seconds, number=self._ledger.applied())

    def require_home(self) -> None:
        """Refuse a change at once where the last look of a process that pulls has found the home away.

        Raises:
            HomeError: It was, a moment ago.
        """
        try:
            age, problem = time.time() - self._away.stat().st_mtime, self._away.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        if 0.0 <= age < _AWAY_SECONDS and problem:
            raise HomeError(problem)

    # Changing

    def put(self, path: Path, content: bytes) -> None:
        """Write a small file, in the home and then here."""
        place = self.place_of(path)
        if places.is_table(place) and self._hold_of(places.gallery_of(place)) is not None:
            replace_file(path, content)
        elif places.is_own(place):
            replace_file(path, content, durable=False)
        else:
            self.put_together({path: content})

    def put_together(self, files: Mapping[Path, bytes], gone: Iterable[Path] = ()) -> None:
        """Write small files and remove others, in one step in the home and then here."""
        self._commit(
            {self.place_of(path): content for path, content in files.items()},
            [self.place_of(path) for path in gone],
        )

    def erase(self, gone: Iterable[Path]) -> None:
        """Remove files in the home and then here, and at once their content, whoever is behind."""
        known = [self._ledger.row(self.place_of(path)) for path in gone]
        rows = [row for row in known if row is not None and row.object]
        self._commit({}, [row.path for row in rows])
        # Who is behind goes on from here where it finds none.
        self.log.keep(self._ledger.checkpoint())
        for row in rows:
            others = self._ledger.with_content(sha256_of(row.object))
            if all(other.object != row.object for other in others):
                self._store.delete(f"objects/{row.object}")

    def put_folder(self, source: Path, target: Path) -> None:
        """Let the files of a folder beside appear as another, in place of what is there."""
        place = self.place_of(target)
        files = [path for path in sorted(source.rglob("*")) if path.is_file()]
        came = {f"{place}/{path.relative_to(source).as_posix()}": path for path in files}
        kept = {name: path for name, path in came.items() if places.is_kept(name)}
        self._commit(kept, sorted(self._ledger.rows(place).keys() - kept.keys()))
        for name in came.keys() - kept.keys():
            with storing(f"'{target}'"):
                make_folder((self.data_dir / name).parent)
                came[name].replace(self.data_dir / name)

    def bring(self, folder: Path) -> None:
        """Bring the files of a folder up that was written here alone, and is finished."""
        self._bring_up(self.place_of(folder))

    def publish(self, files: Mapping[Path, bytes], gone: Iterable[Path] = ()) -> None:
        """Write small files and remove others, also those below folders, in one step with all that was
        changed in the table by who holds the lease.
        """
        place = self.place_of(next(iter(files)))
        self._commit(
            {self.place_of(path): content for path, content in files.items()},
            self._below(gone),
            gallery=places.gallery_of(place),
        )

    def drop(self, paths: Iterable[Path]) -> None:
        """Remove files, and those below folders, in the home and then here."""
        if gone := self._below(paths):
            self._commit({}, gone)

    def link(self, path: Path, target: str) -> None:
        """Let an alias stand for a gallery."""
        self._commit({self.place_of(path): f"{LINK}{target}"}, ())

    def move_gallery(self, gallery: str, target: str) -> None:
        """Give a gallery another name."""
        self._commit({}, (), kind="move", scope=gallery, target=target)

    def drop_gallery(self, gallery: str) -> None:
        """Remove a gallery."""
        self._commit({}, (), kind="drop", scope=gallery)

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Remember what is known now: a file that another replica writes after it is not written here."""
        # Where the home does not answer, nothing can be written either.
        with suppress(HomeError):
            self.require_home()
            self._catch_up()
        self._thread.bases.append(self._ledger.applied())
        try:
            yield
        finally:
            self._thread.bases.pop()

    @contextmanager
    def changing(self, scope: str, *, patience: float = 0.0) -> Iterator[None]:
        """Hold the lease of a gallery, or of another scope: its table may be changed, and is brought up to
        date before, and in the home after. What was changed is put back where that fails.

        Raises:
            GalleryBusyError: Another replica holds it for longer than `patience` seconds.
            HomeError: The home does not answer.
            OvertakenError: The lease was lost meanwhile.
        """
        if self._hold_of(scope) is not None:
            yield
            return
        with ExitStack() as stack:
            make_folder(self._folder / "leases")
            busy = f"gallery '{scope}' is being changed by another process"
            stack.enter_context(hold_file(self._folder / "leases" / f"{scope}.lock", busy, patience=patience))
            hold = self._take(scope, patience)
            self._thread.holds.append(hold)
            self._thread.bases.append(hold.token)
            stack.callback(self._end, hold)
            threading.Thread(target=self._show_life, args=[hold], name="lease", daemon=True).start()
            begun = self._folder / "leases" / f"{scope}.begun"
            try:
                # Where whoever was here before came to no end, files lie here that nobody answered for.
                if begun.exists():
                    self._mend_table(scope)
                begun.touch()
                yield
                self._commit({}, (), gallery=scope, is_needed=False)
                begun.unlink()
            except BaseException:
                self._put_back(scope, begun)
                raise

    # Leases

    def _take(self, scope: str, patience: float) -> _Hold:
        self.require_home()
        deadline, holder = time.monotonic() + patience, f"{self.replica}:{os.getpid()}:{secrets.token_hex(4)}"
        while True:
            self._catch_up()
            before = self._ledger.lease(scope)
            still, is_alive = (0.0, False)
            # Of this machine's processes one alone comes here: the holder before it is gone.
            is_free = before is None or not before.is_held or before.replica == self.replica
            if before is not None and not is_free:
                still, is_alive = self._watch(scope, before)
            if is_free or still > LEASE_SECONDS:
                entry = self._next(kind="lease", scope=scope, holder=holder)
                if self._try(entry, {}):
                    return _Hold(scope, entry.number, holder)
                continue
            # Who may be dead is waited for, however short the patience is.
            if is_alive and time.monotonic() > deadline:
                gallery = scope.partition(".")[0]
                raise GalleryBusyError(
                    f"gallery '{gallery}' is being written through another replica: wait for it"
                )
            time.sleep(_POLL_SECONDS)

    def _watch(self, scope: str, lease: Lease) -> tuple[float, bool]:
        """Seconds, of the clock of this process alone, since a holder's sign of life was seen to stand still,
        and whether it was ever seen to move.
        """
        sign, now = self._store.get(_sign(scope)), time.monotonic()
        token, known, since, is_alive = self._watched.get(scope, (0, None, now, False))
        if token != lease.token:
            # The sign may be that of the holder before.
            since, is_alive = now, False
        elif known != sign:
            since, is_alive = now, True
        self._watched[scope] = (lease.token, sign, since, is_alive)
        return now - since, is_alive

    def _end(self, hold: _Hold) -> None:
        """Give a lease back."""
        hold.ended.set()
        self._thread.holds.remove(hold)
        self._thread.bases.remove(hold.token)
        try:
            for _ in range(_MOST_TRIES):
                self._catch_up()
                lease = self._ledger.lease(hold.scope)
                if lease is None or lease.token != hold.token or not lease.is_held:
                    return
                entry = self._next(kind="release", scope=hold.scope, token=hold.token, holder=hold.holder)
                if self._try(entry, {}):
                    return
        except StorageError as error:
            # Without signs of life it is lost in some seconds.
            logger.warning("%s; the lease of '%s' is not given back", error, hold.scope)

    def _show_life(self, hold: _Hold) -> None:
        n_signs = 0
        while not hold.ended.wait(_SECONDS_BETWEEN_SIGNS):
            n_signs += 1
            with suppress(HomeError):
                self._store.put(_sign(hold.scope), f"{hold.token} {n_signs}".encode())

    def _hold_of(self, scope: str) -> _Hold | None:
        return next((one for one in self._thread.holds if one.scope == scope), None)

    # Reading

    def _catch_up(self) -> None:
        """Take all entries that are new."""
        jumps = False
        while batch := self._unread(jumps=jumps):
            jumps = False
            for _ in range(_MOST_TRIES):
                try:
                    self._layer.fetch(batch, {})
                except MissingObjectError:
                    # Replaced since, and removed: what counts is a later state.
                    if self.log.newest_checkpoint() <= batch.number:
                        raise
                    jumps = True
                    break
                try:
                    with self._locked():
                        # Another process of this machine may have gone on.
                        if self._ledger.applied() == batch.base:
                            self._layer.lay(batch, {})
                    break
                except NotFetchedError:
                    continue
        self._note_look()

    def _note_look(self) -> None:
        # In place: threads and processes look at the same time, and none has to lock the others out.
        with storing(f"'{self._looked}'"):
            descriptor = os.open(self._looked, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(descriptor, f"{time.monotonic():{_WIDTH}.6f}".encode(), 0)
            finally:
                os.close(descriptor)

    def _unread(self, *, jumps: bool) -> Batch | None:
        """The next entries, or with `jumps` the newest checkpoint, as one step; None where there are none."""
        applied = self._ledger.applied()
        entry = self.log.read(applied + 1)
        now = time.monotonic()
        if jumps or entry is not None or now - self._proven > _SECONDS_BETWEEN_PROOFS:
            checkpoint = None
            if jumps or not self.log.is_there(applied):
                checkpoint = self.log.newest_checkpoint()
            elif entry is None:
                newest = self.log.newest_checkpoint()
                checkpoint = newest if newest > applied else None
            if checkpoint is not None and checkpoint > applied:
                known = self._ledger.rows()
                return Batch.of_checkpoint(self.log.checkpoint(checkpoint), known, applied)
            if checkpoint is not None:
                raise HomeError(
                    f"home '{self.home}' does not have entry {applied} any more, which '{self.data_dir}' "
                    "rests on: bring its log back from a backup"
                )
            self._proven = now
        if entry is None:
            return None
        batch = Batch(applied, applied)
        while entry is not None and len(batch.rows) < _MOST_ROWS:
            alone = entry.kind in ("move", "drop")
            if alone and batch.number > applied:
                break
            batch.add(entry, {entry.scope: self._ledger.lease(entry.scope)})
            if alone:
                break
            entry = self.log.read(entry.number + 1)
        return batch

    def _relay(self, rows: Sequence[Row]) -> None:
        """Lay files again that do not lie here as they should."""
        for _ in range(_MOST_TRIES):
            with suppress(NotFetchedError):
                self._layer.fetch(Batch(0, 0, {row.path: row for row in rows}), {})
                with self._locked():
                    # Those that are as they were noted are still wanted.
                    now = [one for row in rows if (one := self._ledger.row(row.path)) and one.object]
                    self._layer.mend([one for one in now if one.object in {row.object for row in rows}], {})
                return

    def _mend_table(self, gallery: str) -> None:
        """Bring a gallery's table back to what the home says; only who holds its lease may do it."""
        with self._locked():
            came, gone = self._table_changes(gallery)
            rows = {place: self._ledger.row(place) for place in [*came, *gone]}
            wrong = [row._replace(identity="") for row in rows.values() if row is not None and row.object]
            for place in came.keys() - {row.path for row in wrong}:
                (self.data_dir / place).unlink(missing_ok=True)
            self._ledger.note(wrong)
        if wrong:
            self._relay(wrong)

    def _put_back(self, scope: str, begun: Path) -> None:
        try:
            self._mend_table(scope)
            begun.unlink(missing_ok=True)
        except StorageError as error:
            # The next one who reads the log, or changes the gallery, does it.
            logger.warning("%s; gallery '%s' is put back later", error, scope)

    def _table_changes(self, gallery: str) -> tuple[dict[str, Path], list[str]]:
        """Files of a gallery's table that are not as the home has them, and those that are gone."""
        folder = f"{places.GALLERIES}/{gallery}"
        known = self._ledger.table(f"{folder}/{places.TABLE}", f"{folder}/{places.SEALS}")
        found = set(files_below(str(self.data_dir / folder / places.TABLE), f"{folder}/{places.TABLE}"))
        if (self.data_dir / folder / places.SEALS).exists():
            found.add(f"{folder}/{places.SEALS}")
        came = {place: self.data_dir / place for place in found - known.keys() if places.is_kept(place)}
        for place in found & known.keys():
            if not places.has_unique_name(place):
                path = self.data_dir / place
                if known[place] != identity_of_file(path):
                    came[place] = path
        return came, sorted(known.keys() - found)

    # Writing

    def _commit(
        self,
        came: Mapping[str, bytes | Path | str],
        gone: Iterable[str],
        *,
        gallery: str = "",
        is_needed: bool = True,
        **fields: Any,
    ) -> None:
        """Bring changes to the home in one step, and then here.

        Args:
            came: Content by path, or the target of an alias.
            gallery: Gallery whose table comes with it, where this thread holds its lease.
        """
        contents, went = dict(came), list(gone)
        if gallery and self._hold_of(gallery) is not None:
            changed, removed = self._table_changes(gallery)
            contents, went = {**changed, **contents}, [*removed, *went]
        if not (contents or went or is_needed):
            return
        self.require_home()
        upload = Upload(self._store, contents)
        for _ in range(_MOST_TRIES):
            self._catch_up()
            kept = upload.brought(self._ledger)
            there = [place for place in went if self._is_there(place)]
            first = next(iter([*kept, *there]), "")
            hold = self._thread.holds[-1] if self._thread.holds else None
            entry = self._next(
                **{
                    "scope": places.gallery_of(first),
                    "token": 0 if hold is None else hold.token,
                    "holder": "" if hold is None else hold.holder,
                    "came": kept,
                    "went": tuple(there),
                    **fields,
                }
            )
            if self._try(entry, upload.sources):
                if entry.number % ENTRIES_BETWEEN_CHECKPOINTS == 0:
                    self._keep_checkpoint(entry.number)
                self.on_commit(entry.number)
                return
            self.on_lost_race()
        raise OvertakenError(f"home '{self.home}' changes faster than it can be written to: try again")

    def _next(self, **fields: Any) -> Entry:
        """The entry after what lies here."""
        return Entry(
            number=self._ledger.applied() + 1,
            id=secrets.token_hex(8),
            replica=self.replica,
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            **fields,
        )

    def _try(self, entry: Entry, sources: Mapping[str, Path | bytes]) -> bool:
        """Create an entry and lay it here, unless another came first."""
        with self._locked():
            if self._ledger.applied() != entry.number - 1:
                return False
            self._require_valid(entry)
            if not self.log.create(entry):
                # Where the log went on long ago, a checkpoint says so.
                self._proven = -float("inf")
                return False
            batch = Batch(entry.number - 1, entry.number - 1)
            batch.add(entry, {entry.scope: self._ledger.lease(entry.scope)})
            with suppress(NotFetchedError):
                self._layer.lay(batch, sources)
                return True
        # What it was to be laid from is gone by now: it is fetched as the others fetch it.
        self._catch_up()
        return True

    def _require_valid(self, entry: Entry) -> None:
        """Refuse what another replica has overtaken; what lies here is the last entry before."""
        for hold in self._thread.holds:
            lease = self._ledger.lease(hold.scope)
            if entry.kind != "release" and (lease is None or lease.token != hold.token or not lease.is_held):
                raise OvertakenError(
                    f"another replica took over gallery '{hold.scope.partition('.')[0]}': "
                    "send the change again"
                )
        if entry.kind == "move" and self._ledger.is_known(f"{places.GALLERIES}/{entry.target}"):
            raise GalleryExistsError(entry.target)
        for gallery in {places.gallery_of(place) for place in entry.came} - {""}:
            folder = f"{places.GALLERIES}/{gallery}"
            is_new = f"{folder}/active.json" in entry.came or self._hold_of(gallery) is not None
            if not is_new and not self._ledger.is_known(folder):
                raise OvertakenError(f"gallery '{gallery}' has another name by now, or is gone")
        if not self._thread.bases:
            return
        for place in [*entry.came, *entry.went]:
            row = self._ledger.row(place)
            if row is not None and row.number > self._thread.bases[-1] and row.replica != self.replica:
                raise OvertakenError(
                    f"another replica has changed '{place}' meanwhile: send the change again"
                )

    def _bring_own(self) -> None:
        """Bring files up that this replica writes often."""
        came: dict[str, bytes | Path | str] = {}
        for path in self.data_dir.glob(f"{places.GALLERIES}/*/{places.OWN}/*{self.replica}*"):
            place = self.place_of(path)
            row = self._ledger.row(place)
            is_same = row is not None and row.identity == identity_of_file(path)
            if (
                not is_same
                and places.is_kept(place)
                and self._ledger.is_known(f"{places.GALLERIES}/{places.gallery_of(place)}")
            ):
                # Written again meanwhile, it is brought up again.
                with suppress(FileNotFoundError):
                    came[place] = path.read_bytes()
        if came:
            self._commit(came, ())

    def _keep_checkpoint(self, number: int) -> None:
        checkpoint = self._ledger.checkpoint()
        # Another process may have gone on: the next hundred has one.
        if checkpoint.number == number:
            with suppress(HomeError):
                self.log.keep(checkpoint)

    def _count(self, n_bytes: int) -> None:
        self.on_fetch(n_bytes)

    def contents(self) -> HomeContents:
        """Description of all that the home holds, as far as it is known here."""
        known = self._ledger.checkpoint()
        leases = {scope: one for scope, one in known.leases.items() if one.is_held}
        return HomeContents(
            number=known.number,
            n_files=len(known.files),
            n_bytes=sum(size for _, size, _, _ in known.files.values()),
            replicas=sorted({replica for *_, replica in known.files.values()}),
            holders={scope: one.replica for scope, one in leases.items()},
        )

    def tidy(self) -> None:
        """Remove from the home what no replica needs any more."""
        self.log.prune()
        self.log.collect()

    # Beginning

    def _begin(self, *, is_new: bool) -> None:
        """Bring what lies here and what is in the home together; only who is new has anything to bring."""
        local = self._local_galleries() if is_new else []
        # Once that was found, what lies here may be what the home held when a first attempt was cut off.
        found_apart = self._folder / "joining"
        if not found_apart.exists():
            self._refuse_doubles(local)
            found_apart.touch()
        self._catch_up()
        found = {row: identity_of_file(self.data_dir / row.path) for row in self._ledger.rows().values()}
        wrong = [row for row, identity in found.items() if row.identity != identity]
        # Counts may be newer here than there.
        wrong = [
            row
            for row in wrong
            if not (row.replica == self.replica and places.is_own(row.path) and found[row])
        ]
        with self._locked():
            self._ledger.note(row._replace(identity="") for row in wrong)
        self._relay(wrong)
        if not is_new:
            return
        for gallery in local:
            if not self._ledger.is_known(f"{places.GALLERIES}/{gallery}"):
                self._bring_up(f"{places.GALLERIES}/{gallery}")
        for top in sorted(places.TOPS):
            if not self._ledger.is_known(top):
                self._bring_up(top)
        self._bring_up_aliases()

    def _local_galleries(self) -> list[str]:
        found = (self.data_dir / places.GALLERIES).glob("*/active.json")
        folders = [path.parent for path in found if not path.parent.is_symlink()]
        return sorted(one.name for one in folders if places.is_kept(self.place_of(one / "active.json")))

    def _refuse_doubles(self, local: Sequence[str]) -> None:
        """Refuse galleries of one name that are not the same."""
        if not local:
            return
        newest, theirs = self.log.newest_checkpoint(), Batch(0, 0)
        if newest:
            theirs = Batch.of_checkpoint(self.log.checkpoint(newest), {}, 0)
        while (entry := self.log.read(theirs.number + 1)) is not None:
            theirs.add(entry, {})
        for gallery in local:
            pointer = f"{places.GALLERIES}/{gallery}/active.json"
            row = theirs.rows.get(pointer)
            if (
                row is not None
                and row.object
                and sha256_of(row.object) != sha256_of_file(self.data_dir / pointer)
            ):
                raise GalleryExistsError(gallery)

    def _bring_up(self, folder: str) -> None:
        found = files_below(str(self.data_dir / folder), folder)
        kept = {place: self.data_dir / place for place in found if places.is_kept(place)}
        if kept:
            self._commit(kept, ())

    def _bring_up_aliases(self) -> None:
        for path in (self.data_dir / places.GALLERIES).glob("*"):
            place = self.place_of(path)
            if path.is_symlink() and places.is_kept(place) and not self._is_there(place):
                target = str(path.readlink())
                if "/" not in target:
                    self.link(path, target)

    def _below(self, paths: Iterable[Path]) -> list[str]:
        """Files of the home at or below some paths."""
        found: list[str] = []
        for path in paths:
            place = self.place_of(path)
            found += [place] if self._is_there(place) else sorted(self._ledger.rows(place))
        return found

    def _is_there(self, place: str) -> bool:
        row = self._ledger.row(place)
        return row is not None and bool(row.object)

    @property
    def _away(self) -> Path:
        return self._folder / "away"

    @property
    def _looked(self) -> Path:
        return self._folder / "looked"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        busy = f"mirror '{self._folder}' is being written by a process that hangs"
        with hold_file(self._folder / "mirror.lock", busy, patience=_PATIENCE):
            yield


def _nothing(*_: object) -> None:
    pass


def _spelled(path: Path) -> Path:
    """A path from the root, without following links."""
    return Path(os.path.normpath(path.absolute()))


def _sign(scope: str) -> str:
    return f"leases/{scope}.json"

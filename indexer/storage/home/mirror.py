"""Mirror: a data folder that follows a home, and brings every change of its own there first.

<data_dir>/mirror/home.json       which home, and which replica this is; every command obeys it
<data_dir>/mirror/ledger.sqlite   what the home holds, and what of it lies here
<data_dir>/mirror/objects/        what was fetched and is about to be laid
<data_dir>/mirror/away            why the last look at the log failed, if it did
<data_dir>/mirror/looked          when the log was last read to its end, and since when it is asked without an
                                  answer, on the clock since this machine began

A small file is written to the home before it is seen here. A gallery's table is changed here, by who holds
the gallery's lease, and brought up with the pointer to it.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from vicinal.indexer.errors import HomeError, OvertakenError, StorageError
from vicinal.indexer.storage import disk
from vicinal.indexer.storage.disk import files_below, hold_file, make_folder, replace_file, storing
from vicinal.indexer.storage.home import places
from vicinal.indexer.storage.home.follower import ASKED, MOST_TRIES, Follower
from vicinal.indexer.storage.home.leases import Leases
from vicinal.indexer.storage.home.ledger import identity_of_file
from vicinal.indexer.storage.home.log import ENTRIES_BETWEEN_CHECKPOINTS, LINK, sha256_of
from vicinal.indexer.storage.home.marks import FOLDER, Mark, mark_in, mark_path
from vicinal.indexer.storage.home.stores import MARK, HomeStore, open_store
from vicinal.indexer.storage.home.uploads import Upload

logger = logging.getLogger(__name__)
_SECONDS_BETWEEN_OWN = 10.0
# Who follows the home finds it away, or back, that often, however long a call takes.
_AWAY_SECONDS = 15.0
_MOST_UNANSWERED_SECONDS = 3.0


class Mirror(Follower):
    """A data folder that follows a home, and brings every change of its own there first; see `of`."""

    _opened: ClassVar[dict[tuple[int, Path], Mirror]] = {}

    def __init__(self, data_dir: Path, mark: Mark, store: HomeStore) -> None:
        super().__init__(data_dir, mark.home, store)
        self.replica, self.identity = mark.replica, mark.identity
        # Told of the number of an entry that was created here, and of lost races.
        self.on_lost_race: Callable[[], None] = lambda: None
        self._leases = Leases(self, mark.replica)
        self._away = self.folder / "away"
        self._brought = -float("inf")

    @classmethod
    def of(cls, path: Path) -> Mirror | None:
        """The mirror that a path lies in; None where it lies in none."""
        path = spelled(path)
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
        return spelled(path).relative_to(self.data_dir).as_posix()

    # Following

    def pull(self, *, brings_own: bool = False) -> int:
        """Bring what is new in the home here, own counts there at times or now; number of its last entry."""
        try:
            self._note(ASKED, time.monotonic())
            self.catch_up()
        except HomeError as error:
            self._note(ASKED, math.inf)
            with suppress(OSError):
                self._away.write_text(str(error), encoding="utf-8")
            raise
        self._away.unlink(missing_ok=True)
        if missing := self.ledger.missing():
            self.relay(missing)
        if brings_own or time.monotonic() - self._brought > _SECONDS_BETWEEN_OWN:
            self._brought = time.monotonic()
            self._bring_own()
        return self.ledger.applied()

    def require_home(self) -> None:
        """Refuse a change at once, by HomeError, where a process that pulls has just found the home away, or
        waits for an answer.
        """
        if (self._seconds_since(ASKED) or 0.0) > _MOST_UNANSWERED_SECONDS:
            raise HomeError(f"home '{self.home}' does not answer: another process still waits for it")
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
        if places.is_table(place) and self._leases.hold_of(places.gallery_of(place)) is not None:
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
        known = [self.ledger.row(self.place_of(path)) for path in gone]
        rows = [row for row in known if row is not None and row.object]
        self._commit({}, [row.path for row in rows])
        # Who is behind goes on from here where it finds none.
        self.log.keep(self.ledger.checkpoint())
        for row in rows:
            others = self.ledger.with_content(sha256_of(row.object))
            if all(other.object != row.object for other in others):
                self.store.delete(f"objects/{row.object}")

    def put_folder(self, source: Path, target: Path) -> None:
        """Let the files of a folder beside appear as another, in place of what is there."""
        place = self.place_of(target)
        files = [path for path in sorted(source.rglob("*")) if path.is_file()]
        came = {f"{place}/{path.relative_to(source).as_posix()}": path for path in files}
        kept = {name: path for name, path in came.items() if places.is_kept(name)}
        self._commit(kept, sorted(self.ledger.rows(place).keys() - kept.keys()))
        for name in came.keys() - kept.keys():
            with storing(f"'{target}'"):
                make_folder((self.data_dir / name).parent)
                came[name].replace(self.data_dir / name)

    def bring(self, folder: Path) -> None:
        """Bring the files of a folder up that was written here alone, and is finished."""
        found = files_below(str(folder), self.place_of(folder))
        if kept := {place: self.data_dir / place for place in found if places.is_kept(place)}:
            self._commit(kept, ())

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
            self.catch_up()
        self._leases.thread.bases.append(self.ledger.applied())
        try:
            yield
        finally:
            self._leases.thread.bases.pop()

    @contextmanager
    def changing(self, scope: str, *, patience: float = 0.0) -> Iterator[None]:
        """Hold the lease of a gallery, or of another scope: its table may be changed, and is brought up to
        date before, and in the home after. What was changed is put back where that fails.

        Raises:
            GalleryBusyError: Another replica holds it for longer than `patience` seconds.
            HomeError: The home does not answer.
            OvertakenError: The lease was lost meanwhile.
        """
        if self._leases.hold_of(scope) is not None:
            yield
            return
        make_folder(self.folder / "leases")
        lock, begun = (self.folder / "leases" / f"{scope}.{kind}" for kind in ("lock", "begun"))
        busy = f"gallery '{scope}' is being changed by another process"
        with hold_file(lock, busy, patience=patience):
            self.require_home()
            with self._leases.held(scope, patience):
                try:
                    # Where whoever was here before came to no end, files lie here that nobody answered for.
                    if begun.exists():
                        self.mend_table(scope)
                    begun.touch()
                    yield
                    self._commit({}, (), gallery=scope, is_needed=False)
                    begun.unlink()
                except BaseException:
                    self._put_back(scope, begun)
                    raise

    def _put_back(self, scope: str, begun: Path) -> None:
        try:
            self.mend_table(scope)
            begun.unlink(missing_ok=True)
        except StorageError as error:
            # The next one who reads the log, or changes the gallery, does it.
            logger.warning("%s; gallery '%s' is put back later", error, scope)

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
        """Bring changes to the home in one step, with the table of a leased gallery, and then here."""
        contents, went = dict(came), list(gone)
        if gallery and self._leases.hold_of(gallery) is not None:
            changed, removed = self.table_changes(gallery)
            contents, went = {**changed, **contents}, [*removed, *went]
        if not (contents or went or is_needed):
            return
        self.require_home()
        upload = Upload(self.store, contents)
        for _ in range(MOST_TRIES):
            self.catch_up()
            kept = upload.brought(self.ledger)
            there = [place for place in went if self.is_there(place)]
            first = next(iter([*kept, *there]), "")
            named = {"scope": places.gallery_of(first), "came": kept, "went": tuple(there)}
            entry = self._leases.next_entry(**{**named, **fields})
            if self._leases.create(entry, upload.sources):
                if entry.number % ENTRIES_BETWEEN_CHECKPOINTS == 0:
                    self._keep_checkpoint(entry.number)
                return
            self.on_lost_race()
        raise OvertakenError(f"home '{self.home}' changes faster than it can be written to: try again")

    def _bring_own(self) -> None:
        """Bring files up that this replica writes often."""
        came: dict[str, bytes | Path | str] = {}
        for path in self.data_dir.glob(f"{places.GALLERIES}/*/{places.OWN}/*{self.replica}*"):
            place = self.place_of(path)
            row = self.ledger.row(place)
            is_same = row is not None and row.identity == identity_of_file(path)
            is_known = self.ledger.is_known(f"{places.GALLERIES}/{places.gallery_of(place)}")
            if not is_same and places.is_kept(place) and is_known:
                # Written again meanwhile, it is brought up again.
                with suppress(FileNotFoundError):
                    came[place] = path.read_bytes()
        if came:
            self._commit(came, ())

    def _keep_checkpoint(self, number: int) -> None:
        checkpoint = self.ledger.checkpoint()
        # Another process may have gone on: the next hundred has one.
        if checkpoint.number == number:
            with suppress(HomeError):
                self.log.keep(checkpoint)

    def tidy(self) -> None:
        """Remove from the home what no replica needs any more, and files that nobody writes on."""
        self.log.prune()
        self.log.collect()
        home = getattr(self.store, "path", self.folder)
        for folder in (self.folder, self.folder / "objects", home, *home.glob("*/")):
            disk.remove_half_made(folder)

    def _below(self, paths: Iterable[Path]) -> list[str]:
        """Files of the home at or below some paths."""
        found: list[str] = []
        for path in paths:
            place = self.place_of(path)
            found += [place] if self.is_there(place) else sorted(self.ledger.rows(place))
        return found


def spelled(path: Path) -> Path:
    """A path from the root, without following links."""
    return Path(os.path.normpath(path.absolute()))

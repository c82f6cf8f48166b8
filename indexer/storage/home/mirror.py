"""Mirror: a data folder that follows a home, and brings every change of its own there first.

A home is a database with all that is remembered, and a folder or a bucket with files that never change:

    objects/<sha256>-<drawn>        content; a name of its own for each upload, so that nobody comes to name
                                    one that is being removed
    home.json                       identity, which the database has, too: a folder without it is not mounted

    <data_dir>/mirror/home.json     which home, and which replica this is; every command obeys it
    <data_dir>/mirror/ledger.sqlite what of the home lies here
    <data_dir>/mirror/objects/      what was fetched and is about to be laid
    <data_dir>/mirror/leases/       locks of this machine, and `.begun` where a change came to no end

A change is one transaction: which files came and went, where the pointer moved, and whatever else is
remembered of it. It begins after its files lie in the home as objects, and ends only while the writer's token
is the last that was given. A gallery's table is changed here, by who holds the gallery's lease. Whoever reads
the transaction lays data first, and what names it after, so that a pointer that is obeyed names what is here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from sqlalchemy import select

from vicinal.indexer import disk
from vicinal.indexer.disk import files_below, hold_file, make_folder, replace_file, storing
from vicinal.indexer.errors import GalleryExistsError, HomeError, OvertakenError, StorageError
from vicinal.indexer.state import DatabaseAwayError, Rows, state_of
from vicinal.indexer.state.bringing import has_any
from vicinal.indexer.state.schema import files
from vicinal.indexer.state.state import GALLERY_FILE, copy_all
from vicinal.indexer.storage.home import places
from vicinal.indexer.storage.home.follower import MOST_TRIES, Follower
from vicinal.indexer.storage.home.leases import Leases
from vicinal.indexer.storage.home.marks import FOLDER, Mark, mark_in, mark_path
from vicinal.indexer.storage.home.stores import MARK, HomeStore, open_store
from vicinal.indexer.storage.home.uploads import Upload

logger = logging.getLogger(__name__)
# What no row names stays that long: somebody may be about to name it, or be fetching it.
GRACE = timedelta(days=1)


class Mirror(Follower):
    """A data folder that follows a home, and brings every change of its own there first; see `of`."""

    _opened: ClassVar[dict[tuple[int, Path], Mirror]] = {}

    def __init__(self, data_dir: Path, mark: Mark, store: HomeStore) -> None:
        super().__init__(data_dir, mark.home, store)
        self.replica, self.identity = mark.replica, mark.identity
        self._leases = Leases(self.shared.database, mark.replica)
        make_folder(self.folder / "leases")

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
        """Path of a file below the data folder."""
        return spelled(path).relative_to(self.data_dir).as_posix()

    def names(self) -> list[str]:
        """Galleries of the home, sorted."""
        with suppress(DatabaseAwayError):
            self.follow()
        return sorted(self.shared.galleries().keys() - {places.WHOLE, ""})

    # Changing

    @contextmanager
    def publishing(self, folder: Path, gone: Iterable[Path] = ()) -> Iterator[Rows]:
        """Rows of the gallery in a folder, to be changed in one step with all that was changed in its table
        by who holds its lease; files, and those below folders, in `gone` go with it.

        Raises:
            OvertakenError: Another replica took over what this thread holds, or the gallery is gone.
            HomeError: The home does not take the files.
            DatabaseAwayError: The database does not answer.
        """
        with self._publishing(places.gallery_of(self.place_of(folder / places.TABLE)), {}, gone) as rows:
            yield rows

    @contextmanager
    def _publishing(
        self,
        gallery: str,
        contents: Mapping[str, bytes | Path],
        gone: Iterable[Path] = (),
        *,
        is_new: bool = False,
        remembered: Path | None = None,
    ) -> Iterator[Rows]:
        """Rows of a gallery, to be changed in one step with files that came, by place, and others that went;
        of one that must be new, with what another folder remembers of it.
        """
        self.require_home()
        holds, removed = self._leases.hold_of(gallery) is not None, set(self._below(gone))
        if holds:
            changed, missing = self.table_changes(gallery)
            contents, removed = {**changed, **contents}, {*missing, *removed}
        upload = Upload(self.store, self.ledger, contents)
        for _ in range(MOST_TRIES):
            kept = upload.bring()
            with self.state(gallery).changing(is_new=is_new or holds) as rows:
                if upload.is_there(rows):
                    self._leases.require_valid(rows)
                    if remembered is not None:
                        _settle(gallery, remembered, rows)
                    rows.remove_each(files.c.path, [places.below(gallery, place) for place in removed])
                    rows.put(files, *(_row(gallery, place, *one, rows) for place, one in kept.items()))
                    yield rows
                    break
        else:
            raise OvertakenError(f"home '{self.home}' loses files faster than they are named: try again")
        self.lay(gallery, upload.sources)

    def publish(self, contents: Mapping[Path, bytes], gone: Iterable[Path] = ()) -> None:
        """Write small files of a gallery, and remove others, see `publishing`."""
        named = {self.place_of(path): content for path, content in contents.items()}
        gallery = places.gallery_of(next(iter(named)))
        with self._publishing(gallery, named, gone, is_new=gallery == places.WHOLE):
            pass

    def put(self, path: Path, content: bytes) -> None:
        """Write a small file, in the home and then here."""
        place = self.place_of(path)
        if places.is_table(place) and self._leases.hold_of(places.gallery_of(place)) is not None:
            replace_file(path, content)
        else:
            self.publish({path: content})

    def put_folder(self, source: Path, target: Path) -> None:
        """Let the files of a folder beside appear as another, in place of what is there."""
        place, found = self.place_of(target), [path for path in sorted(source.rglob("*")) if path.is_file()]
        came = {f"{place}/{path.relative_to(source).as_posix()}": path for path in found}
        kept = {name: path for name, path in came.items() if places.is_kept(name)}
        gone = [self.data_dir / one for one in self.ledger.rows(place).keys() - kept.keys()]
        gallery, is_new = places.gallery_of(f"{place}/-"), place.count("/") == 1
        remembered = source if is_new and gallery != places.WHOLE else None
        with self._publishing(gallery, kept, gone, is_new=is_new, remembered=remembered):
            pass
        for name in [
            one for one in came.keys() - kept.keys() if not one.startswith(f"{place}/{GALLERY_FILE}")
        ]:
            with storing(f"'{target}'"):
                make_folder((self.data_dir / name).parent)
                came[name].replace(self.data_dir / name)

    def bring(self, folder: Path, remembered: Path | None = None) -> None:
        """Bring the files of a folder up that was written here alone, and is finished; of a gallery what the
        file in another folder remembers, too.
        """
        place = self.place_of(folder)
        found = files_below(str(folder), place)
        kept = {one: self.data_dir / one for one in found if places.is_kept(one)}
        if kept or remembered is not None:
            gallery = places.gallery_of(f"{place}/-")
            with self._publishing(gallery, kept, is_new=True, remembered=remembered):
                pass

    def drop(self, paths: Iterable[Path]) -> None:
        """Remove files, and those below folders, in the home and then here."""
        if gone := self._below(paths):
            with self._publishing(places.gallery_of(gone[0]), {}, map(self.data_dir.joinpath, gone)):
                pass

    def move_gallery(self, gallery: str, name: str) -> None:
        """Give a gallery another name."""
        self.require_home()
        self.state(gallery).rename(name, self._leases.require_valid)
        self._follow_names({gallery})

    def drop_gallery(self, gallery: str) -> None:
        """Remove a gallery."""
        self.require_home()
        self.state(gallery).remove(self._leases.require_valid)
        self._follow_names({gallery})

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
        lock, begun = (self.folder / "leases" / f"{scope}.{kind}" for kind in ("lock", "begun"))
        busy = f"gallery '{scope}' is being changed by another process"
        with hold_file(lock, busy, patience=patience):
            self.require_home()
            with self._leases.held(scope, patience):
                try:
                    self.lay(scope.partition(".")[0])
                    # Where whoever was here before came to no end, files lie here that nobody answered for.
                    if begun.exists():
                        self.mend_table(scope)
                    begun.touch()
                    yield
                    self._bring_changes(scope)
                    begun.unlink()
                except BaseException:
                    self._put_back(scope, begun)
                    raise

    def _bring_changes(self, scope: str) -> None:
        if any(self.table_changes(scope)):
            with self._publishing(scope, {}):
                pass

    def _put_back(self, scope: str, begun: Path) -> None:
        try:
            self.mend_table(scope)
            begun.unlink(missing_ok=True)
        except StorageError as error:
            # The next one who changes the gallery does it.
            logger.warning("%s; gallery '%s' is put back later", error, scope)

    def tidy(self) -> int:
        """Remove objects that no row names from the home, in one replica at a time; their number."""
        hold = self._leases.taken("tidying")
        if hold is None:
            return 0
        # In this order: what comes into use meanwhile is young, or is in use now.
        found = list(self.store.list("objects"))
        now = max((one.modified for one in found), default=None)
        old = {one.name for one in found if now is not None and now - one.modified > GRACE}
        with self.shared.database.reading() as connection:
            used = {f"objects/{name}" for name in connection.scalars(select(files.c.object).distinct())}
        for name in sorted(old - used):
            self.store.delete(name)
            self._leases.renew(hold)
        home = getattr(self.store, "path", self.folder)
        for folder in (self.folder, self.folder / "objects", home, *home.glob("*/")):
            disk.remove_half_made(folder)
        return len(old - used)

    def _below(self, paths: Iterable[Path]) -> list[str]:
        """Files of the home at or below some paths."""
        found: list[str] = []
        for path in paths:
            place = self.place_of(path)
            found += [place] if self.ledger.row(place) else sorted(self.ledger.rows(place))
        return found


def _settle(gallery: str, folder: Path, rows: Rows) -> None:
    """Have all that a folder's own file remembers of a gallery, which must be new."""
    if rows.has(files):
        raise GalleryExistsError(gallery)
    source = state_of(folder)
    if source.exists or has_any(folder, of_server=False):
        with source.reading() as read:
            copy_all(read, rows)


def _row(gallery: str, place: str, name: str, size: int, rows: Rows) -> dict[str, object]:
    path = places.below(gallery, place)
    return {"path": path, "object": name, "bytes": size, "changed": rows.changed}


def spelled(path: Path) -> Path:
    """A path from the root, without following links."""
    return Path(os.path.normpath(path.absolute()))

"""Laying: bring files of a home into a data folder, so that no reader sees half of anything.

Every file is compared with its checksum and appears whole. What names others comes after them: data, records,
manifests of the table, pointers; what is gone goes last. A folder of a version appears as one. What is open
stays as it was: no file is written in place. A crash leaves what the next laying does not do again.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from vicinal.indexer.errors import HomeError
from vicinal.indexer.storage.disk import make_folder, scratch, sha256_of_file, storing, sync_path
from vicinal.indexer.storage.home import places
from vicinal.indexer.storage.home.ledger import Ledger, Row, identity_of_file
from vicinal.indexer.storage.home.log import LINK, Checkpoint, Entry, Lease, sha256_of
from vicinal.indexer.storage.home.stores import HomeStore

# Of a file that is here already, or in memory, by its checksum.
Sources = Mapping[str, Path | bytes]
_FETCHES = 8


class MissingObjectError(HomeError):
    """An object of an entry is gone: a checkpoint says what replaced it."""


class NotFetchedError(Exception):
    """A file that was to be copied went meanwhile."""


@dataclass
class Batch:
    """Changes after an entry, `base`, up to another: the last state of each file, and leases."""

    base: int
    number: int
    rows: dict[str, Row] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    moved: tuple[str, str] | None = None
    dropped: str = ""
    replica: str = ""

    @property
    def is_alone(self) -> bool:
        """Tell whether a folder moves or goes, which is one step of its own."""
        return self.moved is not None or bool(self.dropped)

    def add(self, entry: Entry, leases: Mapping[str, Lease | None]) -> None:
        """Take an entry in; `leases` has those of its scopes before."""
        self.number, self.replica = entry.number, entry.replica
        for place, (name, size) in entry.came.items():
            self.rows[place] = Row(place, name, size, entry.number, entry.replica, "")
        for place in entry.went:
            self.rows[place] = Row(place, "", 0, entry.number, entry.replica, "")
        if entry.kind == "lease":
            self.leases[entry.scope] = Lease(
                token=entry.number, holder=entry.holder, replica=entry.replica, is_held=True
            )
        before = self.leases.get(entry.scope) or leases.get(entry.scope)
        if entry.kind == "release" and before is not None and before.token == entry.token:
            self.leases[entry.scope] = before.model_copy(update={"is_held": False})
        if entry.kind == "move":
            self.moved = (f"{places.GALLERIES}/{entry.scope}", f"{places.GALLERIES}/{entry.target}")
        if entry.kind == "drop":
            self.dropped = f"{places.GALLERIES}/{entry.scope}"

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint, known: Mapping[str, Row], base: int) -> Batch:
        """The listing of a checkpoint, and what else is known here after an entry as gone."""
        rows = {
            place: Row(place, name, size, number, replica, "")
            for place, (name, size, number, replica) in checkpoint.files.items()
        }
        gone = {
            place: row._replace(object="", size=0, number=checkpoint.number, identity="")
            for place, row in known.items()
            if place not in rows
        }
        return cls(base, checkpoint.number, {**rows, **gone}, dict(checkpoint.leases))


@dataclass
class Layer:
    """Lays files of a home: `lay` under the mirror's lock, `fetch` without; `on_fetch` hears its bytes."""

    data_dir: Path
    ledger: Ledger
    store: HomeStore
    fetched: Path
    on_fetch: Callable[[int], None]

    def fetch(self, batch: Batch, sources: Sources) -> None:
        """Bring the content of all files that do not lie here yet beside the galleries."""
        objects = {}
        for row in self._wanted(batch):
            if row.object and not row.object.startswith(LINK) and self._source(row, sources) is None:
                objects[row.object] = row
        if len(objects) > 1:
            with ThreadPoolExecutor(min(_FETCHES, len(objects))) as pool:
                for _ in pool.map(self._fetch, objects.values()):
                    pass
        else:
            for row in objects.values():
                self._fetch(row)

    def lay(self, batch: Batch, sources: Sources) -> None:
        """Bring a batch to the disk, and note it."""
        if batch.moved is not None:
            self._move(*batch.moved)
            gone = self._gone(batch, batch.moved[0])
            self.ledger.take(batch.number, gone, batch.leases, moved=batch.moved)
            return
        if batch.dropped:
            self._drop(batch.dropped)
            self.ledger.take(batch.number, self._gone(batch, batch.dropped), batch.leases)
            return
        wanted = self._wanted(batch)
        done = self._lay_all(batch.rows, wanted, sources)
        self.ledger.take(batch.number, {**batch.rows, **done}.values(), batch.leases)
        self._forget_fetched(wanted)

    def _gone(self, batch: Batch, folder: str) -> list[Row]:
        """Rows of a folder's files, which are gone."""
        return [Row(place, "", 0, batch.number, batch.replica, "") for place in self.ledger.rows(folder)]

    def mend(self, rows: Iterable[Row], sources: Sources) -> None:
        """Lay files again that do not lie here as they should."""
        batch = Batch(0, 0, {row.path: row._replace(identity="") for row in rows})
        wanted = self._wanted(batch)
        self.ledger.note(self._lay_all(batch.rows, wanted, sources).values())
        self._forget_fetched(wanted)

    def _lay_all(self, rows: Mapping[str, Row], wanted: list[Row], sources: Sources) -> dict[str, Row]:
        """Rows of all that lies here afterwards, with its identity."""
        done: dict[str, Row] = {}
        units = {places.unit_of(place): place for place in rows}
        whole = {unit[0] for unit in units if unit is not None and not unit[1]}
        for unit in sorted(one for one in units if one is not None):
            if unit[1] and unit[0] in whole:
                continue
            folder = "/".join(filter(None, unit))
            inside = [row for row in wanted if row.path.startswith(f"{folder}/")]
            done |= self._lay_unit(folder, inside, sources)
        plain = [row for row in wanted if places.unit_of(row.path) is None]
        ranks: dict[int, list[Row]] = {}
        for row in plain:
            ranks.setdefault(places.rank(row.path), []).append(row)
        for _, same in sorted(ranks.items()):
            done |= self._lay_files(same, sources)
        self._remove({row.path for row in rows.values() if not row.object}, rows.keys())
        return done

    def _wanted(self, batch: Batch) -> list[Row]:
        """Rows of files that lie here afterwards, of a batch and of the folders that appear with it."""
        wanted = {place: row for place, row in batch.rows.items() if row.object}
        units = {places.unit_of(place) for place in batch.rows}
        for unit in filter(None, units):
            whole = (unit[0], "") in units
            others = self.ledger.rows(unit[0] if whole else "/".join(unit))
            wanted |= {place: row for place, row in others.items() if place not in batch.rows}
        return [wanted[place] for place in sorted(wanted)]

    def _source(self, row: Row, sources: Sources) -> Path | bytes | None:
        """The content of a file, or where it is here; None where it has to be fetched."""
        sha256 = sha256_of(row.object)
        given = sources.get(sha256)
        if given is not None:
            return given
        path = self.data_dir / row.path
        for known in self.ledger.with_content(sha256):
            other = self.data_dir / known.path
            if known.identity and known.identity == identity_of_file(other):
                return other
        fetched = self.fetched / row.object
        if fetched.exists():
            return fetched
        # What was laid before a crash, or was here before there was a ledger.
        with suppress(OSError):
            if path.lstat().st_size == row.size and sha256_of_file(path) == sha256:
                return path
        return None

    def _fetch(self, row: Row) -> None:
        make_folder(self.fetched)
        staged = self.fetched / f".{secrets.token_hex(8)}.partial"
        try:
            with storing(f"'{staged}'"):
                is_there = self.store.fetch(f"objects/{row.object}", staged)
                if not is_there:
                    raise MissingObjectError(
                        f"object '{row.object}' of home '{self.store.address}', which is "
                        f"'{row.path}', is missing: bring it back from a backup"
                    )
                if sha256_of_file(staged) != sha256_of(row.object):
                    raise HomeError(
                        f"object '{row.object}' of home '{self.store.address}', which is "
                        f"'{row.path}', is damaged: bring it back from a backup"
                    )
                sync_path(staged)
                self.on_fetch(row.size)
                staged.replace(self.fetched / row.object)
        finally:
            staged.unlink(missing_ok=True)

    def _forget_fetched(self, wanted: list[Row]) -> None:
        for row in wanted:
            if row.object and not row.object.startswith(LINK):
                (self.fetched / row.object).unlink(missing_ok=True)

    def _is_here(self, row: Row) -> Row | None:
        """The row with its identity, where the file lies here as it should."""
        known = self.ledger.row(row.path)
        identity = identity_of_file(self.data_dir / row.path)
        is_same = known is not None and sha256_of(known.object) == sha256_of(row.object)
        if is_same and known is not None and identity and known.identity == identity:
            return row._replace(identity=identity)
        return None

    def _lay_files(self, rows: list[Row], sources: Sources) -> dict[str, Row]:
        done: dict[str, Row] = {}
        folders = set()
        for row in rows:
            here = self._is_here(row)
            path = self.data_dir / row.path
            if here is None:
                is_link = row.object.startswith(LINK)
                if is_link or self._source(row, sources) != path:
                    make_folder(path.parent)
                    with storing(f"'{path}'"):
                        staged = path.with_name(f".{path.name}.laid.partial")
                        self._place(row, staged, sources)
                        staged.replace(path)
                    folders.add(path.parent)
                here = row._replace(identity=identity_of_file(path))
            done[row.path] = here
        for folder in folders:
            sync_path(folder)
        return done

    def _lay_unit(self, folder: str, rows: list[Row], sources: Sources) -> dict[str, Row]:
        """Make the folder of a version, or of its refined items, anew, and let it appear."""
        target = self.data_dir / folder
        if not rows and not target.exists():
            return {}
        here = [self._is_here(row) for row in rows]
        n_files = sum(1 for path in target.rglob("*") if self._is_kept(path))
        if rows and all(here) and n_files == len(rows):
            return {row.path: row for row in here if row is not None}
        make_folder(target.parent)
        with scratch(target.parent) as aside, storing(f"'{target}'"):
            new = aside / "new"
            new.mkdir(mode=0o700)
            for row in rows:
                staged = new / PurePosixPath(row.path).relative_to(folder)
                make_folder(staged.parent)
                self._place(row, staged, sources)
                sync_path(staged.parent)
            if target.exists():
                target.rename(aside / "old")
            if rows:
                new.rename(target)
            sync_path(target.parent)
        return {row.path: row._replace(identity=identity_of_file(self.data_dir / row.path)) for row in rows}

    def _is_kept(self, path: Path) -> bool:
        return path.is_file() and places.is_kept(path.relative_to(self.data_dir).as_posix())

    def _place(self, row: Row, staged: Path, sources: Sources) -> None:
        """Write the content of a row; what never changes is a link to what is here."""
        staged.unlink(missing_ok=True)
        if row.object.startswith(LINK):
            staged.symlink_to(row.object.removeprefix(LINK))
            return
        source = self._source(row, sources)
        if source is None:
            raise NotFetchedError(row.path)
        if isinstance(source, bytes):
            staged.write_bytes(source)
        elif not (places.is_immutable(row.path) and _is_linked(source, staged)):
            try:
                shutil.copyfile(source, staged)
            except FileNotFoundError as error:
                raise NotFetchedError(row.path) from error
            # It may be written to at this moment.
            if sha256_of_file(staged) != sha256_of(row.object):
                raise NotFetchedError(row.path)
        if places.is_secret(row.path):
            staged.chmod(0o600)
        sync_path(staged)

    def _remove(self, gone: Set[str], touched: Set[str]) -> None:
        for place in sorted(gone):
            path = self.data_dir / place
            with storing(f"'{path}'"):
                path.unlink(missing_ok=True)
            # Folders of jobs and sessions; those that hold anything stay.
            with suppress(OSError):
                if places.gallery_of(place) and len(place.split("/")) > 4:
                    path.parent.rmdir()
        for gallery in {places.gallery_of(place) for place in gone} - {""}:
            folder = f"{places.GALLERIES}/{gallery}"
            came = {place for place in touched - gone if place.startswith(f"{folder}/")}
            if not came and not self.ledger.rows(folder).keys() - gone:
                self._drop(folder)

    def _drop(self, place: str) -> None:
        """Remove a gallery's folder, with what of it the home does not keep."""
        folder = self.data_dir / place
        if not folder.is_dir() or folder.is_symlink():
            return
        # Out of the way in one step, so that no crash leaves half of it.
        aside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.deleted")
        with storing(f"'{folder}'"):
            folder.rename(aside)
            sync_path(folder.parent)
        shutil.rmtree(aside, ignore_errors=True)

    def _move(self, source: str, target: str) -> None:
        """Rename a gallery's folder, with what of it the home does not keep."""
        folder, other = self.data_dir / source, self.data_dir / target
        with storing(f"'{other}'"):
            if folder.is_dir() and not other.exists():
                folder.rename(other)
                sync_path(other.parent)


def _is_linked(source: Path, target: Path) -> bool:
    """Make a link, where the disk has links; tell it."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True

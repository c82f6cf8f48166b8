"""Laying: bring files of a home into a data folder, so that no reader sees half of anything.

Every file is compared with its checksum and appears whole. What names others comes after them: data, records,
manifests of the table, pointers; what is gone goes last. A folder of a version appears as one. What is open
stays as it was: no file is written in place. A crash leaves what the next laying does not do again.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vicinal.indexer.disk import make_folder, scratch, sha256_of_file, storing, sync_path
from vicinal.indexer.errors import HomeError
from vicinal.indexer.storage.home import places
from vicinal.indexer.storage.home.ledger import Ledger, Row, identity_of_file
from vicinal.indexer.storage.home.places import sha256_of
from vicinal.indexer.storage.home.stores import HomeStore

# Of a file that is here already, or in memory, by its checksum.
Sources = Mapping[str, Path | bytes]
_FETCHES = 8
_MANIFESTS = ("/snapshot.json", "/refined.json")
LEFT = "left"  # In place of the identity of a file that an engine has


class MissingObjectError(HomeError):
    """An object of the listing is gone: what replaced it is listed by now."""


class NotFetchedError(Exception):
    """A file that was to be copied went meanwhile."""


@dataclass
class Layer:
    """Lays files of a home: `lay` under a gallery's lock, `fetch` without; `on_fetch` hears of bytes."""

    data_dir: Path
    ledger: Ledger
    store: HomeStore
    fetched: Path
    on_fetch: Callable[[int], None]
    # Whether vectors stay with the engine that holds them, too.
    leaves_vectors: bool = False

    def fetch(self, rows: Mapping[str, Row], gone: Set[str], sources: Sources) -> None:
        """Bring the content of all files that do not lie here yet beside the galleries."""
        objects, wanted = {}, self._wanted(rows, gone)
        left = self._left(wanted, sources)
        for row in wanted:
            if row.path not in left and self._source(row, sources) is None:
                objects[row.object] = row
        if len(objects) > 1:
            with ThreadPoolExecutor(min(_FETCHES, len(objects))) as pool:
                for _ in pool.map(self._fetch, objects.values()):
                    pass
        else:
            for row in objects.values():
                self._fetch(row)

    def lay(self, rows: Mapping[str, Row], gone: Set[str], sources: Sources) -> list[Row]:
        """Bring files that came or are another to the disk, and remove others; rows of all that was touched,
        with identities.
        """
        wanted = self._wanted(rows, gone)
        left = self._left(wanted, sources)
        laid = [row for row in wanted if row.path not in left]
        done = self._lay_all(rows.keys() | gone, laid, sources)
        done |= {row.path: row._replace(identity=LEFT) for row in wanted if row.path in left}
        self._remove(gone)
        for row in wanted:
            (self.fetched / row.object).unlink(missing_ok=True)
        return list(done.values())

    def _left(self, rows: list[Row], sources: Sources) -> set[str]:
        """Files of vectors that are not laid, as the manifest beside them names the engine that has them."""
        manifests = {row.path.rpartition("/")[0]: row for row in rows if row.path.endswith(_MANIFESTS)}
        left: set[str] = set()
        for row in rows if self.leaves_vectors else ():
            folder, _, name = row.path.rpartition("/")
            is_here = (self.data_dir / row.path).exists()
            if name not in places.VECTORS or is_here or (manifest := manifests.get(folder)) is None:
                continue
            if (source := self._source(manifest, sources)) is None:
                self._fetch(manifest)
                source = self.fetched / manifest.object
            content = source if isinstance(source, bytes) else source.read_bytes()
            if json.loads(content)["index"] == places.ENGINE:
                left.add(row.path)
        return left

    def _lay_all(self, touched: Set[str], wanted: list[Row], sources: Sources) -> dict[str, Row]:
        done: dict[str, Row] = {}
        units = {places.unit_of(place) for place in touched}
        whole = {unit[0] for unit in units if unit is not None and not unit[1]}
        for unit in sorted(one for one in units if one is not None):
            if unit[1] and unit[0] in whole:
                continue
            folder = "/".join(filter(None, unit))
            inside = [row for row in wanted if row.path.startswith(f"{folder}/")]
            done |= self._lay_unit(folder, inside, sources)
        ranks: dict[int, list[Row]] = {}
        for row in wanted:
            if places.unit_of(row.path) is None:
                ranks.setdefault(places.rank(row.path), []).append(row)
        for _, same in sorted(ranks.items()):
            done |= self._lay_files(same, sources)
        return done

    def _wanted(self, rows: Mapping[str, Row], gone: Set[str]) -> list[Row]:
        """Rows of files that lie here afterwards, of a change and of the folders that appear with it."""
        wanted = dict(rows)
        units = {places.unit_of(place) for place in rows.keys() | gone}
        for unit in filter(None, units):
            whole = (unit[0], "") in units
            others = self.ledger.rows(unit[0] if whole else "/".join(unit))
            wanted |= {place: row for place, row in others.items() if place not in rows.keys() | gone}
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
                if self._source(row, sources) != path:
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
        sync_path(staged)

    def _remove(self, gone: Set[str]) -> None:
        for place in sorted(gone):
            path = self.data_dir / place
            with storing(f"'{path}'"):
                path.unlink(missing_ok=True)
            # Folders of jobs; those that hold anything stay.
            with suppress(OSError):
                if len(place.split("/")) > 4:
                    path.parent.rmdir()

    def drop(self, place: str) -> None:
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

    def move(self, source: str, target: str) -> None:
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

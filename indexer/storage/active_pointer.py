"""Active pointer: the newest of a gallery's moves, which says which state of it is searched."""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row

from vicinal.calibration.advice import Advice, advise
from vicinal.indexer.disk import hold_file, make_folder
from vicinal.indexer.errors import GalleryBusyError, GalleryError, VersionNotFoundError
from vicinal.indexer.state import DamagedRowError, Rows, state_of
from vicinal.indexer.state.schema import moves, numbers
from vicinal.indexer.state.state import Cached
from vicinal.indexer.storage.files import publishing
from vicinal.indexer.storage.home import Mirror
from vicinal.indexer.storage.item_table import ItemTable

# The pointer moves within milliseconds; waiting longer means that a process hangs.
_PATIENCE = 30.0
_MOST_MOVES = 100
_MOVE = "move"
_VERSION = "version-"
_JOB = "job-"


@dataclass(frozen=True)
class Activation:
    """State that is searched; every change of a gallery replaces it in one step.

    `next_number` of the table's sequences and patches only goes up, so that no number ever stands for two
    things. `token` is new with every activation by a person or an index job; what was begun under one does
    not belong under another, even when the numbers are the same. `calibrated_as` is the version whose own
    calibrations belong to it, 0 for the gallery's, replaced together with the version. `revisions` and
    `calibrated` keep the last of both for every version that was active before. `last_version`, the highest
    activated or removed, is never given again.
    """

    version: int
    revision: int
    next_number: int
    token: str
    revisions: dict[int, int] = field(default_factory=dict)
    calibrated_as: int = 0
    calibrated: dict[int, int] = field(default_factory=dict)
    # It says nothing about what is searched.
    last_version: int = field(default=0, compare=False)

    @property
    def known_revisions(self) -> dict[int, int]:
        """Last revision of every version that is or was active, by version."""
        return {**self.revisions, self.version: self.revision}

    def calibration_of(self, version: int) -> int:
        """Value of `calibrated_as` with another version: as before, or as now for a new one."""
        if version == self.version:
            return self.calibrated_as
        return self.calibrated.get(version, self.calibrated_as)

    def succeeding(self, before: Activation) -> Activation:
        """This activation, with what the one before knew about other versions."""
        calibrated = {**before.calibrated, before.version: before.calibrated_as}
        followed = replace(
            self,
            next_number=max(self.next_number, before.next_number),
            revisions=before.known_revisions,
            calibrated=calibrated,
            last_version=max(self.version, before.last_version),
        )
        return followed.without({self.version})

    def without(self, versions: set[int]) -> Activation:
        """Activation that does not know some versions as earlier ones any more."""
        return replace(
            self,
            revisions={v: r for v, r in self.revisions.items() if v not in versions},
            calibrated={v: c for v, c in self.calibrated.items() if v not in versions},
        )


_ACTIVATION = TypeAdapter(Activation)
_BY_VERSION = ("revisions", "calibrated")
# Is done in the transaction that lets a change come into force.
Note = Callable[[Rows], None]


class ActivePointer:
    """Moves of what is searched. Names of the table's rows are files, which are given before the move that
    needs them comes into force, under a brief lock of this machine.
    """

    def __init__(self, folder: Path, table: ItemTable) -> None:
        self.folder = folder
        self.table = table

    @property
    def exists(self) -> bool:
        """Tell whether anything was ever put in force, also where nobody can read it any more."""
        try:
            return self._newest() is not None
        except (GalleryError, OSError):
            return True

    @property
    def changed_at(self) -> datetime | None:
        """Time of the last change of what is searched; None where nobody can read it."""
        with suppress(GalleryError):
            found = self._newest()
            return None if found is None else datetime.fromtimestamp(found[1], UTC)
        return None

    def read(self) -> Activation | None:
        """The state that is searched, or None where nothing is."""
        try:
            found = self._newest()
        except DamagedRowError as error:
            raise GalleryError(f"{error}: ", self.remedy) from error
        return None if found is None else found[0]

    def _newest(self) -> tuple[Activation, float] | None:
        return _searched(self.folder).get()

    @property
    def remedy(self) -> Advice:
        """Advice on how the gallery is searched again when the last move is damaged."""
        last = self._last_whole()
        versions = self.versions() if last is None else [last.version]
        if not versions:
            return advise("bring it back from a backup")
        return advise(
            "put a version in force again by {activate_version()}",
            gallery=self.folder.name,
            version=versions[-1],
            data_dir=self.folder.absolute().parent.parent,
        )

    def versions(self) -> list[int]:
        """Versions that were published, oldest first."""
        folders = (self.folder / "versions").glob("[0-9]*")
        return sorted(int(folder.name) for folder in folders if folder.name.isdigit())

    def known_versions(self, active: Activation | None) -> set[int]:
        """Versions that can be activated, those among them whose files are just being made again."""
        return {*(active.known_revisions if active else ()), *self.versions()}

    def no_version(self, version: int) -> VersionNotFoundError:
        """The error that says which versions there are."""
        return VersionNotFoundError(self.folder.name, version, self.versions())

    def activate(self, version: int, *, as_built: bool = False, calibrated_as: int | None = None) -> None:
        """Let searches use a published version, from their next request on; with the calibrations of
        `calibrated_as`, or when None its own of before, and for a new version the present ones.
        """
        with self._lock():
            active = self._last_whole()
            if version not in self.known_versions(active):
                raise self.no_version(version)
            known = {} if active is None or as_built else active.known_revisions
            revision = known.get(version) or self.revision_of(version)
            self._put_in_force(version, revision, calibrated_as, active)

    def activate_if_unchanged(
        self, before: Activation | None, version: int, *, calibrated_as: int | None = None
    ) -> bool:
        """Let searches use a version if what was searched when it was made, maybe None, still is; tell it."""
        # Another machine may be faster.
        with suppress(GalleryBusyError), self._held() as active:
            if active == before:
                self._put_in_force(version, self.revision_of(version), calibrated_as, active)
                return True
        return False

    def swap_compacted(self, before: Activation, version: int) -> bool:
        """Let searches use a compacted activation and later changes; False if another version is active."""
        with self._held() as active:
            if active is None or active.token != before.token:
                return False
            self._replace(replace(active, version=version), active)
            return True

    def move_revision(
        self, before: Activation, revision: int, next_number: int, *, note: Note | None = None
    ) -> None:
        """Let searches see a live change, from their next request on, with what is noted of it."""
        with self._held() as active:
            if active is None or active.token != before.token:
                raise self._overtaken()
            moved = replace(active, revision=revision, next_number=next_number)
            with self._moving(active) as rows:
                _add(rows, moved)
                if note is not None:
                    note(rows)

    def forget(self, versions: set[int]) -> set[int]:
        """Remove the derived files of versions; the active one stays whatever is asked for."""
        with self._held() as active:
            if active is not None:
                versions = versions - {active.version}
            gone = versions & {*self.versions()}
            folders = [self.folder / "versions" / str(version) for version in gone]
            with self._moving(active, folders) as rows:
                if active is not None:
                    last = max([active.last_version, *self.versions()])
                    _add(rows, replace(active.without(versions), last_version=last))
            # Out of the way in one step, so that none of them can be activated any more.
            aside = [folder.rename(folder.with_suffix(".partial")) for folder in folders if folder.exists()]
        for folder in aside:
            shutil.rmtree(folder, ignore_errors=True)
        return gone

    def number(self, revision: int) -> int:
        """The next version number, for rows that a version is made of; they are kept from now on."""
        with self._held() as active:
            return self._number(revision, active)

    def number_searched(self, activation: Activation) -> int | None:
        """Next version number, for rows that are kept from now on; None when something else is searched."""
        with self._held() as active:
            # Rows of what is searched are never cleaned up, and others cannot be any more after this.
            return self._number(activation.revision, active) if active == activation else None

    def revision_of(self, version: int) -> int:
        """Revision of the table with the rows of a version as it was built, also when its files are gone."""
        revision = self.table.kept_as(version_tag(version))
        if revision is None:
            # A table that is missing or damaged has no names either, and says so.
            self.table.latest()
            raise self.no_version(version)
        return revision

    def keep_for(self, job: str) -> Activation | None:
        """Keep the rows of what is searched for a job with staged rows, however long it reads them."""
        with self._held() as active:
            if active is not None:
                self.table.keep(self._job_tag(job), active.revision)
            return active

    def keep_only(self, versions: Iterable[int]) -> None:
        """Give up the rows of all versions that are neither there nor named; only a writer may do it."""
        with self._held():
            present = self.versions()
            names = {version_tag(version) for version in {*present, *versions}}
            names |= {_changes_tag(version) for version in present}
            names |= {self._job_tag(folder.name) for folder in (self.folder / "staging").glob("*")}
            gone = set(self.table.kept()) - names
            # What jobs of other replicas read, nobody here knows.
            own = self._job_tag("")
            self.table.release(name for name in gone if name.startswith(own) or not name.startswith(_JOB))

    def clean_up(self, grace: timedelta) -> int:
        """Remove rows that neither a version nor what is searched needs; only a writer may do it."""
        with self._held() as active:
            if active is not None:
                # Commits that never came into force may follow it, so that it need not be the newest.
                self.table.keep(_changes_tag(active.version), active.revision)
            return self.table.clean_up(grace)

    @contextmanager
    def _held(self) -> Iterator[Activation | None]:
        with self._lock():
            yield self.read()

    @contextmanager
    def _lock(self) -> Iterator[None]:
        busy = f"the active version of gallery '{self.folder.name}' is being changed by a process that hangs"
        make_folder(self.folder)
        with hold_file(self.folder / "active.lock", busy, patience=_PATIENCE):
            yield

    @contextmanager
    def _moving(self, before: Activation | None, gone: Iterable[Path] = ()) -> Iterator[Rows]:
        """Rows of a transaction that begins with what was searched before."""
        with publishing(self.folder, gone) as rows:
            # Another machine does not know of the lock.
            if _last_whole(rows) != before:
                raise self._overtaken()
            yield rows

    def _last_whole(self) -> Activation | None:
        """The state that is searched; where its move is damaged, the one before, or None."""
        with state_of(self.folder).reading() as rows:
            return _last_whole(rows)

    def _overtaken(self) -> GalleryBusyError:
        return GalleryBusyError(
            f"another version of gallery '{self.folder.name}' was activated meanwhile: send the change again"
        )

    def _job_tag(self, job: str) -> str:
        mirror = Mirror.of(self.folder)
        return f"{_JOB}{job}" if mirror is None else f"{_JOB}{mirror.replica}-{job}"

    def _number(self, revision: int, active: Activation | None) -> int:
        named = [int(name.removeprefix(_VERSION)) for name in self.table.kept() if name.startswith(_VERSION)]
        last = 0 if active is None else active.last_version
        number = max([last, *self.versions(), *named]) + 1
        self.table.keep(version_tag(number), revision)
        return number

    def _put_in_force(
        self, version: int, revision: int, calibrated_as: int | None, active: Activation | None
    ) -> None:
        if calibrated_as is None:
            calibrated_as = 0 if active is None else active.calibration_of(version)
        next_number, token = self.table.next_number(revision), secrets.token_hex(8)
        chosen = Activation(
            version, revision, next_number, token, calibrated_as=calibrated_as, last_version=version
        )
        self._replace(chosen, active)

    def _replace(self, chosen: Activation, before: Activation | None) -> None:
        """Replace the activation; both keep the rows they are made of, so that it can be rolled back."""
        for activation in (before, chosen):
            if activation is not None:
                self.table.keep(_changes_tag(activation.version), activation.revision)
        with self._moving(before) as rows:
            rows.remove_damaged(moves.c.number)
            _add(rows, chosen if before is None else chosen.succeeding(before))


@lru_cache(maxsize=4096)
def _searched(folder: Path) -> Cached[tuple[Activation, float] | None]:
    """The newest move of the gallery in a folder, for every search of a process."""
    return Cached(state_of(folder), _newest_in)


def _newest_in(rows: Rows) -> tuple[Activation, float] | None:
    last = rows.first(numbers, numbers.c.name == _MOVE)
    if last is None and not rows.has(moves):
        return None
    # By its number: without it damage could let the one before be searched.
    row = None if last is None else rows.first(moves, moves.c.number == last.value)
    if row is None:
        raise DamagedRowError(rows.place, moves, {"number": "newest"})
    return _activation_of(row), row.at


def _last_whole(rows: Rows) -> Activation | None:
    """The state that is searched; where its move is damaged, the one before."""
    with suppress(DamagedRowError):
        found = _newest_in(rows)
        return None if found is None else found[0]
    whole = rows.all(moves, on_damage=lambda _: None)
    return _activation_of(max(whole, key=attrgetter("number"))) if whole else None


def _activation_of(row: Row[Any]) -> Activation:
    fields = {**row._asdict(), **{name: json.loads(getattr(row, name)) for name in _BY_VERSION}}
    return _ACTIVATION.validate_python(fields)


def _add(rows: Rows, activation: Activation) -> None:
    # Neither needs to be whole.
    given = [*rows.values(moves.c.number), *rows.values(numbers.c.value, numbers.c.name == _MOVE)]
    number = max(given, default=0) + 1
    rows.put(numbers, {"name": _MOVE, "value": number})
    fields = asdict(activation)
    by_version = {name: json.dumps(fields[name]) for name in _BY_VERSION}
    rows.add(moves, {**fields, **by_version, "number": number, "at": time.time()})
    rows.remove(moves, moves.c.number <= number - _MOST_MOVES)


def version_tag(version: int) -> str:
    """Name under which the table keeps the rows that a version was built of."""
    return f"{_VERSION}{version}"


def _changes_tag(version: int) -> str:
    """Name under which the table keeps the rows of a version with its last live changes."""
    return f"changes-{version}"

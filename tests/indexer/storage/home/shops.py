"""Galleries of a few bytes, laid out as real ones and changed in the same steps, for many courses of events.

The pointer is a row. What is noted of every request is whether it was answered; what must hold afterwards
follows.
"""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.indexer.storage.home.replicas import Course, Replica
from vicinal.indexer.disk import make_folder, scratch
from vicinal.indexer.errors import DamagedGalleryError, GalleryError
from vicinal.indexer.state import Rows
from vicinal.indexer.state.schema import documents
from vicinal.indexer.storage.home.mirror import Mirror

_PATIENCE = 30.0
_NAMES = ("shoes", "bags")


class TornError(AssertionError):
    """What a pointer names is not there."""


@dataclass
class Journal:
    """Requests, by whether they were answered; `deleted` and `tried` hold those that were sent, too."""

    added: set[str] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    deletions: set[str] = field(default_factory=set)
    n_answered: int = 0
    n_refused: int = 0
    tears: list[str] = field(default_factory=list)


Send = Callable[[Replica, Mirror, Journal], None]


@dataclass
class Shop:
    """One gallery in a data folder."""

    folder: Path
    mirror: Mirror

    def pointer(self) -> dict[str, int]:
        with self.mirror.state(self.folder.name).reading() as rows:
            return _pointer_in(rows)

    def items(self) -> dict[str, str]:
        """Items by the file that holds each; refused where any of it is missing."""
        pointer, laid_for = self.pointer(), {}
        while True:
            try:
                files = json.loads(self._manifest(pointer["revision"]).read_text())
                found = {name: (self._data / name).read_text() for name in files}
                version = pointer["version"]
                built = self.folder / "versions" / str(version)
                if version and (built / "a.npy").read_text() != (built / "snapshot.json").read_text():
                    raise TornError(f"version {version} is mixed")
            except OSError as error:
                # The pointer may be ahead of what lies here, and another process may have gone on.
                if pointer == laid_for and pointer == self.pointer():
                    raise TornError(f"{pointer}: {error}") from error
                laid_for = pointer
                self.mirror.lay(self.folder.name)
                pointer = self.pointer()
                continue
            return found

    def add(self, item: str) -> None:
        with self.mirror.changing(self.folder.name, patience=_PATIENCE):
            items = self.items()
            make_folder(self._data)
            name = f"{secrets.token_hex(6)}.lance"
            (self._data / name).write_text(item)
            self._commit({**items, name: item})

    def delete(self, item: str) -> bool:
        with self.mirror.changing(self.folder.name, patience=_PATIENCE):
            items = self.items()
            left = {name: one for name, one in items.items() if one != item}
            if left == items:
                return False
            self._commit(left)
            return True

    def _commit(self, items: dict[str, str]) -> None:
        revision = self.pointer()["revision"] + 1
        # As Lance does, which never replaces one.
        while self._manifest(revision).exists():
            revision += 1
        make_folder(self._manifest(revision).parent)
        self._manifest(revision).write_text(json.dumps(sorted(items)))
        with (self.folder / "items.seals").open("a") as stream:
            stream.write(f"{revision}\n")
        self._point(revision=revision)

    def _point(self, gone: Sequence[Path] = (), /, **changes: int) -> None:
        """Move the pointer in one step with what was changed in the table."""
        with self.mirror.publishing(self.folder, gone) as rows:
            _put(rows, {**_pointer_in(rows), **changes})

    def compact(self, draw: random.Random) -> None:
        with self.mirror.changing(f"{self.folder.name}.compaction"):
            self.pointer()
            version = max([0, *(int(one.name) for one in (self.folder / "versions").glob("[0-9]*"))]) + 1
            self._build(version, str(draw.random()))
            self._point(version=version)

    def rebuild(self, draw: random.Random) -> None:
        """Make the files of the searched version anew."""
        with self.mirror.changing(f"{self.folder.name}.compaction"):
            if not (version := self.pointer()["version"]):
                raise GalleryError("it has no version")
            self._build(version, str(draw.random()))

    def _build(self, version: int, content: str) -> None:
        with scratch(self.folder) as aside:
            make_folder(aside / "new")
            for name in ("a.npy", "snapshot.json"):
                (aside / "new" / name).write_text(content)
            self.mirror.put_folder(aside / "new", self.folder / "versions" / str(version))

    def clean(self) -> None:
        """Remove what is not searched, as pruning does: not beside a compaction, whose version is not yet."""
        name = self.folder.name
        with self.mirror.changing(f"{name}.compaction"), self.mirror.changing(name, patience=_PATIENCE):
            used, pointer = set(self.items()), self.pointer()
            for path in list(self._data.glob("*")):
                if path.name not in used:
                    path.unlink()
            for path in list(self._manifest(0).parent.glob("*")):
                if path != self._manifest(pointer["revision"]):
                    path.unlink()
            versions = {int(path.name): path for path in (self.folder / "versions").glob("[0-9]*")}
            self._point([path for number, path in versions.items() if number != pointer["version"]])

    def rename(self, name: str) -> None:
        with self.mirror.changing(self.folder.name, patience=_PATIENCE):
            self.pointer()
            self.mirror.move_gallery(self.folder.name, name)

    def _manifest(self, revision: int) -> Path:
        return self.folder / "items.lance" / "_versions" / f"{revision}.manifest"

    @property
    def _data(self) -> Path:
        return self.folder / "items.lance" / "data"


def _pointer_in(rows: Rows) -> dict[str, int]:
    found = rows.first(documents, documents.c.kind == "pointer")
    if found is None:
        raise GalleryError("it has another name")
    return dict(json.loads(found.content))


def _put(rows: Rows, pointer: dict[str, int]) -> None:
    rows.put(documents, {"kind": "pointer", "id": "", "at": 0.0, "content": json.dumps(pointer)})


def begin(mirror: Mirror) -> None:
    """Make the first gallery."""
    shop = Shop(mirror.data_dir / "galleries" / "shoes", mirror)
    with mirror.changing("shoes"):
        make_folder(shop._data)
        make_folder(shop._manifest(1).parent)
        shop._manifest(1).write_text("[]")
        with mirror.publishing(shop.folder) as rows:
            _put(rows, {"revision": 1, "version": 0})


def program(journal: Journal, n_requests: int, send: Send) -> Callable[[Replica], None]:
    """What a replica does: requests, in an order that its seed decides, until so many were sent."""
    sent: dict[str, int] = {}

    def run(replica: Replica) -> None:
        mirror = None
        while mirror is None:
            try:
                mirror = replica.open()
            except GalleryError:
                replica.course.sleep(1.0)
        while sent.setdefault(replica.name, 0) < n_requests:
            sent[replica.name] += 1
            try:
                send(replica, mirror, journal)
                journal.n_answered += 1
            except (DamagedGalleryError, TornError) as tear:
                journal.tears.append(f"{replica.name}: {tear}")
            except GalleryError:
                journal.n_refused += 1

    return run


def send(replica: Replica, mirror: Mirror, journal: Journal) -> None:
    """Send one request."""
    try:
        _send(replica, mirror, journal)
    except FileNotFoundError as error:
        raise GalleryError("it was renamed meanwhile") from error


def _send(replica: Replica, mirror: Mirror, journal: Journal) -> None:
    draw = replica.random
    mirror.pull()
    if not (names := mirror.names()):
        raise GalleryError("nothing here yet")
    shop = Shop(mirror.data_dir / "galleries" / draw.choice(names), mirror)
    items = shop.items()
    kinds = ("add", "delete", "compact", "rebuild", "clean", "rename", "tidy")
    kind = draw.choices(kinds, weights=(8, 3, 2, 1, 1, 1, 1))[0]
    name = secrets.token_hex(4)
    if kind == "add":
        journal.tried.add(name)
        shop.add(name)
        journal.added.add(name)
    elif kind == "delete" and items:
        chosen = draw.choice(sorted(items.values()))
        journal.deletions.add(chosen)
        shop.delete(chosen)
        journal.deleted.add(chosen)
    elif kind in ("compact", "rebuild"):
        getattr(shop, kind)(draw)
    elif kind == "clean":
        shop.clean()
    elif kind == "rename":
        shop.rename(next(one for one in _NAMES if one != shop.folder.name))
    elif kind == "tidy":
        mirror.tidy()
    # What a search would see at this moment.
    with suppress(GalleryError):
        shop.items()


def settle(course: Course) -> list[Mirror]:
    """Let every replica start once more, with nothing in its way, and lay all that there is."""
    course.is_rough = False
    mirrors = [replica.open() for replica in course.replicas]
    for one in mirrors:
        one.pull()
        for name in one.names():
            # A lease of whoever was cut off ends by itself.
            with one.changing(name, patience=_PATIENCE):
                pass
    for one in mirrors:
        one.pull()
    return mirrors


def items_of(mirror: Mirror) -> list[str]:
    """Items of all galleries in the end."""
    found = (Shop(mirror.data_dir / "galleries" / name, mirror).items() for name in mirror.names())
    return [item for items in found for item in items.values()]

"""Galleries of a few bytes, laid out as real ones and changed in the same steps, for many courses of events.

What is noted of every request is whether it was answered; what must hold afterwards follows.
"""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.indexer.storage.home.replicas import Course, Replica
from vicinal.indexer.errors import DamagedGalleryError, GalleryError
from vicinal.indexer.storage.disk import make_folder, scratch
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
    records: dict[str, str] = field(default_factory=dict)
    activated: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
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
        return dict(json.loads((self.folder / "active.json").read_text()))

    def items(self) -> dict[str, str]:
        """Items by the file that holds each; refused where any of it is missing."""
        while True:
            pointer = self.pointer()
            try:
                files = json.loads(self._manifest(pointer["revision"]).read_text())
                found = {name: (self._data / name).read_text() for name in files}
                version = pointer["version"]
                built = self.folder / "versions" / str(version)
                if version and (built / "a.npy").read_text() != (built / "snapshot.json").read_text():
                    raise TornError(f"version {version} is mixed")
            except OSError as error:
                # Another process may have gone on meanwhile.
                if self.pointer() != pointer:
                    continue
                raise TornError(f"{pointer}: {error}") from error
            return found

    def add(self, item: str) -> None:
        with self.mirror.changing(self.folder.name, patience=_PATIENCE):
            items = self._require_items()
            make_folder(self._data)
            name = f"{secrets.token_hex(6)}.lance"
            (self._data / name).write_text(item)
            self._commit({**items, name: item})

    def delete(self, item: str) -> bool:
        with self.mirror.changing(self.folder.name, patience=_PATIENCE):
            items = self._require_items()
            left = {name: one for name, one in items.items() if one != item}
            if left == items:
                return False
            self._commit(left)
            return True

    def _require_items(self) -> dict[str, str]:
        if not (self.folder / "active.json").exists():
            raise GalleryError("it has another name")
        return self.items()

    def _commit(self, items: dict[str, str]) -> None:
        before = self.pointer()["revision"]
        revision = before + 1
        # As Lance does, which never replaces one.
        while self._manifest(revision).exists():
            revision += 1
        make_folder(self._manifest(revision).parent)
        self._manifest(revision).write_text(json.dumps(sorted(items)))
        with (self.folder / "items.seals").open("a") as stream:
            stream.write(f"{revision}\n")
        self._point(lambda pointer: pointer | {"revision": revision}, revision=before)

    def _point(self, change: Callable[[dict[str, int]], dict[str, int]], **expected: int) -> None:
        with self.mirror.noticing():
            pointer = self.pointer()
            if any(pointer[name] != value for name, value in expected.items()):
                raise GalleryError("it was changed meanwhile")
            content = json.dumps(change(pointer)).encode()
            names = ("active.json", "active.copy.json")
            self.mirror.publish({self.folder / name: content for name in names})

    def compact(self, draw: random.Random) -> None:
        with self.mirror.changing(f"{self.folder.name}.compaction"):
            if not (self.folder / "active.json").exists():
                raise GalleryError("it has another name")
            version = max([0, *(int(one.name) for one in (self.folder / "versions").glob("[0-9]*"))]) + 1
            with scratch(self.folder) as aside:
                make_folder(aside / "new")
                content = str(draw.random())
                (aside / "new" / "a.npy").write_text(content)
                (aside / "new" / "snapshot.json").write_text(content)
                self.mirror.put_folder(aside / "new", self.folder / "versions" / str(version))
            self._point(lambda pointer: pointer | {"version": version})

    def rebuild(self, draw: random.Random) -> None:
        """Make the files of the searched version anew."""
        with self.mirror.changing(f"{self.folder.name}.compaction"), scratch(self.folder) as aside:
            if not (self.folder / "active.json").exists() or not self.pointer()["version"]:
                raise GalleryError("it has another name, or no version")
            make_folder(aside / "new")
            for name in ("a.npy", "snapshot.json"):
                (aside / "new" / name).write_text(str(draw.random()))
            (aside / "new" / "a.npy").write_text((aside / "new" / "snapshot.json").read_text())
            self.mirror.put_folder(aside / "new", self.folder / "versions" / str(self.pointer()["version"]))

    def clean(self) -> None:
        """Remove what is not searched, as pruning does: not beside a compaction, whose version is not yet."""
        name = self.folder.name
        with self.mirror.changing(f"{name}.compaction"), self.mirror.changing(name, patience=_PATIENCE):
            used = set(self._require_items())
            for path in list(self._data.glob("*")):
                if path.name not in used:
                    path.unlink()
            for path in list(self._manifest(0).parent.glob("*")):
                if path != self._manifest(self.pointer()["revision"]):
                    path.unlink()
            versions = {int(path.name): path for path in (self.folder / "versions").glob("[0-9]*")}
            with self.mirror.noticing():
                pointer = self.pointer()
                gone = [path for number, path in versions.items() if number != pointer["version"]]
                self.mirror.publish({self.folder / "active.json": json.dumps(pointer).encode()}, gone)

    def record(self, name: str, content: str) -> None:
        self.mirror.put_together({self.folder / "calibrations" / f"{name}.json": content.encode()})

    def activate(self, name: str) -> None:
        path = self.folder / "calibrations" / "active.json"
        with self.mirror.noticing():
            if not (self.folder / "active.json").exists():
                raise GalleryError("it has another name")
            names = json.loads(path.read_text()) if path.exists() else []
            self.mirror.put(path, json.dumps([*names, name]).encode())

    def rename(self, name: str) -> None:
        with self.mirror.changing(self.folder.name, patience=_PATIENCE):
            if not (self.folder / "active.json").exists():
                raise GalleryError("it has another name")
            self.mirror.move_gallery(self.folder.name, name)

    def _manifest(self, revision: int) -> Path:
        return self.folder / "items.lance" / "_versions" / f"{revision}.manifest"

    @property
    def _data(self) -> Path:
        return self.folder / "items.lance" / "data"


def begin(mirror: Mirror) -> None:
    """Make the first gallery."""
    shop = Shop(mirror.data_dir / "galleries" / "shoes", mirror)
    with mirror.changing("shoes"):
        make_folder(shop._data)
        make_folder(shop._manifest(1).parent)
        shop._manifest(1).write_text("[]")
        content = json.dumps({"revision": 1, "version": 0}).encode()
        mirror.publish({shop.folder / "active.json": content, shop.folder / "active.copy.json": content})


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
    folders = [one.parent for one in sorted((mirror.data_dir / "galleries").glob("*/active.json"))]
    if not folders:
        raise GalleryError("nothing here yet")
    shop = Shop(draw.choice(folders), mirror)
    items = shop.items()
    kinds = ("add", "delete", "compact", "rebuild", "clean", "record", "activate", "rename", "count")
    kind = draw.choices(kinds, weights=(8, 3, 2, 1, 1, 2, 2, 1, 1))[0]
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
    elif kind == "record":
        shop.record(name, f"content of {name}")
        journal.records[name] = f"content of {name}"
    elif kind == "activate":
        shop.activate(name)
        journal.activated.append(name)
    elif kind == "rename":
        shop.rename(next(one for one in _NAMES if one != shop.folder.name))
    elif kind == "count":
        path = shop.folder / "calibrations" / "drift" / f"{mirror.replica}.json"
        make_folder(path.parent)
        mirror.put(path, name.encode())
    # What a search would see at this moment.
    if (shop.folder / "active.json").exists():
        shop.items()


def settle(course: Course) -> list[Mirror]:
    """Let every replica start once more, with nothing in its way, and read the log to its end."""
    course.is_rough = False
    mirrors = [replica.open() for replica in course.replicas]
    for one in mirrors:
        # Their counts, too.
        one._brought = -float("inf")
        one.pull()
        for folder in sorted((one.data_dir / "galleries").glob("*/active.json")):
            with one.changing(folder.parent.name):
                pass
    for one in mirrors:
        one.pull()
    return mirrors


def requests_of(shops: list[Shop]) -> dict[str, Any]:
    """What is found in the end: items, records and what was put in force."""
    items: list[str] = []
    records: dict[str, str] = {}
    active: list[str] = []
    for shop in shops:
        items += shop.items().values()
        for path in (shop.folder / "calibrations").glob("*.json"):
            if path.name == "active.json":
                active += json.loads(path.read_text())
            else:
                records[path.stem] = path.read_text()
    return {"items": items, "records": records, "active": active}

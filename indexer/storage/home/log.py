"""Log of a home: entries in order, each created exclusively, which is what decides between two writers.

    log/<number>.json          what came and what went; only after all that came lies in `objects`
    objects/<sha256>-<drawn>   content, immutable; each upload has a name of its own, so that nobody can come
                               to name an object that is being removed
    checkpoints/<number>.json  the whole listing after an entry, so that nobody reads all of them
    begun                      once there was an entry: a log without any is damaged from then on, not new

An entry of a number that is gone could be created anew by a replica that slept for days. So entries go in
ascending order, and one is void, also for who reads it, unless the entry before it is there.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from pydantic import Field, ValidationError

from vicinal.calibration.frozen import Frozen
from vicinal.indexer.errors import HomeError
from vicinal.indexer.storage.home.stores import HomeStore
from vicinal.models.configs.sealed_json import BrokenSealError, sealed, unsealed

ENTRIES_BETWEEN_CHECKPOINTS = 100
# What nothing names any more stays that long: a replica may be fetching it, or be about to name it.
GRACE = timedelta(days=1)
_TRIES, _BEGUN = 3, "begun"

# Object and bytes of a file; of an alias `link:<gallery>` and 0.
Kept = tuple[str, int]
LINK = "link:"
_DIGITS = 64


class Entry(Frozen):
    """A step of a home.

    Attributes:
        kind: `change` of files; `lease`, by which a holder takes a scope, under the entry's number as its
            token; `release`, by which it gives it back; `move` of a gallery to the name `target`;
            `drop` of a gallery.
        scope: Gallery, or `<gallery>.compaction`, or '' for the whole home.
        id: Drawn, so that who gets no answer finds out whether the entry is its own.
    """

    number: int
    id: str
    kind: Literal["change", "lease", "release", "move", "drop"] = "change"
    scope: str = ""
    token: int = 0
    holder: str = ""
    replica: str = ""
    at: str = ""
    came: dict[str, Kept] = Field(default_factory=dict)
    went: tuple[str, ...] = ()
    target: str = ""


class Lease(Frozen):
    """Lease of a scope: the number of the entry that took it, who holds it, and whether it still does."""

    token: int
    holder: str
    replica: str
    is_held: bool


class Checkpoint(Frozen):
    """Listing after an entry: files with the number of the entry and the replica that wrote them."""

    number: int
    files: dict[str, tuple[str, int, int, str]]
    leases: dict[str, Lease]


@dataclass(frozen=True)
class Log:
    """The log in a store."""

    store: HomeStore

    def read(self, number: int) -> Entry | None:
        """An entry; None where there is none yet, or none any more."""
        stored = self.store.get(_entry(number))
        if stored is None:
            return None
        try:
            return Entry.model_validate_json(unsealed(stored))
        except (BrokenSealError, ValidationError) as error:
            raise HomeError(
                f"entry {number} of home '{self.store.address}' is damaged: bring it back from a backup"
            ) from error

    def is_there(self, number: int) -> bool:
        """Tell whether an entry was not removed; the one before the first is with all others."""
        if number == 0:
            return self.store.get(_BEGUN) is None or self.is_there(1)
        return self.store.get(_entry(number)) is not None

    def create(self, entry: Entry) -> bool:
        """Create an entry; False where another has its number, or the log went on long ago."""
        content = sealed(entry.model_dump_json())
        for attempt in range(_TRIES):
            try:
                if not self.store.put_if_absent(_entry(entry.number), content):
                    found = self.read(entry.number)
                    # A call that was repeated finds its own.
                    if found is not None and found.id != entry.id:
                        return False
                    if found is None:
                        continue
                break
            except HomeError:
                # Nobody knows whether it was created: only the log does.
                found = self.read(entry.number)
                if found is not None:
                    if found.id == entry.id:
                        break
                    return False
                if attempt == _TRIES - 1:
                    raise
        else:
            return False
        if self.is_there(entry.number - 1):
            if entry.number % ENTRIES_BETWEEN_CHECKPOINTS == 1:
                self.store.put_if_absent(_BEGUN, b"")
            return True
        self.store.delete(_entry(entry.number))
        return False

    def newest_checkpoint(self) -> int:
        """Number of the newest checkpoint, 0 without any."""
        return max((_number(one.name) for one in self.store.list("checkpoints")), default=0)

    def checkpoint(self, number: int) -> Checkpoint:
        """A checkpoint."""
        stored = self.store.get(_checkpoint(number))
        try:
            return Checkpoint.model_validate_json(unsealed(stored or b""))
        except (BrokenSealError, ValidationError) as error:
            raise HomeError(
                f"checkpoint {number} of home '{self.store.address}' is missing or damaged"
            ) from error

    def keep(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, unless it is there."""
        self.store.put_if_absent(_checkpoint(checkpoint.number), sealed(checkpoint.model_dump_json()))

    def prune(self) -> int:
        """Remove entries that are older than a checkpoint of yesterday, in ascending order; how many."""
        checkpoints = list(self.store.list("checkpoints"))
        if not checkpoints:
            return 0
        now = max(one.modified for one in checkpoints)
        old = [one for one in checkpoints[:-1] if now - one.modified > GRACE]
        if not old:
            return 0
        bound, n_removed = _number(old[-1].name), 0
        for one in self.store.list("log"):
            if _number(one.name) >= bound:
                break
            self.store.delete(one.name)
            n_removed += 1
        for one in old[:-1]:
            self.store.delete(one.name)
        return n_removed

    def collect(self) -> int:
        """Remove objects older than a day that no checkpoint and no entry that is kept names; how many."""
        # In this order: what comes into use meanwhile is young, or is in use in one of these.
        objects = list(self.store.list("objects"))
        if not objects:
            return 0
        now = max(one.modified for one in [*objects, *self.store.list("log")])
        old = {one.name for one in objects if now - one.modified > GRACE}
        used = {f"objects/{sha256}" for sha256 in self._named()} if old else set()
        for name in sorted(old - used):
            self.store.delete(name)
        return len(old - used)

    def _named(self) -> Iterator[str]:
        for one in [*self.store.list("checkpoints")]:
            yield from (kept[0] for kept in self.checkpoint(_number(one.name)).files.values())
        for one in [*self.store.list("log")]:
            entry = self.read(_number(one.name))
            yield from (kept[0] for kept in entry.came.values()) if entry else ()


def new_object(sha256: str) -> str:
    """Name of an object with this content."""
    return f"{sha256}-{secrets.token_hex(3)}"


def sha256_of(name: str) -> str:
    """SHA-256 of the object of this name."""
    return name[:_DIGITS]


def _entry(number: int) -> str:
    return f"log/{number:012d}.json"


def _checkpoint(number: int) -> str:
    return f"checkpoints/{number:012d}.json"


def _number(name: str) -> int:
    return int(name.rpartition("/")[2].removesuffix(".json"))

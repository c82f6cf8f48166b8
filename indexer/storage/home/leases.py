"""Leases: who may change what. An entry of the home's log is created by who holds the lease it needs.

Nobody compares clocks: a lease is lost when its holder gives no sign of life for some seconds of the clock of
who waits for it, and the log decides who was first.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vicinal.indexer.errors import (
    GalleryBusyError,
    GalleryExistsError,
    HomeError,
    OvertakenError,
    StorageError,
)
from vicinal.indexer.storage.home import places
from vicinal.indexer.storage.home.follower import MOST_TRIES, Follower
from vicinal.indexer.storage.home.laying import Batch, NotFetchedError
from vicinal.indexer.storage.home.log import Entry, Lease

logger = logging.getLogger(__name__)
# Without a sign of life for so long, a holder has lost its lease.
LEASE_SECONDS = 10.0
_SECONDS_BETWEEN_SIGNS = 2.0
_POLL_SECONDS = 0.05
_SIGN = "leases/{}.json"


@dataclass
class Hold:
    """A lease that this thread holds."""

    scope: str
    token: int
    holder: str
    ended: threading.Event = field(default_factory=threading.Event)


class _Thread(threading.local):
    """Leases and locks of the present thread."""

    def __init__(self) -> None:
        self.holds: list[Hold] = []
        # Last entry known when each lock was taken.
        self.bases: list[int] = []


class Leases:
    """Leases of a replica, and the entries that it creates under them."""

    def __init__(self, follower: Follower, replica: str) -> None:
        self._follower, self.replica = follower, replica
        self.thread = _Thread()
        # Signs of life by scope, and since when each has stood still.
        self._watched: dict[str, tuple[int, bytes | None, float, bool]] = {}

    @contextmanager
    def held(self, scope: str, patience: float) -> Iterator[None]:
        """Hold the lease of a scope in this thread, after who holds it now for at most some seconds."""
        hold = self._take(scope, patience)
        self.thread.holds.append(hold)
        self.thread.bases.append(hold.token)
        threading.Thread(target=self._show_life, args=[hold], name="lease", daemon=True).start()
        try:
            yield
        finally:
            self._end(hold)

    def _take(self, scope: str, patience: float) -> Hold:
        deadline, holder = time.monotonic() + patience, f"{self.replica}:{os.getpid()}:{secrets.token_hex(4)}"
        while True:
            self._follower.catch_up()
            before = self._follower.ledger.lease(scope)
            still, is_alive = (0.0, False)
            # Of this machine's processes one alone comes here: the holder before it is gone.
            is_free = before is None or not before.is_held or before.replica == self.replica
            if before is not None and not is_free:
                still, is_alive = self._watch(scope, before)
            if is_free or still > LEASE_SECONDS:
                entry = self.next_entry(kind="lease", scope=scope, token=0, holder=holder)
                if self.create(entry, {}):
                    return Hold(scope, entry.number, holder)
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
        sign, now = self._follower.store.get(_SIGN.format(scope)), time.monotonic()
        token, known, since, is_alive = self._watched.get(scope, (0, None, now, False))
        if token != lease.token:
            # The sign may be that of the holder before.
            since, is_alive = now, False
        elif known != sign:
            since, is_alive = now, True
        self._watched[scope] = (lease.token, sign, since, is_alive)
        return now - since, is_alive

    def _end(self, hold: Hold) -> None:
        hold.ended.set()
        self.thread.holds.remove(hold)
        self.thread.bases.remove(hold.token)
        try:
            for _ in range(MOST_TRIES):
                self._follower.catch_up()
                lease = self._follower.ledger.lease(hold.scope)
                if lease is None or lease.token != hold.token or not lease.is_held:
                    return
                entry = self.next_entry(
                    kind="release", scope=hold.scope, token=hold.token, holder=hold.holder
                )
                if self.create(entry, {}):
                    return
        except StorageError as error:
            # Without signs of life it is lost in some seconds.
            logger.warning("%s; the lease of '%s' is not given back", error, hold.scope)

    def _show_life(self, hold: Hold) -> None:
        n_signs = 0
        while not hold.ended.wait(_SECONDS_BETWEEN_SIGNS):
            n_signs += 1
            with suppress(HomeError):
                self._follower.store.put(_SIGN.format(hold.scope), f"{hold.token} {n_signs}".encode())

    def hold_of(self, scope: str) -> Hold | None:
        """Lease of a scope that this thread holds."""
        return next((one for one in self.thread.holds if one.scope == scope), None)

    def next_entry(self, **fields: Any) -> Entry:
        """The entry after what lies here, under the lease that this thread took last if none is given."""
        held = [{"token": one.token, "holder": one.holder} for one in self.thread.holds[-1:]]
        return Entry(
            number=self._follower.ledger.applied() + 1,
            id=secrets.token_hex(8),
            replica=self.replica,
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            **ChainMap(fields, *held),
        )

    def create(self, entry: Entry, sources: Mapping[str, Path | bytes]) -> bool:
        """Create an entry and lay it here, unless another came first."""
        with self._follower.locked():
            if self._follower.ledger.applied() != entry.number - 1:
                return False
            self._require_valid(entry)
            if not self._follower.log.create(entry):
                # Where the log went on long ago, a checkpoint says so.
                self._follower.proven = -float("inf")
                return False
            batch = Batch(entry.number - 1, entry.number - 1)
            batch.add(entry, {entry.scope: self._follower.ledger.lease(entry.scope)})
            with suppress(NotFetchedError):
                self._follower.layer.lay(batch, sources)
                return True
        # What it was to be laid from is gone by now: it is fetched as the others fetch it.
        self._follower.catch_up()
        return True

    def _require_valid(self, entry: Entry) -> None:
        """Refuse what another replica has overtaken; what lies here is the last entry before."""
        for hold in self.thread.holds:
            lease = self._follower.ledger.lease(hold.scope)
            if entry.kind != "release" and (lease is None or lease.token != hold.token or not lease.is_held):
                raise OvertakenError(
                    f"another replica took over gallery '{hold.scope.partition('.')[0]}': "
                    "send the change again"
                )
        if entry.kind == "move" and self._follower.ledger.is_known(f"{places.GALLERIES}/{entry.target}"):
            raise GalleryExistsError(entry.target)
        for gallery in {places.gallery_of(place) for place in entry.came} - {""}:
            folder = f"{places.GALLERIES}/{gallery}"
            is_new = f"{folder}/active.json" in entry.came or self.hold_of(gallery) is not None
            if not is_new and not self._follower.ledger.is_known(folder):
                raise OvertakenError(f"gallery '{gallery}' has another name by now, or is gone")
        if not self.thread.bases:
            return
        for place in [*entry.came, *entry.went]:
            row = self._follower.ledger.row(place)
            if row is not None and row.number > self.thread.bases[-1] and row.replica != self.replica:
                raise OvertakenError(
                    f"another replica has changed '{place}' meanwhile: send the change again"
                )

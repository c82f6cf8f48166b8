"""Leases: who may change what; a row for each scope, a gallery or a part of what is done with it.

Who takes a scope has a token one higher than the holder before. A change compares it in its own transaction,
so that a holder that slept through the end of its right changes nothing. The clock is the database's.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Float, cast, extract, func, select

from vicinal.indexer.errors import GalleryBusyError, OvertakenError, StorageError
from vicinal.indexer.state import Database, Rows
from vicinal.indexer.state.schema import leases

logger = logging.getLogger(__name__)
# Without a sign of life for so long, a holder has lost its lease.
LEASE_SECONDS = 10.0
_SECONDS_BETWEEN_SIGNS = 2.0
_POLL_SECONDS = 0.05


@dataclass
class Hold:
    """A lease that this thread holds."""

    scope: str
    token: int
    ended: threading.Event = field(default_factory=threading.Event)


class _Thread(threading.local):
    """Leases of the present thread."""

    def __init__(self) -> None:
        self.holds: list[Hold] = []


class Leases:
    """Leases of a replica."""

    def __init__(self, database: Database, replica: str) -> None:
        self.replica = replica
        self._database, self._thread = database, _Thread()

    @contextmanager
    def held(self, scope: str, patience: float) -> Iterator[None]:
        """Hold the lease of a scope in this thread, after who holds it now for at most some seconds.

        Raises:
            GalleryBusyError: Another replica holds it for longer.
            DatabaseAwayError: The database does not answer.
        """
        hold = self._wait_for(scope, patience)
        self._thread.holds.append(hold)
        threading.Thread(target=self._show_life, args=[hold], name="lease", daemon=True).start()
        try:
            yield
        finally:
            hold.ended.set()
            self._thread.holds.remove(hold)
            self._give_back(hold)

    def hold_of(self, scope: str) -> Hold | None:
        """Lease of a scope that this thread holds."""
        return next((one for one in self._thread.holds if one.scope == scope), None)

    def require_valid(self, rows: Rows) -> None:
        """Refuse, in the transaction of a change, what another replica has overtaken; nobody takes a lease of
        this thread before the transaction is over.
        """
        for hold in self._thread.holds:
            asked = select(leases.c.token).where(leases.c.scope == hold.scope)
            if rows.connection.scalar(asked.with_for_update(read=True)) != hold.token:
                raise OvertakenError(
                    f"another replica took over gallery '{hold.scope.partition('.')[0]}': "
                    "send the change again"
                )

    def taken(self, scope: str) -> Hold | None:
        """Take a lease, of a holder that is gone or of this machine, whose locks say that it is; None where
        another replica holds it.
        """
        with self._changing() as rows:
            rows.connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(scope))))
            before = rows.first(leases, leases.c.scope == scope)
            now = float(rows.connection.scalar(select(_now())) or 0.0)
            if before is not None and before.until > now and before.replica != self.replica:
                return None
            token = 1 if before is None else before.token + 1
            holder = f"{self.replica}:{os.getpid()}:{secrets.token_hex(4)}"
            values = {"holder": holder, "replica": self.replica, "until": now + LEASE_SECONDS}
            rows.put(leases, {"scope": scope, "token": token, **values})
            return Hold(scope, token)

    def _wait_for(self, scope: str, patience: float) -> Hold:
        deadline = time.monotonic() + patience
        while (hold := self.taken(scope)) is None:
            if time.monotonic() > deadline:
                gallery = scope.partition(".")[0]
                raise GalleryBusyError(
                    f"gallery '{gallery}' is being written through another replica: wait for it"
                )
            time.sleep(_POLL_SECONDS)
        return hold

    def _show_life(self, hold: Hold) -> None:
        while not hold.ended.wait(_SECONDS_BETWEEN_SIGNS):
            try:
                self.renew(hold)
            except StorageError as error:
                logger.info("%s; the lease of '%s' is renewed later", error, hold.scope)

    def renew(self, hold: Hold) -> None:
        """Hold a lease for longer, unless it is lost."""
        self._set_until(hold, _now() + LEASE_SECONDS)

    def _give_back(self, hold: Hold) -> None:
        try:
            self._set_until(hold, 0.0)
        except StorageError as error:
            # Without signs of life it is lost in some seconds.
            logger.warning("%s; the lease of '%s' is not given back", error, hold.scope)

    def _set_until(self, hold: Hold, until: Any) -> None:
        with self._changing() as rows:
            rows.change(leases, leases.c.scope == hold.scope, leases.c.token == hold.token, until=until)

    @contextmanager
    def _changing(self) -> Iterator[Rows]:
        with self._database.changing() as connection:
            yield Rows(connection, 0, self._database.place)


def _now() -> Any:
    """Seconds since 1970 by the database's clock."""
    return cast(extract("epoch", func.clock_timestamp()), Float)

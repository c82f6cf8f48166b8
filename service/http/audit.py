"""Audit log: one line of JSON for every change asked for over HTTP, and for what a key may not do. Refusals
without a key go to another file, some lines a second, so that no stranger pushes the others out.
"""

from __future__ import annotations

import json
import logging
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.indexer.errors import IndexerError, StorageError
from vicinal.indexer.storage.files import file_lock, make_folder
from vicinal.service.http.access import call_of

logger = logging.getLogger(__name__)

_MOST_BYTES = 16 * 2**20
_N_KEPT = 8
_MOST_IDS = 100
_MOST_A_SECOND = 20
_LONGEST = 256
_PATIENCE = 5.0


class AuditLog:
    """The file of an audit log, which any number of processes append to."""

    def __init__(self, path: Path, most_bytes: int = _MOST_BYTES) -> None:
        self.path = path
        self._most_bytes = most_bytes

    def require_writable(self) -> None:
        """Refuse a change that could not be noted, unless the disk is full: what frees room is a change."""
        make_folder(self.path.parent)
        try:
            os.close(self._opened())
        except OSError as error:
            raise StorageError(
                f"the audit log '{self.path}' cannot be written ({error.strerror}): nothing is changed"
            ) from error

    def append(self, line: dict[str, Any]) -> None:
        """Write one line."""
        text = json.dumps(line, ensure_ascii=True, default=str) + "\n"
        make_folder(self.path.parent)
        busy = f"the audit log '{self.path}' is held by a process that hangs"
        with file_lock(self.path.with_suffix(".lock"), busy, patience=_PATIENCE):
            try:
                self._rotate()
                descriptor = self._opened()
                try:
                    # One call, so that a line is there whole or not at all.
                    os.write(descriptor, text.encode())
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise StorageError(
                    f"the audit log '{self.path}' cannot be written: {error.strerror}"
                ) from error

    def _opened(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def _rotate(self) -> None:
        if not self.path.exists() or self.path.stat().st_size < self._most_bytes:
            return
        for number in range(_N_KEPT - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                older.replace(self._numbered(number + 1))
        self.path.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


class StrangerLog(AuditLog):
    """The same for calls without a key: of more than some a second, only how many."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._second, self._n_noted, self._n_more = 0, 0, 0

    def append(self, line: dict[str, Any]) -> None:
        """Write one line, unless there were many in this second; the next one says how many were left out."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._n_noted = second, 0
        if self._n_noted >= _MOST_A_SECOND:
            self._n_more += 1
            return
        self._n_noted += 1
        more, self._n_more = self._n_more, 0
        super().append({**line, "n_left_out": more} if more else line)


def note_items(request: Request, item_ids: list[str]) -> None:
    """Tell the audit log which items a call is about, where its address does not."""
    call_of(request.scope).items.update(n_items=len(item_ids), items=item_ids[:_MOST_IDS])


async def note(log: AuditLog, who: str, route: str | None, scope: Scope, status: int) -> None:
    """Note a change that was asked for; `route` has names in place of values."""
    line = _line(Request(scope), who, route, status)
    try:
        await run_in_threadpool(log.append, line)
    except IndexerError:
        # The change is made, and cannot be taken back.
        logger.exception("a change is missing in the audit log: %s", json.dumps(line, default=str))


async def audited(
    app: ASGIApp, log: AuditLog, who: str, route: str, scope: Scope, receive: Receive, send: Send
) -> None:
    """Pass a change on, and note it before its answer begins, or when there is none."""
    is_noted = False

    async def noting(message: Message) -> None:
        nonlocal is_noted
        if not is_noted:
            is_noted = True
            await note(log, who, route, scope, int(message["status"]))
        await send(message)

    try:
        await app(scope, receive, noting)
    except Exception:
        # It is answered further out. Some of it may be done.
        if not is_noted:
            await note(log, who, route, scope, 500)
        raise


def _line(request: Request, who: str, route: str | None, status: int) -> dict[str, Any]:
    path = request.scope["path"]
    return {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "who": who,
        "client": request.client.host if request.client else None,
        "request_id": (request.headers.get("x-request-id") or "")[:_LONGEST] or None,
        "method": request.method,
        "route": route,
        "path": path[: 4 * _LONGEST],
        **call_of(request.scope).items,
        "status": status,
    }

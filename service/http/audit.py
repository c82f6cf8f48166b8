"""Audit log: one line of JSON for every change that was asked for over HTTP.

Who, what, when, from where, and with what outcome. Lines are only ever appended; a file that has grown large
gets a number, and of the numbered ones the oldest go.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.indexer.errors import IndexerError, StorageError
from vicinal.indexer.storage.files import file_lock

__all__ = ["AuditLog", "audited", "note_items"]

logger = logging.getLogger(__name__)

_NOTES = "vicinal.audit"
_MOST_BYTES = 16 * 2**20
_N_KEPT = 8
_MOST_IDS = 100
_LONGEST = 256
_PATIENCE = 5.0


class AuditLog:
    """The file of an audit log, which any number of processes append to.

    Args:
        path: The file; numbered ones lie beside it.
        most_bytes: Size from which on it gets a number.
    """

    def __init__(self, path: Path, most_bytes: int = _MOST_BYTES) -> None:
        self.path = path
        self._most_bytes = most_bytes

    def require_writable(self) -> None:
        """Refuse a change that could not be noted, before it is begun.

        A disk that is full does not stop it: what frees room is a change too.

        Raises:
            StorageError: The file cannot be opened.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(self._opened())
        except OSError as error:
            raise StorageError(
                f"the audit log '{self.path}' cannot be written ({error.strerror}): nothing is changed"
            ) from error

    def append(self, line: dict[str, Any]) -> None:
        """Write one line.

        Raises:
            IndexerError: Somebody else keeps writing, or the disk refuses.
        """
        text = json.dumps(line, ensure_ascii=True, default=str) + "\n"
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


def note_items(request: Request, item_ids: list[str]) -> None:
    """Tell the audit log which items a call is about, where its address does not."""
    request.scope.get(_NOTES, {}).update(n_items=len(item_ids), items=item_ids[:_MOST_IDS])


async def audited(
    app: ASGIApp, log: AuditLog, who: str, route: str, scope: Scope, receive: Receive, send: Send
) -> None:
    """Pass a change on, and note it before its answer begins.

    Args:
        app: What makes it.
        log: Where it is noted.
        who: Name of its key, or what stands for one.
        route: Path of the route, with names in place of values.
        scope: The request.
        receive: Gives its body.
        send: Takes the answer.
    """
    request, notes, is_noted = Request(scope), dict[str, Any](), False

    async def noting(message: Message) -> None:
        nonlocal is_noted
        if message["type"] == "http.response.start" and not is_noted:
            is_noted = True
            line = _line(request, who, route, notes, int(message["status"]))
            try:
                await run_in_threadpool(log.append, line)
            except IndexerError:
                # The change is made, and cannot be taken back.
                logger.exception("a change is missing in the audit log: %s", json.dumps(line, default=str))
        await send(message)

    await app({**scope, _NOTES: notes}, receive, noting)


def _line(request: Request, who: str, route: str, notes: dict[str, Any], status: int) -> dict[str, Any]:
    path = request.scope["path"]
    return {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "who": who,
        "client": request.client.host if request.client else None,
        "request_id": (request.headers.get("x-request-id") or "")[:_LONGEST] or None,
        "method": request.method,
        "route": route,
        "path": path[: 4 * _LONGEST],
        **notes,
        "status": status,
    }

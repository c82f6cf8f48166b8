"""Logs: every line of the process, from whichever package, as JSON or for a person, with its request's id."""

from __future__ import annotations

import logging
import os
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from logging.handlers import QueueHandler, QueueListener
from queue import Full, Queue
from typing import IO, Any, Literal

import structlog

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]
# Ids of requests are no secrets; to ask the system for each costs more than to make it.
_RANDOM = random.Random()
# Nothing that could begin a line of its own, or be taken for another field.
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
# What other packages say in the course of things.
_CHATTY = ("faiss.loader", "httpx", "PIL", "lance", "filelock")
# Some seconds of a busy server's lines, a few megabytes.
_MOST_LINES = 20_000
# For who reads to take what is left, when the process ends.
_END_SECONDS = 2.0


def configure_logs(level: LogLevel = "info", form: LogFormat = "auto", *, to: IO[str] | None = None) -> None:
    """Send all logs of the process to one place in one form; to standard error when `to` is None."""
    stream = sys.stderr if to is None else to
    is_console = form == "console" or (form == "auto" and stream.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    last: list[structlog.typing.Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if is_console:
        last.append(structlog.dev.ConsoleRenderer(colors=stream.isatty()))
    else:
        last += [structlog.processors.EventRenamer("message"), structlog.processors.JSONRenderer(default=str)]
    handler = BackgroundStream(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last, keep_exc_info=False)
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def request_id_of(sent: str | None) -> str:
    """Id of a request: what its client sent where that is one, else a new one."""
    return sent if sent is not None and _REQUEST_ID.fullmatch(sent) else f"{_RANDOM.getrandbits(64):016x}"


@contextmanager
def with_request_id(request: str) -> Iterator[None]:
    """Let all that is logged meanwhile, in threads that a request is handed to as well, name the request."""
    with structlog.contextvars.bound_contextvars(request_id=request):
        yield


def request_id() -> str | None:
    """Id of the request that is answered here; None outside of one."""
    found = structlog.contextvars.get_contextvars().get("request_id")
    return None if found is None else str(found)


class BackgroundStream(QueueHandler):
    """Writes lines in the background, so that a stuck reader stops nothing; those beyond a bound are lost."""

    def __init__(self, stream: IO[str]) -> None:
        self._lines: Queue[Any] = Queue(_MOST_LINES)
        super().__init__(self._lines)
        self._n_lost = 0
        self._is_closed = False
        _Writer(self._lines, stream).start()

    def enqueue(self, record: logging.LogRecord) -> None:
        """Let a line wait to be written."""
        if self._is_closed:
            return
        try:
            if self._n_lost:
                self._lines.put_nowait(self._of_lost())
                self._n_lost = 0
            self._lines.put_nowait(record)
        except Full:
            self._n_lost += 1

    def flush(self) -> None:
        """Wait until what was logged is written, some seconds at most."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, _END_SECONDS)

    def close(self) -> None:
        """Write what waits; nothing is written afterwards."""
        self.flush()
        self._is_closed = True
        super().close()

    def _of_lost(self) -> Any:
        said = f"{self._n_lost} lines were lost: nobody read them"
        return self.prepare(logging.LogRecord(__name__, logging.WARNING, __file__, 0, said, (), None))


class _Writer(QueueListener):
    """Writes lines that are formatted; a handler has a lock, for which a process would wait when it ends."""

    def __init__(self, lines: Queue[Any], stream: IO[str]) -> None:
        super().__init__(lines)
        self._stream = stream

    def handle(self, record: logging.LogRecord) -> None:
        """Write one line."""
        text = f"{record.msg}\n"
        # When nobody is there to read, nobody is there to be told of it either.
        with suppress(OSError, ValueError):
            try:
                handle = self._stream.fileno()
            except (OSError, ValueError):
                self._stream.write(text)
                return
            # Not by the stream: its lock, held while nobody reads, breaks off a process that ends meanwhile.
            data = text.encode(errors="backslashreplace")
            while data:
                data = data[os.write(handle, data) :]

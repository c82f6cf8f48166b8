"""A log handler that never makes who logs wait: lines are written in a thread of its own."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from logging.handlers import QueueHandler, QueueListener
from queue import Full, Queue
from typing import IO, Any

# Some seconds of a busy server's lines, a few megabytes.
_MOST_LINES = 20_000
# For who reads to take what is left, when the process ends.
_END_SECONDS = 2.0


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
        # When nobody is there to read, nobody is there to be told of it either.
        with suppress(OSError, ValueError):
            self._put(f"{record.msg}\n")

    def _put(self, text: str) -> None:
        try:
            handle = self._stream.fileno()
        except (OSError, ValueError):
            self._stream.write(text)
            return
        # Not by the stream: its lock, held while nobody reads, breaks off a process that ends meanwhile.
        data = text.encode(errors="backslashreplace")
        while data:
            data = data[os.write(handle, data) :]

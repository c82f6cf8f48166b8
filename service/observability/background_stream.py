"""A log handler that never makes who logs wait: lines are written in a thread of its own."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from contextlib import suppress
from typing import IO

# Some seconds of a busy server's lines, a few megabytes.
_MOST_LINES = 20_000
# Lines that are written with one call of the system.
_TOGETHER = 200
# For who reads to take what is left, when the process ends.
_END_SECONDS = 2.0


class BackgroundStream(logging.Handler):
    """Writes lines to a stream in the background.

    A terminal that is held, or a collector that reads no more, would otherwise stop the whole server at its
    next line. While nobody reads, a bounded number of lines waits; those beyond it are lost and counted, and
    the count is told when there is room again.

    Args:
        stream: Where to.
    """

    def __init__(self, stream: IO[str]) -> None:
        super().__init__()
        self._stream = stream
        self._waiting: deque[str] = deque()
        self._changed = threading.Condition()
        self._n_lost = 0
        self._is_writing = False
        self._is_closed = False
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Let a line wait to be written."""
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        with self._changed:
            if self._writer is None and not self._is_closed:
                self._writer = threading.Thread(target=self._write, name="logs", daemon=True)
                self._writer.start()
            if len(self._waiting) >= _MOST_LINES:
                self._n_lost += 1
                return
            self._waiting.append(line)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until what was logged is written, some seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._is_writing), _END_SECONDS)

    def close(self) -> None:
        """Write what waits, and end the thread; nothing is written afterwards."""
        self.flush()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        super().close()

    def _write(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    return
                lines = [self._waiting.popleft() for _ in range(min(_TOGETHER, len(self._waiting)))]
                if self._n_lost:
                    lines.append(self._of_lost())
                self._is_writing = True
            # When nobody is there to read, nobody is there to be told of it either.
            with suppress(OSError, ValueError):
                self._put("\n".join(lines) + "\n")

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

    def _of_lost(self) -> str:
        n, self._n_lost = self._n_lost, 0
        record = logging.LogRecord(
            __name__, logging.WARNING, __file__, 0, "%s lines were lost: nobody read them", (n,), None
        )
        return self.format(record)

"""Process: limits that it sets for itself when it starts, threads beside what it answers, and its end."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self

from vicinal.indexer.errors import IndexerError

logger = logging.getLogger(__name__)
# Parameters of glibc's `mallopt`, and what they are set to: memory that a thread gave back is used by others,
# what is large is mapped on its own, and what is free at the end of the heap goes back to the system.
_MALLOC = {-8: 4, -3: 2**20, -1: 2**25}
# Lance starts a thread for each file that it reads at once, up to hundreds where a gallery has many; each
# keeps memory. An operator's own numbers count.
_LANCE = {"LANCE_IO_THREADS": "4", "LANCE_DEFAULT_FRAGMENT_READAHEAD": "2"}


def prepare_process() -> None:
    """Bound threads and their memory, and take all open files, before a gallery is read."""
    # GPUs are counted as the driver's tool does.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    for name, number in _LANCE.items():
        os.environ.setdefault(name, number)
    with suppress(AttributeError, OSError):
        # Other C libraries have no such function, and no such arenas.
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in _MALLOC.items():
            mallopt(parameter, value)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def ends_process() -> Iterator[None]:
    """Let the process end with the status of what runs in the context, whatever its threads are at.

    When an interpreter is taken down, a thread that comes back from native code is ended by unwinding its
    stack. Rust, and so Lance, aborts the process then. Where threads are left, nothing is taken down.
    """
    status: list[int] = []
    # What is registered first is called last: all that others registered since has been done.
    atexit.register(_leave, status)
    try:
        yield
    except SystemExit as end:
        status.append(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
    except BaseException:
        status.append(1)
        raise
    status.append(0)


def _leave(status: list[int]) -> None:
    if threading.active_count() == 1:
        return
    logging.shutdown()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status[0])


class BackgroundWork:
    """Work of a thread while entered as a context; its end waits `stop_seconds` at most for what is left."""

    name = "background"
    stop_seconds: float | None = None

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._is_stopping = False
        self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        with self._changed:
            self._is_stopping = True
            # Of one that was entered twice, both threads.
            self._changed.notify_all()
        if thread is not None:
            thread.join(self.stop_seconds)

    def _waited(self, seconds: float) -> bool:
        """Wait for some seconds, or less where it is to stop; tell whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_stopping, seconds)

    def _work(self) -> None:
        """Go on until `_is_stopping`, which `_changed` and `_waited` tell of."""
        raise NotImplementedError


class Looks(BackgroundWork):
    """Looks that a thread takes again and again while the context lasts; one that fails is logged once."""

    # It may wait for a database, or open what is large. A daemon: the process ends without it.
    stop_seconds = 3.0

    def __init__(self, name: str, look: Callable[[], object], seconds: float) -> None:
        super().__init__()
        self.name, self._look, self._seconds = name, look, seconds
        self._is_failing = False

    def _work(self) -> None:
        while not self._is_stopping:
            self.tried(self._look)
            self._waited(self._seconds)

    def tried(self, look: Callable[[], object]) -> bool:
        """Tell whether a look found anything; whatever fails, requests meet it too."""
        try:
            found = bool(look())
        except Exception as error:
            if not self._is_failing:
                logger.warning("%s; %s is tried again", error, self.name, exc_info=not _is_told(error))
            self._is_failing = True
            return False
        if self._is_failing:
            logger.warning("%s goes on again", self.name)
        self._is_failing = False
        return found


def _is_told(error: Exception) -> bool:
    return isinstance(error, IndexerError | OSError)

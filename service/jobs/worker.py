"""Worker: takes jobs from the queue, in threads of this process."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Mapping
from typing import Self

from huey.consumer import Consumer

from vicinal.service.jobs.recovery import Recovery
from vicinal.service.jobs.runner import JobKind, JobRunner
from vicinal.service.jobs.store import JobStore

# Missed heartbeats after which a worker counts as dead.
_MISSED_BEATS = 4
_LONGEST_POLL_SECONDS = 1.0


class JobWorker:
    """Works on jobs from `start` to `stop`; also a context."""

    def __init__(
        self,
        store: JobStore,
        kinds: Mapping[str, JobKind],
        *,
        threads: int = 1,
        heartbeat_seconds: float = 5.0,
    ) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._stopping = threading.Event()
        self._seconds = heartbeat_seconds
        self._recovery = Recovery(store, patience=_MISSED_BEATS * heartbeat_seconds)
        runner = JobRunner(
            store, kinds, worker=self.name, heartbeat_seconds=heartbeat_seconds, stopping=self._stopping
        )
        store.queue.run = runner.run
        store.queue.open()
        self._consumer = Consumer(
            store.queue.huey,
            workers=threads,
            periodic=False,
            max_delay=_LONGEST_POLL_SECONDS,
            scheduler_interval=60,
        )
        # A consumer takes over the signals of its process, which belong to the server here.
        self._consumer._set_signal_handlers = _leave_signals
        self._watch = threading.Thread(target=self._recover, name="job recovery", daemon=True)

    def start(self) -> None:
        """Begin to take jobs."""
        self._consumer.start()
        self._watch.start()

    def stop(self) -> None:
        """Take no more jobs; one under way stops after its batch and waits for the next worker."""
        self._stopping.set()
        self._consumer.stop(graceful=True)
        self._watch.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _recover(self) -> None:
        while not self._stopping.wait(self._seconds):
            self._recovery.look()


def _leave_signals() -> None:
    pass

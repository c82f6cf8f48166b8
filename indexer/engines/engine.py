"""Engine: Milvus, which finds candidates beside us, as this process asks it.

A version and space is one table of it, written once and never updated. Where it is, only the settings say: no
file of a gallery, no error and no log line holds an address or a part of one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from vicinal.indexer.engines.milvus import MilvusEngine
from vicinal.indexer.errors import EngineAwayError, EngineError, EngineFullError, EngineTableError
from vicinal.indexer.storage.home.places import ENGINE as ENGINE

logger = logging.getLogger(__name__)

_OVER_A_TABLE = (
    "no gallery lies over the table of an engine any more: decide the engine's own results by "
    "calibrate_threshold (docs/python.md), or export the table to Parquet and index that"
)
# What to do instead, by the index that a version was made with.
_GONE = {
    "postgres": "PostgreSQL finds no candidates any more: index again with index 'milvus' or 'auto'",
    "over-postgres": _OVER_A_TABLE,
    "over-milvus": _OVER_A_TABLE,
}
_RETRY_SECONDS = 5.0
_LEAST_SECONDS = 0.05
# One slow search can lie with its filter; several in a row lie with the engine.
_SLOW_IN_A_ROW = 3


def require_kept(index: str) -> None:
    """Refuse an index that there was once."""
    if index in _GONE:
        raise EngineError(_GONE[index])


class Engine:
    """Milvus at an address, if any, to which it connects when it is first asked; for any number of threads.

    After a failure it is left alone for `retry_seconds`: whoever asks meanwhile gets the same error at once,
    and then one question finds out for all.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        retry_seconds: float = _RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self.n_failures = 0
        self._retry_seconds, self._clock = retry_seconds, clock
        self._lock = threading.Lock()
        self._opened: MilvusEngine | None = None
        self._failure: EngineError | None = None
        self._retry_at, self._n_slow = 0.0, 0
        # Tables that nothing needs, which it did not let go.
        self._left: list[str] = []

    @property
    def problem(self) -> str | None:
        """Reason why it is left alone; None while it is asked."""
        failure = self._failure
        return None if failure is None else str(failure)

    def look(self) -> str | None:
        """Ask whether it answers, unless it failed a moment ago; the reason why not."""
        try:
            with self.asking() as engine:
                engine.describe()
        except EngineError as error:
            return str(error)
        return None

    @contextmanager
    def asking(self) -> Iterator[MilvusEngine]:
        """Give it for one question, unless it failed a moment ago."""
        engine = self._open()
        self._enter()
        try:
            yield engine
        except (EngineTableError, EngineFullError):
            self._note_answer()
            raise
        except EngineError as error:
            self._note_failure(error)
            raise
        self._note_answer()

    def drop(self, name: str) -> None:
        """Remove a table that nothing needs; where it is not let go, as soon as it is."""
        try:
            with self.asking() as engine:
                engine.drop(name)
        except EngineError as error:
            logger.warning("table %s stays for now: %s", name, error)
            with self._lock:
                self._left.append(name)
                if len(self._left) > 1:
                    return
            threading.Thread(target=self._drop_left, name="tables of the engine", daemon=True).start()

    def close(self) -> None:
        """Close the connection; whoever asks again opens a new one."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _drop_left(self) -> None:
        while True:
            time.sleep(max(self._retry_seconds, _LEAST_SECONDS))
            for name in list(self._left):
                with suppress(EngineError):
                    with self.asking() as engine:
                        engine.drop(name)
                    with self._lock:
                        self._left.remove(name)
                        if not self._left:
                            return

    def _open(self) -> MilvusEngine:
        with self._lock:
            if self._opened is None:
                if self.address is None:
                    raise EngineError("Milvus is needed here and has no address: set VICINAL_MILVUS_URL")
                self._opened = MilvusEngine(self.address)
            return self._opened

    def _enter(self) -> None:
        """Let one question through; raises the failure again while its seconds are not over."""
        with self._lock:
            if self._failure is None:
                return
            now = self._clock()
            if now < self._retry_at:
                raise type(self._failure)(str(self._failure)) from None
            self._retry_at = now + self._retry_seconds

    def _note_failure(self, error: EngineError) -> None:
        """Leave it alone, after the third slow answer in a row or at once."""
        with self._lock:
            self.n_failures += 1
            is_slow = isinstance(error, EngineAwayError) and error.is_slow
            self._n_slow = self._n_slow + 1 if is_slow else _SLOW_IN_A_ROW
            if self._failure is None and self._n_slow < _SLOW_IN_A_ROW:
                return
            is_new, self._failure = self._failure is None, error
            self._retry_at = self._clock() + self._retry_seconds
        if is_new:
            logger.error("%s; trying again every %g s", error, self._retry_seconds)

    def _note_answer(self) -> None:
        """Ask it again as before."""
        with self._lock:
            was_away, self._failure, self._n_slow = self._failure is not None, None, 0
        if was_away:
            logger.warning("Milvus answers again")

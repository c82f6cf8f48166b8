"""Signals that go to one thread of a process, as the system may choose."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

__all__ = ["signal_a_thread_beside"]


def signal_a_thread_beside(pid: int, number: signal.Signals) -> None:
    """Send a signal to a thread of a process that is not its first, one that takes the signal.

    Args:
        pid: The process.
        number: The signal.

    Raises:
        OSError: It cannot be sent.
        ValueError: No such thread takes it.
    """
    listed = {int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()} - {pid}
    threads = {tid for tid in listed if not _blocked(pid, tid) >> (number - 1) & 1}
    library = ctypes.CDLL(None, use_errno=True)
    if library.tgkill(pid, min(threads), number):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _blocked(pid: int, tid: int) -> int:
    """Mask of the signals that a thread does not take."""
    status = Path(f"/proc/{pid}/task/{tid}/status").read_text()
    return int(status.partition("SigBlk:")[2].split()[0], 16)

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
    threads = {tid for tid in listed if _takes(pid, tid, number)}
    library = ctypes.CDLL(None, use_errno=True)
    if library.tgkill(pid, min(threads), number):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _takes(pid: int, tid: int, number: signal.Signals) -> bool:
    """Tell whether a thread takes a signal; one that has ended since takes none."""
    try:
        status = Path(f"/proc/{pid}/task/{tid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    return not blocked >> (number - 1) & 1

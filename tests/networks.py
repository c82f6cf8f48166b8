"""A network of a process's own, with nothing but its loopback."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

__all__ = ["enter_network", "own_network"]

_NEW_NETWORK = 0x40000000
_SET_FLAGS, _UP = 0x8914, 0x1


def enter_network(number: int) -> None:
    """Move the calling thread, and what it starts from now on, to a network.

    Args:
        number: Of an open file that stands for it.

    Raises:
        OSError: This process may not.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(number, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "the network cannot be entered")


@contextmanager
def own_network() -> Iterator[None]:
    """Run in this process's own network, always the same; where it may have none, in that of the machine."""
    networks = _own_and_outer()
    if networks is None:
        yield
        return
    own, outer = networks
    enter_network(own)
    try:
        yield
    finally:
        enter_network(outer)


@cache
def _own_and_outer() -> tuple[int, int] | None:
    """Files of a new network and of the one that this thread is in."""
    current = Path("/proc/thread-self/ns/net")
    if not current.exists():
        return None
    outer = os.open(current, os.O_RDONLY)
    if ctypes.CDLL(None).unshare(_NEW_NETWORK):
        os.close(outer)
        return None
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH22x", b"lo", _UP))
        return os.open(current, os.O_RDONLY), outer
    finally:
        enter_network(outer)

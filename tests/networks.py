"""A network of a process's own, with nothing but its loopback."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["enter_network", "enter_own_network", "outer_network"]

_NEW_NETWORK, _NEW_NAME = 0x40000000, 0x04000000
_SET_FLAGS, _UP = 0x8914, 0x1
_CURRENT = "/proc/thread-self/ns/net"
# Open files of the network of the machine and of this process's own, once it has one.
_networks: list[int] = []


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


def enter_own_network() -> None:
    """Move this process, for good, to a network that nobody else is in, where it may have one.

    A browser drops what it loads when a link of its network comes or goes, as those of hosts do. Threads that
    run already stay where they are.
    """
    if not sys.platform.startswith("linux"):
        return
    outer = os.open(_CURRENT, os.O_RDONLY)
    if ctypes.CDLL(None).unshare(_NEW_NETWORK | _NEW_NAME):
        os.close(outer)
        return
    _networks.extend((outer, os.open(_CURRENT, os.O_RDONLY)))
    # The machine's own name may lead to an address that is not in it, which Ray would take for this node's.
    socket.sethostname("localhost")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH22x", b"lo", _UP))


@contextmanager
def outer_network() -> Iterator[None]:
    """Start processes in the network of the machine, such as those that install packages; nothing else."""
    if not _networks:
        yield
        return
    outer, own = _networks
    enter_network(outer)
    try:
        yield
    finally:
        enter_network(own)

"""The tests' own network: each process of a run has one, and all its threads are in it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.networks import has_own_network, threads_inside

_ENTER = """
import socket
from tests.networks import enter_own_network, has_own_network, outer_network
outer = socket.if_nameindex()
enter_own_network()
assert has_own_network()
print([name for _, name in socket.if_nameindex()])
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
    print("its loopback works")
with socket.create_server((socket.gethostbyname(socket.gethostname()), 0)):
    print("its name leads there")
with outer_network():
    assert socket.if_nameindex() == outer
print([name for _, name in socket.if_nameindex()])
"""


@pytest.fixture(autouse=True)
def _needs_root() -> None:
    if not has_own_network():
        pytest.skip("a network of one's own needs root")


def test_a_new_one_has_its_loopback_alone() -> None:
    done = subprocess.run([sys.executable, "-c", _ENTER], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["['lo']", "its loopback works", "its name leads there", "['lo']"]


def test_all_threads_are_in_it() -> None:
    """Also those of pools that tests before this one have made libraries start."""
    own = Path("/proc/self/ns/net").readlink()
    for thread in threads_inside():
        with suppress(FileNotFoundError):  # It has ended
            assert (thread / "ns" / "net").readlink() == own

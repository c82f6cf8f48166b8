"""Hosts of their own for processes of a test: network namespaces, joined by two bridges.

    clients  10.x.1.0/24  the test asks the replicas here; never cut
    home     10.x.2.0/24  Redis (.1), the object store (.2), the database (.3), for replicas

A host is cut off from the home by setting its link there down: packets are lost in silence, both ways, as
with a cable that is pulled out. One address alone is cut off by a route that leads nowhere. Namespaces need
root; where they are not allowed, hosts are addresses of the loopback, and cannot be cut off.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.networks import enter_network
from tests.ports import own_numbers

__all__ = ["Host", "Network", "enter_namespace", "networked"]

_PREFIX = "vcn"
_NAMES = Path("/run/netns")


@dataclass(frozen=True)
class Host:
    """A host.

    Attributes:
        address: Where clients reach it.
        namespace: Its namespace; None where hosts are addresses of the loopback.
    """

    number: int
    address: str
    namespace: str | None

    def cut(self, *addresses: str) -> None:
        """Cut it off from some addresses of the home, or from all of it in silence."""
        if self.namespace is None:
            pytest.skip("hosts cannot be cut off: namespaces of the network need root")
        for address in addresses:
            _ip("-n", self.namespace, "route", "replace", "blackhole", f"{address}/32")
        if not addresses:
            _ip("link", "set", f"{self.namespace}h", "down")

    def heal(self) -> None:
        """Let it reach everything again."""
        if self.namespace is None:
            return
        _ip("link", "set", f"{self.namespace}h", "up")
        _ip("-n", self.namespace, "route", "flush", "type", "blackhole")


@dataclass(frozen=True)
class Network:
    """Hosts, and the addresses of what they share."""

    hosts: tuple[Host, ...]
    redis: str
    store: str
    database: str


@contextmanager
def networked(n_hosts: int) -> Iterator[Network]:
    """So many hosts; what runs on them must be over before the context is."""
    made = _Bridges(n_hosts)
    try:
        network = made.build()
    except (OSError, subprocess.CalledProcessError):
        made.remove()
        hosts = tuple(Host(i, f"127.0.0.{10 + i}", None) for i in range(n_hosts))
        yield Network(hosts, *["127.0.0.1"] * 3)
        return
    try:
        yield network
    finally:
        made.remove()


def enter_namespace(name: str) -> None:
    """Move the calling thread, and what it starts from now on, to a host's network."""
    with (_NAMES / name).open("rb") as stream:
        enter_network(stream.fileno())


class _Bridges:
    def __init__(self, n_hosts: int) -> None:
        _remove_left_over()
        # Processes of one run make theirs side by side.
        drawn = random.SystemRandom()
        self._token = f"{_PREFIX}{os.getpid():x}{drawn.randrange(16**2):02x}"
        self._net = f"10.{drawn.choice(own_numbers(64, 250))}"
        self._names = [f"{self._token}{i}" for i in range(n_hosts)]

    def build(self) -> Network:
        shared = [f"{self._net}.2.{number}" for number in (1, 2, 3)]
        for kind, addresses in (("c", [f"{self._net}.1.1"]), ("h", shared)):
            _ip("link", "add", f"{self._token}{kind}", "type", "bridge")
            _ip("link", "set", f"{self._token}{kind}", "up")
            for address in addresses:
                _ip("addr", "add", f"{address}/24", "dev", f"{self._token}{kind}")
        hosts = tuple(self._host(i, name) for i, name in enumerate(self._names))
        return Network(hosts, *shared)

    def _host(self, number: int, name: str) -> Host:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        for net, kind in ((1, "c"), (2, "h")):
            outer, inner = f"{name}{kind}", f"eth{net}"
            _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
            _ip("link", "set", outer, "master", f"{self._token}{kind}", "up")
            _ip("-n", name, "addr", "add", f"{self._net}.{net}.{10 + number}/24", "dev", inner)
            _ip("-n", name, "link", "set", inner, "up")
        return Host(number, f"{self._net}.1.{10 + number}", name)

    def remove(self) -> None:
        for name in self._names:
            _drop("netns", "del", name)
        for kind in "ch":
            _drop("link", "del", f"{self._token}{kind}")


def _remove_left_over() -> None:
    """Remove what runs that were killed have left."""
    for path in _NAMES.glob(f"{_PREFIX}*"):
        process = int(path.name.removeprefix(_PREFIX)[:-3], 16)
        if not Path(f"/proc/{process}").exists():
            _drop("netns", "del", path.name)
            for kind in "ch":
                _drop("link", "del", f"{path.name[:-1]}{kind}")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _drop(*words: str) -> None:
    with suppress(OSError, subprocess.CalledProcessError):
        _ip(*words)

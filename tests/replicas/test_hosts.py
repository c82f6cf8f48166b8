"""The harness itself: hosts that are cut off are, and heal."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.replicas.hosts import Network
from tests.replicas.programs import Store
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

_ASK = "import sys, socket; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.3)"


def reaches(namespace: str, address: str, port: int) -> bool:
    command = ["ip", "netns", "exec", namespace, sys.executable, "-ISc", _ASK, address, str(port)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("addresses", [(), ("store",)])
def test_a_host_that_is_cut_off_reaches_nothing_until_it_heals(
    network: Network, store: Store, addresses: tuple[str, ...]
) -> None:
    host, port = network.hosts[0], int(store.variables["AWS_ENDPOINT_URL"].rpartition(":")[2])
    host.cut(*(network.store for _ in addresses))
    assert host.namespace is not None
    assert not reaches(host.namespace, network.store, port)
    host.heal()
    wait_until(lambda: reaches(str(host.namespace), network.store, port))

"""A process's own network: its loopback works, and what happens to the links of the machine goes unseen."""

from __future__ import annotations

import socket

import pytest

from tests.networks import own_network


def test_it_has_its_loopback_alone_while_it_lasts() -> None:
    outer = socket.if_nameindex()
    with socket.create_server(("127.0.0.1", 0)) as elsewhere, own_network():
        if len(outer) > 1 and socket.if_nameindex() == outer:
            pytest.skip("a network of one's own needs root")
        assert [name for _, name in socket.if_nameindex()] == ["lo"]
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()),
            pytest.raises(ConnectionRefusedError),
        ):
            socket.create_connection(elsewhere.getsockname())
    assert socket.if_nameindex() == outer

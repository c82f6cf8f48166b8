"""A real server of Milvus on this machine, which a test may kill and start again."""

from __future__ import annotations

import fcntl
import os
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import free_port
from tests.waiting import wait_until

# Of the user `root` of a new server.
PASSWORD = "Milvus"
_SETTINGS = {
    "common.security.authorizationEnabled": "true",
    # It looks ten times as often what is to be done, and soon misses a server that was killed, though not one
    # whose machine stands still for a while.
    "queryCoord.checkInterval": 100,
    "queryCoord.distPullInterval": 50,
    "queryCoord.heartbeatAvailableInterval": 15000,
    "common.session.ttl": 15,
}


class MilvusServer:
    """Standalone server of the package `milvus`, of January 2024, with all that it writes in one folder."""

    def __init__(self, folder: Path, programs: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._package: Any = pytest.importorskip("milvus", exc_type=ImportError)
        self._folder, self._programs = folder, programs
        self._process: subprocess.Popen[bytes] | None = None
        config = self._package.MilvusServerConfig(data_dir=str(folder))
        ports = {name: free_port() for name in config.configurable_items if name.endswith("_port")}
        config.update(**ports)
        for setting, value in _SETTINGS.items():
            config.set(setting, value)
        config.resolve()
        self.port, self._health_port = ports["proxy_port"], free_port()
        # Its etcd listens for peers on one port of its own, which only one server of a machine could have.
        clients, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._etcd = folder / "configs" / "etcd.yaml"
        self._etcd.write_text(
            f"listen-client-urls: {clients}\nadvertise-client-urls: {clients}\nlisten-peer-urls: {peers}\n"
            f"initial-advertise-peer-urls: {peers}\ninitial-cluster: default={peers}\n"
        )
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"http://root:{PASSWORD}@{self.address}"

    def start(self) -> None:
        """Start it, also again, and wait until it is healthy."""
        with (self._programs.parent / "milvus.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._package._initialize_data_files(self._programs)
        programs = self._programs / "bin"
        surroundings = os.environ | {
            "DEPLOY_MODE": "STANDALONE",
            "ETCD_CONFIG_PATH": str(self._etcd),
            "METRICS_PORT": str(self._health_port),
            "MILVUS_RUN_DIR": str(self._folder / "run"),
            "LD_LIBRARY_PATH": str(programs),
        }
        with (self._folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [programs / "milvus", "run", "standalone"],
                cwd=self._folder,
                env=surroundings,
                stdout=output,
                stderr=output,
            )
        wait_until(self._is_healthy, every=0.1)

    def kill(self) -> None:
        """End it without a word to it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _is_healthy(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "output.txt").read_text()[-2000:]
        try:
            return "OK" in httpx.get(f"http://127.0.0.1:{self._health_port}/healthz", timeout=5).text
        except httpx.HTTPError:
            return False


@contextmanager
def serving_milvus(folder: Path, programs: Path) -> Iterator[MilvusServer]:
    """A running server; its programs are unpacked once into a folder that others may share."""
    folder.mkdir(parents=True, exist_ok=True)
    programs.mkdir(parents=True, exist_ok=True)
    server = MilvusServer(folder, programs)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def milvus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusServer]:
    """One server for all tests of a process; who kills it starts it again."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if os.environ.get("PYTEST_XDIST_WORKER") else shared
    with serving_milvus(tmp_path_factory.mktemp("milvus"), shared / "milvus-programs") as server:
        yield server

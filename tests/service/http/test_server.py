"""Serving over sockets: ports are taken early, and stopping a server is no error."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.ports import free_port
from tests.service.types import MakeSettings
from tests.waiting import Clock, wait_for_job, wait_until
from vicinal.models.bundle import ModelBundle
from vicinal.service.errors import RequestError
from vicinal.service.http.app import create_app
from vicinal.service.http.serving import server
from vicinal.service.http.serving.server import listen, serving
from vicinal.service.http.state import state_of

SEARCH, ITEM = "/v1/galleries/shoes/search", {"item_id": "plain/view 0.png"}
LIVE = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=60) as there:
        yield there


def rest_of(there: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    received = b""
    with suppress(ConnectionResetError):
        while part := there.recv(65_536):
            received += part
    return received


def test_a_taken_port_is_refused_in_one_sentence() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(RequestError, match=rf"127\.0\.0\.1:{port}.* --port"):
            listen("127.0.0.1", port)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_server_ends_without_an_error(
    tmp_path: Path, tiny_bundle: ModelBundle, stop: signal.Signals
) -> None:
    port = free_port()
    command = [sys.executable, "-m", "vicinal", "serve", "--port", str(port), "--data-dir", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--bundle", str(tiny_bundle.path)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[3],
        env={key: value for key, value in os.environ.items() if not key.startswith("VICINAL_")},
    )
    try:
        wait_until(lambda: is_alive(f"http://127.0.0.1:{port}/livez"), every=0.1)
        process.send_signal(stop)
        _, written = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, "Traceback" in written) == (0, False)


def is_alive(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def test_accepted_connections_do_not_wait_for_acknowledgments() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.slow
def test_headers_that_come_too_slowly_are_408(calibrated_dir: Path, make_settings: MakeSettings) -> None:
    with serving(make_settings(calibrated_dir, request_seconds=1.0)) as url, connected(url) as there:
        there.sendall(b"GET /livez HT")
        assert rest_of(there).startswith(b"HTTP/1.1 408 ")


@pytest.mark.slow
def test_a_server_that_stops_answers_what_was_on_its_way(
    calibrated_dir: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    app = create_app(make_settings(calibrated_dir))
    with ExitStack() as held:
        with serving(app) as url:
            idle = [held.enter_context(connected(url)) for _ in range(2)]
            for there in idle:
                there.sendall(LIVE)
                assert b"connection: close" not in there.recv(65_536)
            received: list[bytes] = []

            def ask_when_it_stops() -> None:
                assert state_of(app).stopping.wait(60)
                idle[0].sendall(LIVE)
                received.append(rest_of(idle[0]))
                # It need not take more requests.
                clock.now += server._DRAIN_SECONDS

            stopping = threading.Thread(target=ask_when_it_stops)
            stopping.start()
        stopping.join()
        assert b"connection: close" in received[0]
        # The other one sent nothing, and is closed.
        assert b"HTTP" not in rest_of(idle[1])


@pytest.mark.slow
def test_an_application_that_is_served_in_another_way_works_on_jobs(
    calibrated_base: Path, tmp_path: Path, make_settings: MakeSettings
) -> None:
    copy = Path(shutil.copytree(calibrated_base, tmp_path / "copy"))
    with TestClient(create_app(make_settings(copy))) as client:
        accepted = client.post("/v1/admin/galleries/shoes/calibrations", json={"activate": False})
        assert wait_for_job(client, accepted)["state"] == "succeeded"


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "n_at_a_time"), [(1, 32), (2, 1)])
def test_processes_take_few_connections_at_a_time_and_one_where_they_share_a_port(
    calibrated_dir: Path,
    make_settings: MakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    n_at_a_time: int,
) -> None:
    taken, waiting = [], []
    create_server = asyncio.BaseEventLoop.create_server

    async def noted(loop: Any, *arguments: Any, sock: socket.socket, **further: Any) -> Any:
        taken.append(further["backlog"])
        waiting.append(sock)
        return await create_server(loop, *arguments, sock=sock, **further)

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_server", noted)
    with serving(make_settings(calibrated_dir, workers=workers)) as url:
        assert httpx.get(f"{url}/livez").status_code == 200
        # The system keeps as many for them as it keeps for one.
        information = waiting[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        (n_kept,) = struct.unpack_from("I", information, 28)
        assert n_kept == min(2048, int(Path("/proc/sys/net/core/somaxconn").read_text()))
    assert taken == [n_at_a_time]

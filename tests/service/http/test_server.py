"""Serving: ports are taken early, and stopping a server is no error."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.ports import free_port
from tests.service.types import MakeSettings
from tests.waiting import wait_for_job, wait_until
from vicinal.models.bundle import ModelBundle
from vicinal.service.errors import RequestError
from vicinal.service.http.app import create_app
from vicinal.service.http.serving.server import listen, serving

pytestmark = pytest.mark.slow


def test_a_taken_port_is_refused_in_one_sentence() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(RequestError, match=rf"127\.0\.0\.1:{port}.* --port"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_server_ends_without_an_error(
    tmp_path: Path, tiny_bundle: ModelBundle, stop: signal.Signals
) -> None:
    port = free_port()
    command = [sys.executable, "-m", "vicinal", "serve", "--port", str(port), "--data-dir", str(tmp_path)]
    server = subprocess.Popen(
        [*command, "--bundle", str(tiny_bundle.path)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[3],
        env={key: value for key, value in os.environ.items() if not key.startswith("VICINAL_")},
    )
    try:
        wait_until(lambda: is_alive(f"http://127.0.0.1:{port}/livez"), every=0.1)
        server.send_signal(stop)
        _, written = server.communicate(timeout=30)
    finally:
        server.kill()
    assert (server.returncode, "Traceback" in written) == (0, False)


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


def test_an_application_that_is_served_in_another_way_works_on_jobs(
    calibrated_base: Path, tmp_path: Path, make_settings: MakeSettings
) -> None:
    copy = Path(shutil.copytree(calibrated_base, tmp_path / "copy"))
    with TestClient(create_app(make_settings(copy))) as client:
        accepted = client.post("/v1/admin/galleries/shoes/calibrations", json={"activate": False})
        assert wait_for_job(client, accepted)["state"] == "succeeded"


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

"""Serving: ports are taken early, and stopping a server is no error."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.ports import free_port
from tests.service.types import MakeSettings
from tests.waiting import wait_for_job, wait_until
from vicinal.models.bundle import ModelBundle
from vicinal.service.errors import RequestError
from vicinal.service.http.app import create_app
from vicinal.service.http.serving.server import listen

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
    except httpx.ConnectError:
        return False


def test_accepted_connections_do_not_wait_for_acknowledgments() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_an_application_that_is_served_in_another_way_works_on_jobs(
    calibrated_dir: Path, tmp_path: Path, make_settings: MakeSettings
) -> None:
    copy = Path(shutil.copytree(calibrated_dir, tmp_path / "copy"))
    with TestClient(create_app(make_settings(copy))) as client:
        accepted = client.post("/v1/admin/galleries/shoes/calibrations", json={"activate": False})
        assert wait_for_job(client, accepted)["state"] == "succeeded"

"""The client against a real server that is killed in the middle of an upload, and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.ports import free_port
from tests.waiting import wait_until
from vicinal.models.bundle import ModelBundle
from vicinal_client import AsyncClient, Client, Retries, UploadProgress, VicinalError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
N = 320
GALLERY = "shop"


class ServerProcess:
    """`vicinal serve`, which can be killed and started again at the same address."""

    def __init__(self, data_dir: Path, bundle: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        words = ["serve", "--port", str(port), "--data-dir", str(data_dir), "--bundle", str(bundle)]
        self._command = [sys.executable, "-m", "vicinal", *words]
        self._process: subprocess.Popen[bytes] | None = None
        self.n_killed = 0

    def start(self, *, wait: bool = True) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("VICINAL_")}
        environment["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT}"
        self._process = subprocess.Popen(self._command, env=environment, stderr=subprocess.DEVNULL)
        if wait:
            wait_until(self.answers, every=0.1)

    def answers(self) -> bool:
        try:
            with Client(self.url, retries=Retries(attempts=1)) as client:
                client.livez()
        except VicinalError:
            return False
        return True

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self.n_killed += 1


@pytest.fixture
def server(tmp_path: Path, tiny_bundle: ModelBundle) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path / "data", tiny_bundle.path)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Small pictures of ten labels, no two alike."""
    rng = np.random.default_rng(0)
    for number in range(N):
        folder = tmp_path / "photos" / f"label {number % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return tmp_path / "photos"


def uploaded(kind: type, url: str, photos: Path, on_progress: Callable[[UploadProgress], None]) -> Any:
    """The result of an upload by one of both clients."""
    retries = Retries(first_wait=0.1)
    options: dict[str, Any] = {"on_progress": on_progress, "batch_bytes": 20_000, "patience": 120.0}
    if kind is Client:
        with Client(url, retries=retries) as client:
            return client.add_images(GALLERY, photos, prefix="", **options)

    async def add() -> Any:
        async with AsyncClient(url, retries=retries) as client:
            return await client.add_images(GALLERY, photos, prefix="", **options)

    return asyncio.run(add())


@pytest.mark.parametrize(("kind", "kill_at"), [(Client, [N // 4, N // 2]), (AsyncClient, [N // 3])])
def test_every_image_is_there_once_although_the_server_was_killed(
    kind: type, kill_at: list[int], server: ServerProcess, photos: Path
) -> None:
    broken = photos / "label 3" / "broken.png"
    broken.write_bytes(b"this is no image")
    ids = {path.relative_to(photos).as_posix() for path in photos.rglob("*.png") if path != broken}
    still = list(kill_at)

    def kill_and_start_again(progress: UploadProgress) -> None:
        """The other request is under way meanwhile."""
        if still and progress.n_done >= still[0]:
            still.pop(0)
            server.kill()
            server.start(wait=False)

    with Client(server.url) as client:
        client.put_gallery(GALLERY)
        result = uploaded(kind, server.url, photos, kill_and_start_again)
        there = [item.id for item in client.iter_items(GALLERY)]
        gallery = client.get_gallery(GALLERY)
    assert server.n_killed == len(kill_at)
    assert Counter(there) == Counter(ids)
    assert (gallery.n_items, gallery.n_labels) == (N, 10)
    (failure,) = result.failures
    assert (failure.path, failure.kind) == (broken, "not-an-image")
    assert "image" in failure.reason
    assert result.n_added + result.n_unchanged == N
    assert result.n_added > N // 2


def test_a_server_that_stays_dead_stops_the_upload(server: ServerProcess, photos: Path) -> None:
    """Negative control: without a restart the images are not there, and it is said."""
    with Client(server.url, retries=Retries(first_wait=0.05)) as client:
        client.put_gallery(GALLERY)

        def kill(_: UploadProgress) -> None:
            server.kill()

        began = time.monotonic()
        with pytest.raises(VicinalError, match="stopped after"):
            client.add_images(GALLERY, photos, on_progress=kill, batch_bytes=20_000, patience=1.0)
    assert time.monotonic() - began < 60

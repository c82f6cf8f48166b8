"""Which files of ours an image query passes on its way to the answer, and a calibration to its record.

A file is passed when a function of it is called. `tests/test_walks.py` holds how many there may be.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from fastapi.testclient import TestClient
from PIL import Image
from starlette.responses import Response
from typer.testing import CliRunner

import vicinal
from tests.conftest import write_tiny_bundle
from vicinal.indexer.gallery import Gallery
from vicinal.service.cli import app as commands
from vicinal.service.cli.options import Home
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.http.app import create_app
from vicinal.service.http.routes.search import search
from vicinal.service.http.state import state_of
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.operations import Progress, index
from vicinal.service.operations import calibrate as operation
from vicinal.service.operations.place import Place
from vicinal.service.settings import Settings

PACKAGE = Path(vicinal.__file__).parent
GALLERY = "shoes"
SECONDS = 120.0
LABELS, VIEWS = 10, 6
# Threads that look after galleries meanwhile, and take part in nobody's way.
BESIDE = {"checks of galleries"}


class Walk:
    """Notes the files in which functions are called, in every thread that begins while it watches, but for
    those `BESIDE`.

    Args:
        begins: The function that the walk begins with.
        ends: The function that it ends with, at its return.
    """

    def __init__(self, begins: Any, ends: Any) -> None:
        self._begins = begins.__code__
        self._ends = ends.__code__
        self._paths: set[Path] = set()
        self._under_way = False
        self.is_over = threading.Event()

    @property
    def files(self) -> list[str]:
        """Paths inside the package."""
        return sorted(one.relative_to(PACKAGE).as_posix() for one in self._paths if PACKAGE in one.parents)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch this thread and those that begin inside the block."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, value: object) -> None:
        if event == "call":
            self._under_way |= frame.f_code is self._begins
            is_on_its_way = self._under_way and not self.is_over.is_set()
            if is_on_its_way and threading.current_thread().name not in BESIDE:
                self._paths.add(Path(frame.f_code.co_filename))
        # A coroutine that waits seems to return too, but gives nothing of ours.
        elif event == "return" and frame.f_code is self._ends and _is_ours(value):
            self.is_over.set()


def _is_ours(value: object) -> bool:
    return isinstance(value, Response) or type(value).__module__.startswith("vicinal.")


def prepare(folder: Path) -> Settings:
    """Index and calibrate a gallery of small pictures, and give the settings of a service over it."""
    for label in range(LABELS):
        (folder / "catalog" / str(label)).mkdir(parents=True)
        for view in range(VIEWS):
            (folder / "catalog" / str(label) / f"{view}.png").write_bytes(picture(label, view))
    bundle = write_tiny_bundle(folder / "bundle").path
    settings = Settings(data_dir=folder / "data", bundle=bundle, device="cpu", threads=1)
    _command(settings, "index", folder / "catalog", "--gallery", GALLERY)
    _command(settings, "calibrate", "--gallery", GALLERY)
    return settings


def picture(label: int, view: int) -> bytes:
    """A PNG file; views of a label look alike."""
    coarse = np.random.default_rng(label).integers(30, 226, (5, 5, 3))
    noise = np.random.default_rng([label, view]).integers(-25, 26, (5, 5, 3))
    stream = io.BytesIO()
    small = Image.fromarray(np.clip(coarse + noise, 0, 255).astype(np.uint8))
    small.resize((48, 40), Image.Resampling.BICUBIC).save(stream, "PNG")
    return stream.getvalue()


def _command(settings: Settings, *arguments: object) -> None:
    where = ["--data-dir", str(settings.data_dir), "--bundle", str(settings.bundle)]
    result = CliRunner().invoke(commands, [str(one) for one in arguments] + where, catch_exceptions=False)
    if result.exit_code:
        raise RuntimeError(result.output)


def query_walk(settings: Settings) -> list[str]:
    """Files that an image passes over HTTP, from its route to the answer."""
    before = {*threading.enumerate()}
    app = create_app(settings)
    path = f"/v1/galleries/{GALLERY}/search"
    client, walk = TestClient(app), Walk(search, search)
    # What is loaded once does not count.
    client.post(path, files={"image": picture(0, VIEWS)}).raise_for_status()
    # Only threads that begin later are watched; one that has not ended yet would take the search.
    state_of(app).searches.stop()
    for thread in {*threading.enumerate()} - before:
        if thread.name.startswith("search "):
            thread.join(SECONDS)
    with walk.watching():
        client.post(path, files={"image": picture(1, VIEWS)}).raise_for_status()
    return walk.files


def index_walk(settings: Settings) -> list[str]:
    """Files that a folder passes from what is asked for until its gallery is searched, whoever asked."""
    request = index.IndexRequest(source=str(settings.data_dir.parent / "catalog"))
    bundles, walk = ServedBundles(settings), Walk(index.run, index.run)

    def run(name: str) -> None:
        index.run(Place(bundles, Gallery(settings.gallery_path(name))), request, Progress())

    # What is loaded once does not count.
    run("boots")
    with walk.watching():
        run("bags")
    return walk.files


def calibration_walk(settings: Settings) -> list[str]:
    """Files that a calibration passes from its options to the record, whoever asked for it."""
    matcher = Home(data_dir=settings.data_dir, bundle=settings.bundle).matcher(GALLERY)
    walk = Walk(operation.measure, CalibrationStore.add)
    # What is loaded once does not count.
    operation.measure(matcher, operation.CalibrateRequest())
    with walk.watching():
        found = operation.measure(matcher, operation.CalibrateRequest())
        matcher.calibrations.add(found.record, found.scores, found.curves, activate=False)
    return walk.files


WALKS = {
    "an image query over HTTP": query_walk,
    "an index": index_walk,
    "a calibration": calibration_walk,
}

"""Fixtures of the service: a small gallery of real files, settings that point to it, and an application."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from typer.testing import CliRunner, Result

from tests import waiting
from tests.service.redis_server import RedisServer
from vicinal.calibration import Target
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source, source_name
from vicinal.indexer.views.snapshot import Snapshot, SnapshotRows, write_snapshot
from vicinal.models.bundle import BACKBONE_FILE, ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.similarity import normalize
from vicinal.service.cli import app, main
from vicinal.service.http.app import create_app
from vicinal.service.http.serving.server import serving
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.measuring.visits import find_visits
from vicinal.service.search.pipeline import Pipeline
from vicinal.service.search.redis_link import RedisLink
from vicinal.service.settings import Settings

GALLERY = "shoes"
# With a space, a quote, a percent sign and letters beyond ASCII, as people name folders.
LABELS = ("red shoe", "blé", "größe 42", "o'brien", "50% off", "鞋", "plain", "a+b", "x_y", "z-z")
VIEWS = 6


def make_view(label: int, view: int) -> Image.Image:
    """A smooth picture of one label; views differ by noise that leaves it recognizable."""
    coarse = np.random.default_rng(label).integers(30, 226, (5, 5, 3))
    noise = np.random.default_rng([label, view]).integers(-25, 26, (5, 5, 3))
    pixels = np.clip(coarse + noise, 0, 255).astype(np.uint8)
    return Image.fromarray(pixels).resize((48, 40), Image.Resampling.BICUBIC)


@pytest.fixture(autouse=True)
def no_outer_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable and no `vicinal.toml` of the machine reaches a test."""
    for name in [name for name in os.environ if name.startswith("VICINAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """What a command sets up for its logs ends with the test: its standard error is closed then."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def write_bundle(tiny_bundle: ModelBundle) -> Callable[..., ModelBundle]:
    """Writes a tiny bundle with another projection of the patches, drawn by seed."""

    def write(path: Path, seed: int) -> ModelBundle:
        shutil.copytree(tiny_bundle.path, path)
        model = onnx.load(path / BACKBONE_FILE)
        (weights,) = (one for one in model.graph.initializer if one.name == "weights")
        drawn = np.random.default_rng([1, seed]).normal(size=tuple(weights.dims)).astype(np.float32)
        weights.CopyFrom(onnx.numpy_helper.from_array(drawn, "weights"))
        onnx.save(model, path / BACKBONE_FILE)
        return ModelBundle.write(path, tiny_bundle.manifest.model_dump(exclude={"files"}))

    return write


@pytest.fixture(scope="session")
def view() -> Callable[[int, int], Image.Image]:
    """The picture of a label that the gallery's files were made with; views from 6 on are new."""
    return make_view


@pytest.fixture(scope="session")
def encode() -> Callable[..., bytes]:
    """Encodes a picture; keywords go to Pillow."""

    def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
        stream = io.BytesIO()
        image.save(stream, kind, **options)
        return stream.getvalue()

    return encoded


@pytest.fixture(scope="session")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 PNG files in 10 class folders."""
    root = tmp_path_factory.mktemp("catalog")
    for number, label in enumerate(LABELS):
        (root / label).mkdir()
        for view in range(VIEWS):
            make_view(number, view).save(root / label / f"view {view}.png")
    return root


@pytest.fixture(scope="session")
def embedder(tiny_bundle: ModelBundle) -> Embedder:
    return Embedder(tiny_bundle, device="cpu", threads=1)


@pytest.fixture(scope="session")
def base_dir(tmp_path_factory: pytest.TempPathFactory, catalog: Path, embedder: Embedder) -> Iterator[Path]:
    """Data folder with the gallery `shoes`, not calibrated; it is copied, and changed by nobody."""
    root = tmp_path_factory.mktemp("base")
    made = Gallery(root / "galleries" / GALLERY)
    index_items(made, read_source(catalog), embedder, source=source_name(catalog), workers=1)
    before = sorted(path for path in root.rglob("*"))
    yield root
    assert sorted(path for path in root.rglob("*")) == before


@pytest.fixture
def data_dir(tmp_path: Path, base_dir: Path) -> Path:
    """A copy of the data folder for one test to change."""
    shutil.copytree(base_dir, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def gallery(data_dir: Path) -> Gallery:
    return Gallery.open(data_dir / "galleries" / GALLERY)


@pytest.fixture
def matcher(gallery: Gallery, embedder: Embedder) -> Matcher:
    return Matcher(gallery, embedder)


@pytest.fixture(scope="session")
def calibrate() -> Callable[..., str]:
    """Calibrates a gallery leaving one out, and gives the record's id."""

    def run(gallery: Gallery, pipeline: Pipeline | None = None) -> str:
        snapshot = gallery.snapshot()
        visits = find_visits("auto", gallery, snapshot)
        calibrator = Calibrator(snapshot, pipeline or Pipeline(), visits=visits)
        target = Target(rate="fpir", value=0.05)
        found = calibrator.measure(LabelledQueries.leave_one_out(snapshot), target)
        return CalibrationStore(gallery.path).add(found.record, found.scores).id

    return run


@pytest.fixture(scope="session")
def make_settings(tiny_bundle: ModelBundle) -> Callable[..., Settings]:
    def make(data_dir: Path, **changes: object) -> Settings:
        fields = {"data_dir": data_dir, "bundle": tiny_bundle.path, "device": "cpu", "threads": 1}
        # What runs is waited for on a busy machine too; tests of what hangs wait less.
        fields |= {"redis_timeout_seconds": 60.0, "max_wait_seconds": 60.0}
        return Settings.model_validate({**fields, **changes})

    return make


@pytest.fixture(scope="session")
def calibrated_base(
    tmp_path_factory: pytest.TempPathFactory, base_dir: Path, calibrate: Callable[..., str]
) -> Path:
    """Data folder with the gallery `shoes`, calibrated for an FPIR of 5 %; it is copied, and not served."""
    root = tmp_path_factory.mktemp("calibrated") / "data"
    shutil.copytree(base_dir, root)
    calibrate(Gallery(root / "galleries" / GALLERY))
    return root


@pytest.fixture(scope="session")
def calibrated_dir(tmp_path_factory: pytest.TempPathFactory, calibrated_base: Path) -> Path:
    """A copy that servers share: they note in it what they did, at any time; not to be changed further."""
    return Path(shutil.copytree(calibrated_base, tmp_path_factory.mktemp("served") / "data"))


@pytest.fixture(scope="session")
def client(calibrated_dir: Path, make_settings: Callable[..., Settings]) -> TestClient:
    """Client of an application over the calibrated gallery, with small limits."""
    limits = {"max_image_bytes": 300_000, "max_request_bytes": 500_000, "max_batch": 4, "max_limit": 200}
    return TestClient(create_app(make_settings(calibrated_dir, **limits)))


@pytest.fixture(scope="session")
def calibrated_client(calibrated_dir: Path, make_settings: Callable[..., Settings]) -> TestClient:
    """The same with the usual limits."""
    return TestClient(create_app(make_settings(calibrated_dir)))


@pytest.fixture(scope="session")
def server_url(calibrated_dir: Path, make_settings: Callable[..., Settings]) -> Iterator[str]:
    """Base URL of a real server over the calibrated gallery."""
    with serving(
        make_settings(calibrated_dir, max_image_bytes=300_000, max_request_bytes=500_000, max_batch=4)
    ) as url:
        yield url


def overlapping(
    n_labels: int, per_label: int, spread: float, *, dim: int = 8, seed: int = 7
) -> tuple[FloatArray, list[str]]:
    """Embeddings around a center for each label, so far apart that all kinds of errors happen; and labels."""
    rng = np.random.default_rng(seed)
    centers = np.repeat(rng.normal(size=(n_labels, dim)), per_label, axis=0)
    labels = [f"label {i // per_label}" for i in range(n_labels * per_label)]
    return normalize(centers + spread * rng.normal(size=centers.shape)), labels


@pytest.fixture(scope="session")
def write_gallery(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Snapshot]:
    """Writes a snapshot of given embeddings, labels, and ids `0`, `1` and so on."""

    def write(
        embeddings: FloatArray,
        labels: Sequence[str | None] | None = None,
        index: str = "auto",
        bundle: str = "synthetic",
        metadata: Sequence[dict[str, object]] | None = None,
    ) -> Snapshot:
        n = len(embeddings)
        items = pa.table(
            {
                "id": pa.array([str(i) for i in range(n)], pa.string()),
                "label": pa.array(labels or [None] * n, pa.string()),
                "uri": pa.array([f"{i}.png" for i in range(n)], pa.string()),
                "metadata": pa.array([json.dumps(one) for one in metadata or [{}] * n], pa.string()),
            }
        )
        return write_snapshot(
            tmp_path_factory.mktemp("snapshots") / "1",
            SnapshotRows(items, np.arange(n), embeddings, build_neighbor_graph(embeddings)),
            index=index,
            fields={
                "version": 1,
                "revision": 1,
                "bundle": bundle,
                "bundle_name": "synthetic",
                "next_number": n,
            },
        )

    return write


@pytest.fixture
def patience(request: pytest.FixtureRequest) -> float:
    """Seconds that an answer of Redis is waited for: many, unless a test that freezes it says less."""
    return float(getattr(request, "param", 60.0))


@pytest.fixture(scope="session")
def _running_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis") / "server")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def shared_link(_running_redis: RedisServer) -> RedisLink:
    """A link to an empty Redis that no test stops."""
    link = RedisLink(_running_redis.url, timeout_seconds=60.0, retry_seconds=60.0)
    link.ask(lambda client: client.flushall())
    return link


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A running Redis that the test may stop, freeze and start again."""
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def cli_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_bundle: ModelBundle) -> None:
    """The bundle and a data folder that is empty until a test asks for `data_dir`."""
    monkeypatch.setenv("VICINAL_BUNDLE", str(tiny_bundle.path))
    monkeypatch.setenv("VICINAL_DATA_DIR", str(tmp_path / "data"))
    # Wide, so that tables are not cut off.
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def run(cli_environment: None) -> Callable[..., Result]:
    """Runs a command that is expected to work, and to end with a status."""

    def invoke(*arguments: object, status: int = 0) -> Result:
        result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
        assert result.exit_code == status, result.output
        return result

    return invoke


@pytest.fixture
def fail(
    cli_environment: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs a command that is expected to fail as one line, and gives the line."""

    def call(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["vicinal", *(str(one) for one in arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        lines = capsys.readouterr().err.strip().splitlines()
        assert stopped.value.code == 2
        assert lines[-1].startswith("vicinal: ")
        assert not any("Traceback" in line or line.startswith("  File") for line in lines)
        # Besides a progress bar that had begun there is nothing else.
        assert [line for line in lines if line.startswith("vicinal: ")] == lines[-1:]
        return lines[-1]

    return call


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    """Waits until something is true."""
    return waiting.wait_until

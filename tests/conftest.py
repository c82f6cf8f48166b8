"""Fixtures that several packages' tests share."""

from __future__ import annotations

import gc
import math
import os
import shutil
import signal
import sys
import time

# torch 2.15 crashes in the weight gradient of 1 x 1 convolutions over maps of a few pixels when several
# threads share it (oneDNN with AVX-512, float32); the tests' networks are that small. One thread is also
# faster for them. It must be set before numpy and torch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Generator
from pathlib import Path

import hypothesis
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from client import generate
from tests.networks import enter_own_network
from tests.patience import be_patient
from tests.programs import missing_programs
from vicinal.calibration.arrays import FloatArray
from vicinal.models.bundle import BACKBONE_FILE, ModelBundle, space_manifest
from vicinal.models.refiner_manifest import REFINER_FILE, REFINER_WEIGHTS_FILE, RefinerArchitecture
from vicinal.models.similarity import normalize
from vicinal.refine.weights import parameter_shapes, save_weights

# A shell lets what it starts in the background ignore Ctrl-C, and so would all that tests start.
for _signal in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, signal.default_int_handler if _signal == signal.SIGINT else signal.SIG_DFL)

# Settings of the shell reach no test, nor what a test starts, nor fixtures that outlive one test.
for _name in [name for name in os.environ if name.startswith("VICINAL_")]:
    if not _name.startswith("VICINAL_TEST_"):
        del os.environ[_name]

be_patient()

# A checkout has no models of the client, or older ones.
generate.main()

# How long an example takes says nothing here: the first one may import a library, and machines are shared.
hypothesis.settings.register_profile("untimed", deadline=None)
# Where a property does not say itself how many examples it takes.
hypothesis.settings.register_profile(
    "quick", parent=hypothesis.settings.get_profile("untimed"), max_examples=25
)

pytest_plugins = ["tests.refiner_fixtures", "tests.milvus_server", "tests.postgres_server"]

TESTS = Path(__file__).resolve().parent
SHARED = TESTS.parents[1] / "shared"
# They start processes, read what runs elsewhere, or measure.
SLOW_FOLDERS = ("benchmarks", "crash", "deploy", "packaging", "replicas")
TINY_SIDE = 32
TINY_DIM = 24


def is_quick(config: pytest.Config) -> bool:
    """Whether the tests of `make test` alone are asked for."""
    return bool(config.getoption("markexpr") == "not slow")


def pytest_configure(config: pytest.Config) -> None:
    # Whoever only hands tests on stays outside, so that those who run them know the way there. It is early:
    # threads that libraries start later, and that ask servers, are inside.
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        enter_own_network()
    hypothesis.settings.load_profile("quick" if is_quick(config) else "untimed")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three for two processors: many tests wait, for a process, a server or a page."""
    return math.ceil(1.5 * (os.cpu_count() or 1))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: it is looked through for garbage neither now nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole folders belong to `make test-all`."""
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in SLOW_FOLDERS:
            item.add_marker("slow")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Say last, below the counts, which programs are missing and how they come."""
    yield
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        skipped = [one.longrepr for one in terminal.stats.get("skipped", ())]
        line = missing_programs(reason for *_, reason in skipped)
        if line is not None:
            terminal.write_line(line, yellow=True)


@pytest.fixture(autouse=True)
def _neither_sleeps_nor_kills(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of `make test` does not look again and again, nor sends signals: time is passed in."""
    if request.node.get_closest_marker("slow") is not None:
        return

    def guarded(does: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object) -> object:
            if Path(sys._getframe(1).f_code.co_filename).is_relative_to(TESTS):
                pytest.fail(f"a test of `make test` calls {does.__name__}: pass time in, or mark it slow")
            return does(*given)

        return call

    monkeypatch.setattr(time, "sleep", guarded(time.sleep))
    monkeypatch.setattr(os, "kill", guarded(os.kill))


def write_tiny_bundle(path: Path, *, name: str = "tiny", dim: int = TINY_DIM, seed: int = 0) -> ModelBundle:
    """A real bundle whose network averages 4x4-pixel patches and projects them at random."""
    path.mkdir(parents=True, exist_ok=True)
    features = 3 * (TINY_SIDE // 4) ** 2
    weights = np.random.default_rng(seed).normal(size=(features, dim)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("AveragePool", ["images"], ["pooled"], kernel_shape=[4, 4], strides=[4, 4]),
            helper.make_node("Flatten", ["pooled"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weights"], ["raw"]),
            helper.make_node("Add", ["raw", "offset"], ["embeddings"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, TINY_SIDE, TINY_SIDE])],
        [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["batch", dim])],
        # The offset keeps a plain black image away from the zero vector.
        [
            numpy_helper.from_array(weights, "weights"),
            numpy_helper.from_array(np.full(dim, 0.5, np.float32), "offset"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path / BACKBONE_FILE)
    preprocessing = {
        "input_size": TINY_SIDE,
        "fit": "squash",
        "mean": (0.5, 0.5, 0.5),
        "std": (0.5, 0.5, 0.5),
    }
    return ModelBundle.write(
        path, {"name": name, "backbone": "patch-average", "dim": dim, "preprocessing": preprocessing}
    )


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> ModelBundle:
    return write_tiny_bundle(tmp_path_factory.mktemp("bundles") / "tiny")


def add_refiner(
    bundle: ModelBundle,
    *,
    seed: int = 0,
    sides: str = "both",
    rerank: str = "off",
    form: str = "attention_mlp",
    level: bool = False,
) -> ModelBundle:
    """Give a bundle a refiner with random weights, which moves embeddings far."""
    architecture = RefinerArchitecture(
        dim=bundle.dim,
        n_steps=3,
        n_neighbors=4,
        n_heads=1 if form == "gated" else 2,
        form=form,
        expansion=True,
        level=level,
    )
    rng = np.random.default_rng(seed)
    shapes = parameter_shapes(architecture)
    steps = [{name: 0.3 * rng.normal(size=shape) for name, shape in shapes.items()} for _ in range(3)]
    save_weights(bundle.path / REFINER_WEIGHTS_FILE, steps, architecture)
    (bundle.path / REFINER_FILE).write_bytes(b"a placeholder: searches read the weights alone")
    return bundle.with_refiner({"architecture": architecture, "sides": sides, "rerank": rerank})


@pytest.fixture(scope="session")
def with_refiner(
    tiny_bundle: ModelBundle, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., ModelBundle]:
    """A copy of the tiny bundle with a refiner; keywords are those of `add_refiner`."""

    def copy(**options: object) -> ModelBundle:
        path = shutil.copytree(tiny_bundle.path, tmp_path_factory.mktemp("with-refiner") / "tiny")
        return add_refiner(ModelBundle.open(path), **options)

    return copy


@pytest.fixture(scope="session")
def refiner_bundle(with_refiner: Callable[..., ModelBundle]) -> ModelBundle:
    return with_refiner()


@pytest.fixture
def refined_space(tmp_path: Path) -> Callable[..., ModelBundle]:
    """A space with a refiner, such as `refined_space("clip", 8)`; keywords are those of `add_refiner`."""

    def write(space: str, dim: int, path: Path | None = None, **options: object) -> ModelBundle:
        path = path or tmp_path / "refined space"
        path.mkdir(parents=True)
        return add_refiner(ModelBundle.write(path, space_manifest(space, dim).model_dump()), **options)

    return write


@pytest.fixture(scope="session")
def vectors_dir() -> Path:
    """Folder of the reference vectors; set VICINAL_TEST_VECTORS to use another copy."""
    path = Path(os.environ.get("VICINAL_TEST_VECTORS", SHARED / "vectors"))
    if not path.is_dir():
        pytest.skip(f"reference vectors not found at {path} (VICINAL_TEST_VECTORS)")
    return path


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the labelled image sets; set VICINAL_TEST_DATA to use another copy."""
    path = Path(os.environ.get("VICINAL_TEST_DATA", SHARED / "data"))
    if not path.is_dir():
        pytest.skip(f"image sets not found at {path} (VICINAL_TEST_DATA)")
    return path


@pytest.fixture(scope="session")
def make_contexts() -> Callable[..., tuple[FloatArray, FloatArray, np.ndarray]]:
    """Queries with neighbors near them; the mask hides some, and all of the last query's."""

    def make(n: int, k: int = 5, dim: int = 24, seed: int = 0) -> tuple[FloatArray, FloatArray, np.ndarray]:
        rng = np.random.default_rng(seed)
        queries = normalize(rng.normal(size=(n, dim)))
        near = queries[:, None] + 0.2 * rng.normal(size=(n, k, dim))
        mask = rng.random((n, k)) < 0.7
        mask[:, 0], mask[-1] = True, False
        return queries, normalize(near.reshape(-1, dim)).reshape(n, k, dim), mask

    return make

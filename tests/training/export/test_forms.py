"""Forms of a network: what float16 weights and int8 change, and what they must not."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from vicinal.models.bundle import Precision  # noqa: E402
from vicinal.models.errors import BundleError  # noqa: E402
from vicinal.models.runtime import open_session  # noqa: E402
from vicinal.models.similarity import normalize  # noqa: E402
from vicinal.training.export.forms import write_form  # noqa: E402

SIDE = 16


@pytest.fixture(scope="module")
def images() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    colors = rng.normal(size=(40, 3, 1, 1))
    return list((colors + 0.3 * rng.normal(size=(40, 3, SIDE, SIDE))).astype(np.float32))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolution, ReLU, average, matrix; a note of where it was made stands in it."""
    return _write_network(tmp_path_factory.mktemp("networks") / "float32.onnx")


def _write_network(path: Path, scale: float = 1.0) -> Path:
    rng = np.random.default_rng(0)
    tensors = {
        "kernel": rng.normal(size=(32, 3, 3, 3)) * 0.2 * scale,
        "matrix": rng.normal(size=(32, 24)),
        "offset": rng.normal(size=24),
    }
    nodes = [
        helper.make_node("Conv", ["images", "kernel"], ["maps"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["maps"], ["active"]),
        helper.make_node("GlobalAveragePool", ["active"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
        helper.make_node("Gemm", ["features", "matrix", "offset"], ["embeddings"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["batch", 24])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in tensors.items()],
        doc_string=str(path),
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def _embed(path: Path, images: list[np.ndarray]) -> np.ndarray:
    session = open_session(path, hashlib.sha256(path.read_bytes()).hexdigest(), device="cpu")
    return normalize(session.run(None, {session.get_inputs()[0].name: np.stack(images)})[0])


@pytest.mark.parametrize(("precision", "least"), [("float32", 1.0), ("float16", 0.9999), ("int8", 0.99)])
def test_a_form_embeds_nearly_as_float32_does(
    network: Path, images: list[np.ndarray], tmp_path: Path, precision: Precision, least: float
) -> None:
    """On images that it was not calibrated on."""
    write_form(network, tmp_path / "form.onnx", precision, images[:20])
    cosines = (_embed(network, images[20:]) * _embed(tmp_path / "form.onnx", images[20:])).sum(axis=1)
    assert cosines.min() >= least - 1e-6


@pytest.mark.parametrize(
    ("precision", "kinds"),
    [("float16", {TensorProto.FLOAT16}), ("int8", {TensorProto.INT8})],
)
def test_large_weights_are_stored_in_the_form(
    network: Path, images: list[np.ndarray], tmp_path: Path, precision: Precision, kinds: set[int]
) -> None:
    write_form(network, tmp_path / "form.onnx", precision, images)
    tensors = onnx.load(tmp_path / "form.onnx").graph.initializer
    assert {one.data_type for one in tensors if np.prod(one.dims) >= 512} == kinds


def test_weights_too_large_for_float16_are_refused(tmp_path: Path) -> None:
    network = _write_network(tmp_path / "large.onnx", scale=1e6)
    with pytest.raises(BundleError, match="do not fit float16: choose another precision"):
        write_form(network, tmp_path / "form.onnx", "float16")

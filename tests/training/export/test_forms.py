"""Forms of a network: what float16 weights and int8 change, and what they must not."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import onnxruntime as ort  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tests.logs import said_by  # noqa: E402
from vicinal.models.bundle import Precision  # noqa: E402
from vicinal.models.errors import BundleError  # noqa: E402
from vicinal.models.runtime import open_session  # noqa: E402
from vicinal.models.similarity import normalize  # noqa: E402
from vicinal.training.export.forms import PRECISIONS, write_form  # noqa: E402

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


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_form_takes_and_gives_float32_in_any_number(
    network: Path, images: list[np.ndarray], tmp_path: Path, precision: Precision
) -> None:
    write_form(network, tmp_path / "form.onnx", precision, images)
    session = ort.InferenceSession(tmp_path / "form.onnx", providers=["CPUExecutionProvider"])
    (taken,), (given,) = session.get_inputs(), session.get_outputs()
    assert (taken.type, taken.shape[1:], taken.shape[0]) == ("tensor(float)", [3, SIDE, SIDE], "batch")
    assert (given.type, given.shape[0]) == ("tensor(float)", "batch")


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


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_a_form_names_no_folder_of_the_machine_that_made_it(
    network: Path, images: list[np.ndarray], tmp_path: Path, precision: Precision
) -> None:
    write_form(network, tmp_path / "form.onnx", precision, images)
    content = (tmp_path / "form.onnx").read_bytes()
    places = [network.parent, tmp_path, Path(onnx.__file__).parent, Path.home()]
    assert [str(place) for place in places if f"{place}/".encode() in content] == []


def test_int8_tells_no_person_what_its_quantizer_notes_of_layers(
    network: Path, images: list[np.ndarray], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A line of its log for every layer norm of a transformer."""
    model = onnx.load(network)
    scale = numpy_helper.from_array(np.ones(32, np.float32), "scale")
    model.graph.initializer.append(scale)
    model.graph.node.insert(4, helper.make_node("LayerNormalization", ["features", "scale"], ["normed"]))
    model.graph.node[5].input[0] = "normed"
    onnx.save(model, tmp_path / "normed.onnx")
    write_form(tmp_path / "normed.onnx", tmp_path / "form.onnx", "int8", images)
    assert said_by(caplog, "root", logging.INFO) == []


def test_weights_too_large_for_float16_are_refused(tmp_path: Path) -> None:
    network = _write_network(tmp_path / "large.onnx", scale=1e6)
    with pytest.raises(BundleError, match="do not fit float16: choose another precision"):
        write_form(network, tmp_path / "form.onnx", "float16")


def test_int8_without_images_is_refused(network: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="needs images to calibrate on"):
        write_form(network, tmp_path / "form.onnx", "int8")

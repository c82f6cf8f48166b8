"""Import of a ready ONNX file: what can be searched with becomes a bundle, all else one clear line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from vicinal.models.embedder import Embedder
from vicinal.models.errors import BundleError
from vicinal.training.export.ready import import_onnx

SQUASH = {"fit": "squash", "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
FIELDS = {"name": "ready"}
AVERAGE = ("GlobalAveragePool", {})
FLATTEN = ("Flatten", {})


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """A network of the given operators behind a convolution of 8 channels."""

    def make(
        shape: Sequence[Any] = ("batch", 3, 24, 24),
        operators: Sequence[tuple[str, dict[str, Any]]] = (AVERAGE, FLATTEN),
        given: Sequence[Any] = ("batch", 8),
        kind: int = TensorProto.FLOAT,
        **tensors: np.ndarray,
    ) -> Path:
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        tensors["kernel"] = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(dtype)
        nodes, last = [helper.make_node("Conv", ["pictures", "kernel"], ["0"])], "0"
        for number, (operator, options) in enumerate(operators, start=1):
            inputs = [last, *options.get("inputs", ())]
            nodes.append(helper.make_node(operator, inputs, [str(number)], **options.get("attributes", {})))
            last = str(number)
        graph = helper.make_graph(
            nodes,
            "ready",
            [helper.make_tensor_value_info("pictures", kind, shape)],
            [helper.make_tensor_value_info(last, kind, given)],
            [numpy_helper.from_array(value, name) for name, value in tensors.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(model, tmp_path / "net.onnx")
        return tmp_path / "net.onnx"

    return make


def test_a_ready_file_becomes_a_bundle(write: Callable[..., Path], tmp_path: Path) -> None:
    model = write()
    bundle = import_onnx(model, tmp_path / "made", SQUASH, {**FIELDS, "licence": "MIT"})
    assert (bundle.dim, bundle.manifest.preprocessing.input_size) == (8, 24)
    assert bundle.backbone_path.read_bytes() == model.read_bytes()
    assert (bundle.manifest.precision, bundle.manifest.training) == (None, {"file": "net.onnx"})
    assert bundle.manifest.forms["as imported"]["images_per_second"] > 0


def test_a_fixed_number_of_images_is_freed_where_the_network_can(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    """Most exporters fix it unless they are asked not to."""
    model = write(shape=(1, 3, 24, 24), given=(1, 8))
    bundle = import_onnx(model, tmp_path / "made", SQUASH, FIELDS)
    images = list(np.random.default_rng(1).normal(size=(5, 3, 24, 24)).astype(np.float32))
    embedder = Embedder(bundle, device="cpu", threads=1)
    alone = np.concatenate([embedder.infer([image]) for image in images])
    assert np.allclose(embedder.infer(images), alone, atol=1e-5)


def test_a_network_that_compares_the_images_of_a_batch_is_refused(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    """Such as one exported in training mode: a query would score otherwise alone."""
    softmax = ("Softmax", {"attributes": {"axis": 0}})
    model = write(operators=[AVERAGE, FLATTEN, softmax])
    with pytest.raises(BundleError, match=r"alone otherwise than in a batch .* in evaluation mode"):
        import_onnx(model, tmp_path / "made", SQUASH, FIELDS)


def with_numbers(name: str) -> tuple[str, dict[str, list[str]]]:
    return "Mul", {"inputs": [name]}


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ([with_numbers("zero"), ("Add", {"inputs": ["one"]})], "embeds all drawn pictures alike"),
        ([with_numbers("zero")], "embeds no drawn picture: its output is zero"),
        ([with_numbers("nan")], "embeds no drawn picture: its output holds NaN or infinity"),
        ([("RandomNormalLike", {})], r"the second time otherwise .* drawn at random"),
    ],
    ids=["alike", "zero", "NaN", "random"],
)
def test_a_network_that_nothing_can_be_searched_with_is_refused(
    write: Callable[..., Path], tmp_path: Path, operators: list[tuple[str, dict[str, Any]]], message: str
) -> None:
    numbers = {
        name: np.array(value, np.float32) for name, value in {"zero": 0, "one": 1, "nan": np.nan}.items()
    }
    model = write(operators=[AVERAGE, FLATTEN, *operators], **numbers)
    with pytest.raises(BundleError, match=message):
        import_onnx(model, tmp_path / "made", SQUASH, FIELDS)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("options", "preprocessing", "message"),
    [
        ({"shape": ("batch", 24, 24, 3), "operators": ()}, SQUASH, "expected one input"),
        ({"kind": TensorProto.FLOAT16}, SQUASH, "of float32"),
        ({"shape": ("batch", 3, 24, 32)}, SQUASH, "24 x 32 pixels, expected as many in height"),
        ({}, {**SQUASH, "input_size": 32}, "24 x 24 pixels, expected 32 x 32, as input_size says"),
        ({"shape": ("batch", 3, "height", "width")}, SQUASH, "any size: say with input_size"),
        ({"operators": (AVERAGE,), "given": ("batch", 8, 1, 1)}, SQUASH, "export it with its pooling"),
    ],
    ids=["channels last", "float16", "not square", "another size", "no size", "feature map"],
)
def test_a_network_of_another_kind_is_one_line(
    write: Callable[..., Path], tmp_path: Path, options: dict[str, Any], preprocessing: object, message: str
) -> None:
    with pytest.raises(BundleError, match=message):
        import_onnx(write(**options), tmp_path / "made", preprocessing, FIELDS)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("content", [None, b"", b"no network at all"])
def test_a_file_that_is_no_network_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(BundleError, match=r"net.onnx'|cannot load"):
        import_onnx(tmp_path / "net.onnx", tmp_path / "made", SQUASH, FIELDS)

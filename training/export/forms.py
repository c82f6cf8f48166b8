"""Forms of an exported network: float32, float16 weights, or int8; what each does to a file (onnx).

float16 halves the file and changes nothing else: weights are cast as the file is opened. int8 computes in 8
bits: weights by channel, activations by tensor, between the extremes that the calibration images gave. It is
meant for processors with VNNI, AMX, or ARM's dot products; on others ONNX Runtime is told to take a slower
way (`models/runtime.py`): measure a form where it will run.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import FloatArray
from vicinal.models.bundle import Precision
from vicinal.models.errors import BundleError

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# Biases and scales stay as they are: they take no room.
_LEAST_NUMBERS = 512


def write_form(source: Path, target: Path, precision: Precision, images: Sequence[FloatArray] = ()) -> None:
    """Write a float32 ONNX network of one input in another form; int8 needs some 100 images (3, S, S)."""
    if precision == "float16":
        _write_float16(source, target)
    elif precision == "int8":
        _write_int8(source, target, images)
    elif source != target:
        target.write_bytes(source.read_bytes())
    forget_sources(target)


def forget_sources(path: Path) -> None:
    """Take out what a tool notes of itself: stack traces with the folders of this machine among it."""
    model = onnx.load(path)
    graph = model.graph
    tensors = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for part in (model, graph, *graph.node, *tensors):
        del part.metadata_props[:]
        part.doc_string = ""
    onnx.save(model, path)


def _write_float16(source: Path, target: Path) -> None:
    model = onnx.load(source)
    casts = []
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT or np.prod(tensor.dims) < _LEAST_NUMBERS:
            continue
        values = numpy_helper.to_array(tensor)
        largest = float(np.abs(values).max())
        if largest > float(np.finfo(np.float16).max):
            raise BundleError(
                f"weights up to {largest:.0e} do not fit float16: ", advise("choose another {precision}")
            )
        stored = f"{tensor.name}.float16"
        casts.append(helper.make_node("Cast", [stored], [tensor.name], to=TensorProto.FLOAT))
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), stored))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, target)


class _Images(CalibrationDataReader):  # type: ignore[misc]
    """Prepared images one by one, as the calibration of ONNX Runtime reads them."""

    def __init__(self, name: str, images: Sequence[FloatArray]) -> None:
        self._feeds: Iterator[dict[str, FloatArray]] = iter([{name: image[None]} for image in images])

    def get_next(self) -> dict[str, FloatArray] | None:
        return next(self._feeds, None)


def _write_int8(source: Path, target: Path, images: Sequence[FloatArray]) -> None:
    if not images:
        raise BundleError("int8 needs images to calibrate on")
    name = onnx.load(source, load_external_data=False).graph.input[0].name
    try:
        with tempfile.TemporaryDirectory() as folder, _quietly():
            prepared = Path(folder) / "prepared.onnx"
            # Batch norms go into convolutions, and every tensor gets a shape.
            quant_pre_process(source, prepared, skip_symbolic_shape=True)
            quantize_static(
                prepared,
                target,
                _Images(name, images),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                nodes_to_exclude=_delicate(prepared),
            )
    except Exception as error:  # the quantizer raises many classes without a public base
        raise BundleError(f"the network cannot be written in int8: {error}") from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep what the quantizer warns of, and logs of every layer, to itself; how it embeds is what counts."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(level)


def _delicate(path: Path) -> list[str]:
    """Nodes that stay in float32: the one that sees the picture, and the one that gives the embedding.

    They take some 3 % of the time, and in 8 bits they cost as much of MAP@R as all the others together.
    """
    graph = onnx.load(path).graph
    first = next((node.name for node in graph.node if node.op_type == "Conv"), None)
    last = next(node.name for node in graph.node if graph.output[0].name in node.output)
    return [name for name in (first, last) if name]

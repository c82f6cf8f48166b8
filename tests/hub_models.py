"""Small real ONNX files of the kinds that the hub has, with the configurations that lie beside them there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

__all__ = ["FAMILIES", "SIDE", "configured", "network"]

SIDE, DIM, CLASSES = 32, 12, 5
_PATCHES = 3 * (SIDE // 8) ** 2
_SEEN = [
    helper.make_node("AveragePool", ["pixel_values"], ["patches"], kernel_shape=[8, 8], strides=[8, 8]),
    helper.make_node("Flatten", ["patches"], ["flat"]),
    helper.make_node("MatMul", ["flat", "seen"], ["seen_raw"]),
    helper.make_node("Add", ["seen_raw", "offset"], ["seen_out"]),
    helper.make_node("MatMul", ["flat", "other"], ["other_out"]),
    helper.make_node("Unsqueeze", ["seen_out", "one"], ["seen_token"]),
    helper.make_node("Unsqueeze", ["other_out", "one"], ["other_token"]),
]
# What each of its outputs is made by: `seen_out` is the embedding, `other_out` is not.
_OUTPUTS: dict[str, tuple[list[NodeProto], list[Any]]] = {
    "last_hidden_state": (
        [
            helper.make_node(
                "Concat", ["seen_token", "other_token", "other_token"], ["last_hidden_state"], axis=1
            )
        ],
        ["batch_size", 3, DIM],
    ),
    "pooler_output": ([helper.make_node("Identity", ["seen_out"], ["pooler_output"])], ["batch_size", DIM]),
    "image_embeds": ([helper.make_node("Identity", ["seen_out"], ["image_embeds"])], ["batch_size", DIM]),
    "text_embeds": (
        [
            helper.make_node("Cast", ["input_ids"], ["ids"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMean", ["ids"], ["text_embeds"], axes=[1]),
        ],
        ["batch_size", 1],
    ),
    "logits": (
        [helper.make_node("Gemm", ["seen_out", "classes"], ["logits"])],
        ["batch_size", CLASSES],
    ),
}


def network(
    *outputs: str, swapped: bool = False, weights_beside: str | None = None, to: Path | None = None
) -> bytes:
    """An ONNX file with some outputs.

    Args:
        outputs: `last_hidden_state`, `pooler_output`, `image_embeds`, `text_embeds` and `logits`.
        swapped: Whether `pooler_output` is none of an embedding.
        weights_beside: Name of a file that holds the weights.
        to: Folder for that file.
    """
    rng = np.random.default_rng(7)
    tensors = {
        "seen": rng.normal(size=(_PATCHES, DIM)).astype(np.float32),
        "other": rng.normal(size=(_PATCHES, DIM)).astype(np.float32),
        "offset": np.full(DIM, 0.5, np.float32),
        "classes": rng.normal(size=(DIM, CLASSES)).astype(np.float32),
        "one": np.array([1], np.int64),
    }
    made = [node for one in outputs for node in _OUTPUTS[one][0]]
    if swapped:
        made = [
            helper.make_node("Identity", ["other_out"], ["pooler_output"])
            if node.output[0] == "pooler_output"
            else node
            for node in made
        ]
    inputs = [
        helper.make_tensor_value_info(
            "pixel_values", TensorProto.FLOAT, ["batch_size", "num_channels", "height", "width"]
        )
    ]
    if "text_embeds" in outputs:
        inputs.insert(
            0, helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["text_batch_size", "length"])
        )
    graph = helper.make_graph(
        [*_SEEN, *made],
        "small",
        inputs,
        [helper.make_tensor_value_info(one, TensorProto.FLOAT, _OUTPUTS[one][1]) for one in outputs],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if weights_beside is None or to is None:
        return bytes(model.SerializeToString())
    onnx.save_model(
        model, to / "saved.onnx", save_as_external_data=True, location=weights_beside, size_threshold=0
    )
    return (to / "saved.onnx").read_bytes()


def embedded(images: Any) -> Any:
    """Slow reference of `seen_out`: (n, 3, SIDE, SIDE) float32 to (n, DIM)."""
    rng = np.random.default_rng(7)
    weights = rng.normal(size=(_PATCHES, DIM)).astype(np.float32)
    rows = []
    for image in images:
        patches = [
            image[c, y : y + 8, x : x + 8].mean()
            for c in range(3)
            for y in range(0, SIDE, 8)
            for x in range(0, SIDE, 8)
        ]
        rows.append(np.array(patches, np.float32) @ weights + 0.5)
    return np.stack(rows)


_IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
_HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_CUT = {
    "do_center_crop": True,
    "crop_size": {"height": SIDE, "width": SIDE},
    "do_resize": True,
    "size": {"shortest_edge": 36},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "resample": 3,
}
_SQUASH = {
    "do_resize": True,
    "size": {"height": SIDE, "width": SIDE},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "resample": 2,
}


def configured(
    files: Mapping[str, bytes], architecture: str, processor: Mapping[str, Any]
) -> dict[str, bytes]:
    """Files of a repository, with `config.json` and `preprocessor_config.json`."""
    about = {"config.json": {"model_type": architecture}, "preprocessor_config.json": dict(processor)}
    return {**{name: json.dumps(one).encode() for name, one in about.items()}, **files}


def _dinov3(folder: Path) -> dict[str, bytes]:
    body = network("last_hidden_state", "pooler_output", weights_beside="model.onnx_data", to=folder)
    beside = (folder / "model.onnx_data").read_bytes()
    files = {"onnx/model.onnx": body, "onnx/model.onnx_data": beside}
    return configured(files, "dinov3_vit", {**_SQUASH, **_IMAGENET})


def _dinov2(_folder: Path) -> dict[str, bytes]:
    return configured({"onnx/model.onnx": network("last_hidden_state")}, "dinov2", {**_CUT, **_IMAGENET})


def _siglip2(_folder: Path) -> dict[str, bytes]:
    towers = {
        "onnx/vision_model.onnx": network("last_hidden_state", "pooler_output"),
        "onnx/text_model.onnx": b"text",
        "onnx/model.onnx": b"both",
    }
    return configured(towers, "siglip", {**_SQUASH, **_HALF})


def _clip(_folder: Path) -> dict[str, bytes]:
    # Older ones say sides as a number.
    old = {"size": SIDE, "crop_size": SIDE, "feature_extractor_type": "CLIPFeatureExtractor"}
    return configured(
        {"onnx/model.onnx": network("text_embeds", "image_embeds")}, "clip", {**_CUT, **_HALF, **old}
    )


def _timm(_folder: Path) -> dict[str, bytes]:
    timm = {
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
        "input_size": [3, SIDE, SIDE],
        "crop_pct": 0.875,
        "interpolation": "bicubic",
    }
    config = {"architecture": "mobilenetv4_conv_small", "pretrained_cfg": timm}
    return {"onnx/model.onnx": network("logits"), "config.json": json.dumps(config).encode()}


# By family: what makes its repository, its short name, and what its embedding is called.
FAMILIES: Sequence[tuple[Any, str, str]] = (
    (_dinov2, "dinov2-small", "the class token of last_hidden_state"),
    (_dinov3, "dinov3-small", "pooler_output"),
    (_siglip2, "siglip2-base", "pooler_output"),
    (_clip, "clip-vit-b32", "image_embeds"),
    (_timm, "mobilenetv4-small", "the features that the classifier is given"),
)

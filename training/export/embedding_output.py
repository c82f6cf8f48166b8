"""Embedding among the outputs of a ready network, and a network that gives it alone (onnx).

| output | taken as |
|---|---|
| `image_embeds` | it is: CLIP's, after its projection |
| `pooler_output` | it is: DINOv2 and v3 (their class token), SigLIP (its attention head) |
| `last_hidden_state` (B, tokens, d) | its first token, where the architecture has a class token |
| `logits` (B, classes) | what the classifier is given |
| any other (B, d), if there is one output alone | it is |
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from vicinal.models.errors import BundleError

# Their poolers come untrained, or from another task: the class token is what was trained.
_TOKEN_FIRST = ("vit", "deit", "vit_msn", "vit_mae", "ijepa")
_WITH_CLASS_TOKEN = (*_TOKEN_FIRST[:-1], "dinov2", "dinov2_with_registers", "dinov3_vit", "beit")
_EMBEDDING, _FIRST = "vicinal_embedding", "vicinal_first_token"


def write_embedding_network(source: Path, target: Path, architecture: str, what: str) -> str:
    """Write a network that gives the embedding alone, its weights inside, and say what that is.

    `architecture` is `model_type` of its configuration, `what` names it in errors. A network that takes text
    too keeps its images' part.
    """
    try:
        model = onnx.load(source)
    except Exception as error:  # protobuf and the readers of weights raise classes without a common base
        raise BundleError(f"{what} is no readable ONNX file: {' '.join(str(error).split())[:200]}") from error
    graph = model.graph
    constants = {one.name for one in graph.initializer}
    inputs = [one for one in graph.input if one.name not in constants]
    images = [one for one in inputs if len(_axes(one)) == 4]
    if len(images) != 1:
        taken = ", ".join(f"{one.name} {_axes(one)}" for one in inputs) or "nothing"
        raise BundleError(f"{what} takes {taken}; expected one input (images, 3, size, size)")
    name, nodes, words = _chosen(graph, architecture, what)
    if len(inputs) > 1:
        model = _images_part(model, images[0].name, name, what)
    graph = model.graph
    graph.node.extend(nodes)
    if any(_FIRST in node.input for node in nodes):
        graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), _FIRST))
    del graph.output[:]
    axes = [_axes(images[0])[0], None]
    graph.output.append(helper.make_tensor_value_info(_EMBEDDING, TensorProto.FLOAT, axes))
    onnx.save(model, target)
    return words


def external_files(source: Path) -> set[str]:
    """Names of the files that hold weights of a network outside of it, as it says."""
    try:
        graph = onnx.load(source, load_external_data=False).graph
    except Exception as error:  # protobuf raises a class of its own
        raise BundleError(f"'{source.name}' is no ONNX file: {' '.join(str(error).split())[:200]}") from error
    tensors = (one for one in graph.initializer if one.data_location == TensorProto.EXTERNAL)
    return {pair.value for one in tensors for pair in one.external_data if pair.key == "location"}


def _chosen(graph: GraphProto, architecture: str, what: str) -> tuple[str, list[NodeProto], str]:
    """Tensor that the embedding is made of, the nodes that do it, and what it is in words."""
    given: Mapping[str, ValueInfoProto] = {one.name: one for one in graph.output}
    token = "last_hidden_state"
    has_token = token in given and len(_axes(given[token])) in (0, 3) and architecture in _WITH_CLASS_TOKEN
    for name in ("image_embeds", "pooler_output"):
        if name in given and not (name == "pooler_output" and has_token and architecture in _TOKEN_FIRST):
            return name, [_flattened(name)], name
    if has_token:
        first = helper.make_node("Gather", [token, _FIRST], [_EMBEDDING], axis=1)
        return token, [first], f"the class token of {token}"
    if "logits" in given:
        features = _classified(graph, "logits", what)
        return features, [_flattened(features)], "the features that the classifier is given"
    (alone, *others) = given
    if not others and len(_axes(given[alone])) == 2:
        return alone, [_flattened(alone)], alone
    there = ", ".join(f"{name} {_axes(one)}" for name, one in given.items())
    raise BundleError(
        f"{what} ('{architecture or 'unknown'}') gives {there}: none of it is known to be an embedding"
    )


def _flattened(name: str) -> NodeProto:
    # Some give (B, d, 1, 1).
    return helper.make_node("Flatten", [name], [_EMBEDDING], axis=1)


def _classified(graph: GraphProto, logits: str, what: str) -> str:
    """Tensor that the last linear layer multiplies with its weights."""
    makers = {output: node for node in graph.node for output in node.output}
    constants = {one.name for one in graph.initializer}
    constants |= {one.output[0] for one in graph.node if one.op_type == "Constant"}
    node = makers.get(logits)
    if node is not None and node.op_type == "Add":
        # Its bias, and the product.
        node = next((makers[one] for one in node.input if one in makers and one not in constants), None)
    free = [] if node is None else [one for one in node.input if one not in constants]
    if node is None or node.op_type not in ("Gemm", "MatMul") or len(free) != 1:
        raise BundleError(f"{what} gives {logits} by no linear layer: its features are not known")
    return free[0]


def _images_part(model: ModelProto, image: str, output: str, what: str) -> ModelProto:
    """The part of a network that needs its images alone."""
    if output not in {one.name for one in (*model.graph.value_info, *model.graph.output)}:
        model.graph.value_info.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, None))
    part = onnx.utils.Extractor(model).extract_model([image], [output])
    needed = {name for node in part.graph.node for name in node.input}
    others = sorted(one.name for one in model.graph.input if one.name in needed and one.name != image)
    # Files of old kinds name their weights among the inputs.
    others = [one for one in others if one not in {each.name for each in part.graph.initializer}]
    if others:
        raise BundleError(f"{what} makes {output} of {', '.join(others)} too: it is no embedding of an image")
    return part


def _axes(tensor: ValueInfoProto) -> list[int | str]:
    """Lengths of a tensor's axes, names where they are free; none where it does not say."""
    return [one.dim_value or one.dim_param or "any" for one in tensor.type.tensor_type.shape.dim]

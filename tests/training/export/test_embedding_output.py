"""Output of a ready network that is the embedding: chosen by name and architecture, and given alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.hub_models import SIDE, embedded, network
from vicinal.training.export.embedding_output import write_embedding_network

IMAGES = np.random.default_rng(1).normal(size=(2, 3, SIDE, SIDE)).astype(np.float32)


@pytest.mark.parametrize(
    ("outputs", "architecture", "words"),
    [
        (["last_hidden_state"], "dinov2", "the class token of last_hidden_state"),
        (["last_hidden_state", "pooler_output"], "dinov2", "pooler_output"),
        (["last_hidden_state", "pooler_output"], "siglip_vision_model", "pooler_output"),
        (["last_hidden_state", "image_embeds"], "clip_vision_model", "image_embeds"),
        (["text_embeds", "image_embeds", "logits"], "clip", "image_embeds"),
        (["logits"], "mobilenet_v4", "the features that the classifier is given"),
        (["image_embeds"], "", "image_embeds"),
    ],
)
def test_the_embedding_alone_is_given(
    tmp_path: Path, outputs: list[str], architecture: str, words: str
) -> None:
    (tmp_path / "net.onnx").write_bytes(network(*outputs))
    said = write_embedding_network(tmp_path / "net.onnx", tmp_path / "made.onnx", architecture, "it")
    session = onnxruntime.InferenceSession(tmp_path / "made.onnx")
    (given,) = session.run(None, {one.name: IMAGES for one in session.get_inputs()})
    assert said == words
    assert given == pytest.approx(embedded(IMAGES), abs=1e-5)


def test_the_pooler_of_an_architecture_that_has_an_untrained_one_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(network("last_hidden_state", "pooler_output", swapped=True))
    said = write_embedding_network(tmp_path / "net.onnx", tmp_path / "made.onnx", "vit", "it")
    (given,) = onnxruntime.InferenceSession(tmp_path / "made.onnx").run(None, {"pixel_values": IMAGES})
    assert said == "the class token of last_hidden_state"
    assert given == pytest.approx(embedded(IMAGES), abs=1e-5)

"""Validation: held-out images are embedded as serving would."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")

from PIL import Image  # noqa: E402

from vicinal.models.bundle import Preprocessing  # noqa: E402
from vicinal.training.backbones.backbone import BackboneConfig, build_network  # noqa: E402
from vicinal.training.datasets import LabelledImages  # noqa: E402
from vicinal.training.validation import embed_images, validate  # noqa: E402

SQUASHED = Preprocessing(input_size=32, fit="squash")


def test_embedding_stored_images_equals_embedding_them_one_by_one(tiny_backbone: BackboneConfig) -> None:
    network = build_network(tiny_backbone).train()
    pixels = np.random.default_rng(0).integers(0, 256, (7, 40, 40, 3)).astype(np.uint8)
    embeddings = embed_images(network, pixels, SQUASHED, batch_size=3)
    assert not network.training
    for image, row in zip(pixels, embeddings, strict=True):
        tensor = torch.from_numpy(SQUASHED.to_tensor(Image.fromarray(image)))
        assert row == pytest.approx(network(tensor[None])[0].detach().numpy(), abs=1e-5)


def test_held_out_images_are_ranked_by_the_distance_of_the_loss() -> None:
    """Two classes in one direction, which only their lengths tell apart."""
    labels = np.array(["a:one", "a:two", "a:one", "a:two"])
    images = LabelledImages(np.zeros((4, 0, 0, 3), np.uint8), labels, np.full(4, "train"))
    rows = np.array([[1.0, 1.1], [9.0, 9.1], [1.1, 1.0], [9.1, 9.0]], np.float32)
    assert validate(images, lambda: rows, "euclidean") == (1.0, 1.0)
    assert validate(images, lambda: rows)[0] < 1.0

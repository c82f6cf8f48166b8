"""Multistage back-propagation against one plain backward pass over the same chunks."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from vicinal.training.losses.config import LossConfig  # noqa: E402
from vicinal.training.losses.registry import build_loss  # noqa: E402
from vicinal.training.multistage import multistage_backward  # noqa: E402

CHUNK = 5


def network(dropout: float = 0.4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 8),
    ).double()


def batch():
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(16, 3, 8, 8, generator=generator, dtype=torch.float64)
    # As training lays them out, on which the places that dropout draws depend.
    return images.contiguous(memory_format=torch.channels_last), torch.arange(4).repeat_interleave(4)


def loss_function():
    return build_loss(LossConfig(name="multi_similarity"))


def plain_backward(model, images, labels, loss):
    """The same chunks with their graphs kept, concatenated, and one backward pass."""
    embeddings = torch.cat([model(chunk).float() for chunk in images.split(CHUNK)])
    total = loss(embeddings, labels)
    total.backward()
    return total.detach()


def gradients(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def both(dropout: float = 0.4):
    images, labels = batch()
    plain, staged = network(dropout), network(dropout)
    torch.manual_seed(7)
    expected = plain_backward(plain, images, labels, loss_function())
    torch.manual_seed(7)
    actual = multistage_backward(staged, images, labels, loss_function(), chunk_size=CHUNK)
    return plain, expected, staged, actual


def test_gradients_equal_plain_backpropagation_with_dropout_on() -> None:
    plain, expected, staged, actual = both()
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(gradients(staged), gradients(plain), rtol=1e-5, atol=1e-6)


def test_other_dropout_masks_in_pass_two_would_be_noticed() -> None:
    """Negative control: the gradients depend on the masks, so drawing anew gives others."""
    images, labels = batch()
    first, second = network(), network()
    for seed, model in ((7, first), (8, second)):
        torch.manual_seed(seed)
        multistage_backward(model, images, labels, loss_function(), chunk_size=CHUNK)
    assert (gradients(first) - gradients(second)).abs().max() > 1e-4

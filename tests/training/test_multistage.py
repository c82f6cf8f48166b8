"""Multistage back-propagation against one plain backward pass over the same chunks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from vicinal.training.backbones.backbone import BackboneConfig  # noqa: E402
from vicinal.training.config import AugmentationConfig, TrainingConfig  # noqa: E402
from vicinal.training.losses.config import LossConfig  # noqa: E402
from vicinal.training.losses.registry import build_loss  # noqa: E402
from vicinal.training.multistage import multistage_backward  # noqa: E402
from vicinal.training.trainer import Trainer  # noqa: E402

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


def _through_the_trainer(config: TrainingConfig, monkeypatch: pytest.MonkeyPatch, backward: Any) -> Any:
    """Weights after some steps of training, which back-propagates by the given function."""
    monkeypatch.setattr("vicinal.training.trainer.multistage_backward", backward)
    return Trainer(config).run().network


def _plain_in_training(model, images, labels, loss, *, chunk_size, autocast, processes):
    """Chunks as in training, but all graphs kept and one backward pass."""
    total = loss(torch.cat([model(chunk).float() for chunk in images.split(chunk_size)]), labels)
    total.backward()
    return total.detach()


def _without_gradient(model, images, labels, loss, **_):
    with torch.no_grad():
        return loss(model(images).float(), labels)


@pytest.mark.slow
def test_training_with_augmentation_and_dropout_equals_plain_backpropagation(
    make_training_config: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step of plain gradient descent at rate 1 moves every weight by its gradient."""
    config = make_training_config(
        sampler={"batch_size": 16, "per_class": 4, "chunk_size": 6},
        loss={"name": "recall_at_k", "arguments": {"simix": True}},
        optimizer={"name": "sgd", "learning_rate": 1.0, "steps": 1, "weight_decay": 0.0, "clip_norm": 0.0},
        validation_share=0.0,
    )
    backbone = config.backbone.model_dump()
    backbone["arguments"] |= {"drop_rate": 0.3, "drop_path_rate": 0.2}
    config = config.model_copy(update={"backbone": BackboneConfig.model_validate(backbone)})
    staged = _through_the_trainer(config, monkeypatch, multistage_backward)
    plain = _through_the_trainer(config, monkeypatch, _plain_in_training)
    still = _through_the_trainer(config, monkeypatch, _without_gradient)
    moved = max(
        (one - other).abs().max() for one, other in zip(plain.parameters(), still.parameters(), strict=True)
    )
    assert moved > 0.01
    assert config.augmentation == AugmentationConfig()
    for actual, expected in zip(staged.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_frozen_networks_leave_the_learning_to_the_loss() -> None:
    """Proxies learn while the network does not, for a batch of one chunk as for several."""
    images, labels = batch()
    found = []
    for chunk_size in (16, CHUNK):
        model = network(0.0).requires_grad_(False).eval()
        torch.manual_seed(3)
        loss = build_loss(LossConfig(name="proxy_anchor"), n_classes=4, dim=8)
        multistage_backward(model, images, labels, loss, chunk_size=chunk_size)
        found.append(gradients(loss))
    assert found[0].abs().max() > 0
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_other_dropout_masks_in_pass_two_would_be_noticed() -> None:
    """Negative control: the gradients depend on the masks, so drawing anew gives others."""
    images, labels = batch()
    first, second = network(), network()
    for seed, model in ((7, first), (8, second)):
        torch.manual_seed(seed)
        multistage_backward(model, images, labels, loss_function(), chunk_size=CHUNK)
    assert (gradients(first) - gradients(second)).abs().max() > 1e-4


@pytest.mark.parametrize("chunk_size", [1, 16, 100])
def test_chunks_of_any_size_give_the_gradient_of_the_whole_batch(chunk_size: int) -> None:
    """Without batch-norm and dropout the chunks cannot matter at all."""
    images, labels = batch()
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8)).double()
    whole = copy.deepcopy(model)
    loss_function()(whole(images).float(), labels).backward()
    multistage_backward(model, images, labels, loss_function(), chunk_size=chunk_size)
    torch.testing.assert_close(gradients(model), gradients(whole), rtol=1e-5, atol=1e-6)

"""One training run of a study: a small network, one loss, one sampler, one seed; its embeddings are kept."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from benchmarks.losses.images import IMAGE_SIZE, Parts, augment, standardize
from vicinal.training.backbones.backbone import BackboneConfig, EmbeddingNetwork
from vicinal.training.losses.config import LossConfig
from vicinal.training.losses.registry import build_loss
from vicinal.training.multistage import multistage_backward
from vicinal.training.samplers import (
    ClassBalancedConfig,
    GroupConfig,
    HierarchicalConfig,
    RandomPairsConfig,
)

__all__ = [
    "DIM",
    "Run",
    "batches",
    "is_done",
    "load_embeddings",
    "load_record",
    "loss_of",
    "optimizer_of",
    "train",
    "training_images",
]

DIM = 128
# Proxies are few, start at random and must move further than weights.
_PROXY_RATE_FACTOR = 30.0
_WIDTHS = {"conv4": (32, 64, 128, 128), "conv4-wide": (48, 96, 192, 192)}


@dataclass(frozen=True)
class Run:
    """All that decides a run.

    Attributes:
        images: Name of the image set.
        group: Part of the study that it belongs to.
        name: What distinguishes it from the others of the group.
        loss: Loss configuration, as in a recipe.
        seed: Seed of weights, batches and augmentation.
        sampler: `{kind = "class_balanced", batch_size, per_class}`, the same of kind `hierarchical`,
            `{kind = "group", m, n}` or `{kind = "random_pairs", p, n_pairs}`.
        steps: Optimizer steps.
        learning_rate: Peak of the cosine schedule.
        label_noise: Share of the training images that get the label of another class.
        backbone: Four convolutions, `conv4` or `conv4-wide`.
        fold: `(i, n)` leaves every n-th training class from the i-th on out of training; None takes all.
        keep_train: Also embed the images trained on.
    """

    images: str
    group: str
    name: str
    loss: dict[str, Any]
    seed: int
    sampler: dict[str, Any] = field(
        default_factory=lambda: {"kind": "class_balanced", "batch_size": 128, "per_class": 4}
    )
    steps: int = 500
    learning_rate: float = 2e-3
    label_noise: float = 0.0
    backbone: str = "conv4"
    fold: tuple[int, int] | None = None
    keep_train: bool = False

    @property
    def key(self) -> str:
        """Name of the run's files."""
        return f"{self.images}--{self.group}--{self.name}--seed{self.seed}"


def is_done(run: Run, work: Path) -> bool:
    """Whether the run's embeddings are there."""
    return _embeddings_path(run, work).exists()


def load_embeddings(run: Run, work: Path) -> dict[str, npt.NDArray[np.float32]]:
    """The (n, d) embeddings of each part, in the order of its images."""
    with np.load(_embeddings_path(run, work)) as stored:
        return {name: stored[name].astype(np.float32) for name in stored.files if name != "record"}


def load_record(run: Run, work: Path) -> dict[str, Any]:
    """What the run was and how it went."""
    with np.load(_embeddings_path(run, work)) as stored:
        return json.loads(str(stored["record"]))


def train(run: Run, parts: Parts, work: Path) -> dict[str, Any]:
    """Train, embed all parts, store the embeddings, and return the run's record."""
    torch.manual_seed(run.seed)
    generator = torch.Generator().manual_seed(run.seed)
    chosen, class_ids = training_images(run, parts.train.class_ids)
    pixels = parts.train.pixels[chosen]
    network = _network(run.backbone).to(memory_format=torch.channels_last)
    loss_function = loss_of(run, class_ids, DIM)
    optimizer, schedule = optimizer_of(run, network, loss_function)
    bfloat16 = bool(getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)())
    losses: list[float] = []
    started = time.monotonic()
    network.train()
    for positions in batches(run, class_ids):
        batch = augment(standardize(pixels[positions]), generator)
        optimizer.zero_grad(set_to_none=True)
        loss = multistage_backward(
            network,
            batch,
            torch.from_numpy(class_ids[positions]),
            loss_function,
            chunk_size=len(batch),
            autocast=lambda: torch.autocast("cpu", torch.bfloat16, enabled=bfloat16),
        )
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss))
    record = {**asdict(run), "key": run.key, "precision": "bfloat16" if bfloat16 else "float32"}
    record["seconds"] = round(time.monotonic() - started, 1)
    tail = losses[-max(1, len(losses) // 10) :]
    record["last_loss"] = math.fsum(tail) / len(tail)
    embedded = {
        name: _embed(network, part.pixels)
        for name, part in parts.named().items()
        if name != "train" or run.keep_train
    }
    _save(_embeddings_path(run, work), embedded, record)
    return record


def _network(name: str) -> EmbeddingNetwork:
    """Convolutions whose last map is flattened, not averaged: where a stroke lies tells characters apart."""
    layers: list[nn.Module] = []
    before = 3
    for width in _WIDTHS[name]:
        convolution = nn.Conv2d(before, width, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        before = width
    side = IMAGE_SIZE // 2 ** len(_WIDTHS[name])
    trunk = nn.Sequential(*layers, nn.Flatten())
    return EmbeddingNetwork(trunk, before * side**2, BackboneConfig(name=name, pooling="native", dim=DIM))


def training_images(
    run: Run, class_ids: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The images that a run learns from, and the classes that it takes them for.

    Args:
        run: Its fold and its label noise decide.
        class_ids: (n,) classes of all training images.

    Returns:
        (m,) positions of images and (m,) classes from 0 on, each with two images at least.
    """
    chosen = np.arange(len(class_ids))
    if run.fold is not None:
        first, step = run.fold
        chosen = chosen[class_ids % step != first]
    own = np.unique(class_ids[chosen], return_inverse=True)[1].astype(np.int64)
    if run.label_noise:
        # The same images carry a wrong label in every run of a seed, whatever the loss.
        rng = np.random.default_rng(1_000 + run.seed)
        wrong = rng.random(len(own)) < run.label_noise
        own = np.where(wrong, rng.permutation(own), own)
        # A class that is left with one image has no pair.
        kept = np.bincount(own)[own] >= 2
        chosen, own = chosen[kept], np.unique(own[kept], return_inverse=True)[1].astype(np.int64)
    return chosen, own


def batches(
    run: Run, class_ids: npt.NDArray[np.int64], super_labels: npt.ArrayLike = ()
) -> Iterator[npt.NDArray[np.int64]]:
    """Positions of each batch's images; the hierarchical sampler wants their (n,) super-labels."""
    settings = {key: value for key, value in run.sampler.items() if key != "kind"}
    kinds = {
        "class_balanced": ClassBalancedConfig,
        "group": GroupConfig,
        "hierarchical": HierarchicalConfig,
        "random_pairs": RandomPairsConfig,
    }
    drawn: Iterator[npt.NDArray[np.int64]] = kinds[run.sampler["kind"]](**settings).batches(
        class_ids, super_labels, n_batches=run.steps, seed=run.seed
    )
    return drawn


def loss_of(run: Run, class_ids: npt.NDArray[np.int64], dim: int) -> nn.Module:
    """The run's loss over embeddings of `dim` numbers, for training images of the classes (n,)."""
    return build_loss(
        LossConfig.model_validate(run.loss),
        dim=dim,
        class_sizes=np.bincount(class_ids).tolist(),
        # A class may come more than once in a batch of super-labels.
        max_per_class=None if run.sampler["kind"] == "hierarchical" else run.sampler.get("per_class"),
    )


def optimizer_of(
    run: Run, network: nn.Module, loss_function: nn.Module
) -> tuple[torch.optim.AdamW, torch.optim.lr_scheduler.LambdaLR]:
    """AdamW and its schedule: a short rise, then half a cosine."""
    optimizer = torch.optim.AdamW(_groups(network, loss_function, run.learning_rate), weight_decay=0.05)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, run.steps))


def _groups(network: nn.Module, loss_function: nn.Module, rate: float) -> list[dict[str, Any]]:
    weights = [p for p in network.parameters() if p.ndim > 1]
    scales = [p for p in network.parameters() if p.ndim <= 1]
    groups = [
        {"params": weights, "lr": rate},
        {"params": scales, "lr": rate, "weight_decay": 0.0},
    ]
    proxies = list(loss_function.parameters())
    if proxies:
        groups.append({"params": proxies, "lr": rate * _PROXY_RATE_FACTOR, "weight_decay": 0.0})
    return groups


def _rate(step: int, steps: int) -> float:
    warmup = max(1, steps // 15)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


@torch.inference_mode()
def _embed(network: EmbeddingNetwork, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float16]:
    network.eval()
    parts = [network(standardize(pixels[i : i + 256])).numpy() for i in range(0, len(pixels), 256)]
    embeddings = np.concatenate(parts)
    return (embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)).astype(np.float16)


def _embeddings_path(run: Run, work: Path) -> Path:
    return work / "runs" / f"{run.key}.npz"


def _save(path: Path, embedded: dict[str, npt.NDArray[np.float16]], record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, record=np.array(json.dumps(record)), **embedded)
    partial.rename(path)

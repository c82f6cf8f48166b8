"""Samplers by configuration, and the classes that they cannot draw."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")

from vicinal.models.errors import ConfigError  # noqa: E402
from vicinal.training.datasets import LabelledImages  # noqa: E402
from vicinal.training.losses.config import LossConfig  # noqa: E402
from vicinal.training.losses.registry import build_loss  # noqa: E402
from vicinal.training.samplers import (  # noqa: E402
    Batches,
    SamplerConfig,
    leave_out_small_classes,
)

read = TypeAdapter(SamplerConfig).validate_python
SIZES = {"a:one": 5, "a:two": 4, "a:three": 7, "b:four": 2, "b:five": 9, "b:six": 1}


def _images(sizes: dict[str, int] | None = None) -> LabelledImages:
    counts = SIZES if sizes is None else sizes
    labels = np.repeat(list(counts), list(counts.values()))
    return LabelledImages(
        pixels=np.zeros((len(labels), 1, 1, 3), np.uint8), labels=labels, roles=np.full(len(labels), "train")
    )


def batches_of(sampler: SamplerConfig, images: LabelledImages) -> Batches:
    groups = images.super_labels if sampler.kind == "hierarchical" else images.sources
    return sampler.batches(images.labels, groups, n_batches=5)


def test_small_classes_are_left_out_and_named() -> None:
    kept, left_out = leave_out_small_classes(_images(), 4)
    assert left_out == ["b:four", "b:six"]
    assert Counter(kept.labels.tolist()) == {"a:one": 5, "a:two": 4, "a:three": 7, "b:five": 9}


def test_images_without_a_class_large_enough_are_refused() -> None:
    with pytest.raises(ConfigError, match="none of the 2 training classes has 2 images, the largest has 1"):
        leave_out_small_classes(_images({"a": 1, "b": 1}), 2)


@pytest.mark.parametrize(
    ("fields", "composition"),
    [
        ({"batch_size": 8, "per_class": 2}, [2, 2, 2, 2]),
        ({"batch_size": 6, "per_class": 2, "classes_per_source": {"a": 2, "b": 1}}, [2, 2, 2]),
        ({"kind": "group", "m": 4, "n": 2}, [4, 4]),
    ],
)
def test_batches_are_those_of_the_configuration(fields: dict[str, Any], composition: list[int]) -> None:
    sampler = read(fields)
    images, _ = leave_out_small_classes(_images(), sampler.smallest_class)
    batches = list(batches_of(sampler, images))
    assert len(batches) == 5
    for batch in batches:
        assert len(batch) == sampler.batch_size
        assert sorted(Counter(images.labels[batch].tolist()).values()) == composition


@pytest.mark.parametrize(
    "fields",
    [{"batch_size": 8}, {"kind": "group", "m": 2, "n": 3}, {"kind": "random_pairs", "n_pairs": 4}],
)
def test_seed_decides_on_the_batches(fields: dict[str, Any]) -> None:
    images, _ = leave_out_small_classes(_images(), 2)
    first, again, other = (
        list(read(fields).batches(images.labels, n_batches=4, seed=seed)) for seed in (1, 1, 2)
    )
    assert first == again != other


def _slow_full_loss(embeddings: np.ndarray, class_ids: np.ndarray, margin: float) -> float:
    """Eq. 15 and 16 over every ordered pair of the data set."""
    sizes, n_images = np.bincount(class_ids), len(class_ids)
    total = 0.0
    for i, j in np.ndindex(n_images, n_images):
        distance = float(np.linalg.norm(embeddings[i] - embeddings[j]))
        if i != j and class_ids[i] == class_ids[j]:
            total += distance**2
        elif i != j:
            eta = 256 / (len(sizes) - 1) * (sizes[class_ids[i]] - 1) / sizes[class_ids[j]]
            total += eta * max(0.0, margin - distance) ** 2
    return total / (n_images * (n_images - 1))


def _mean_loss(fields: dict[str, Any], drawn_by: dict[str, Any]) -> tuple[float, float]:
    """Mean loss of many batches drawn by one configuration and weighted by another, and the full loss."""
    images, _ = leave_out_small_classes(_images(), 4)
    embeddings = np.random.default_rng(0).normal(size=(len(images.labels), 3))
    loss = build_loss(
        LossConfig(name="balanced_contrastive", arguments={"margin": 4.0}),
        class_sizes=np.bincount(images.class_ids).tolist(),
        batch_design=read(fields).batch_design,
    )
    batches = read(drawn_by).batches(images.labels, n_batches=4_000)
    rows, labels = torch.from_numpy(embeddings), torch.from_numpy(images.class_ids)
    values = [loss(rows[batch], labels[batch]).item() for batch in batches]
    return float(np.mean(values)), _slow_full_loss(embeddings, images.class_ids, 4.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields", [{"kind": "group", "m": 4, "n": 3}, {"kind": "random_pairs", "n_pairs": 12, "p": 0.3}]
)
def test_balanced_contrastive_loss_is_unbiased_for_the_batches_of_its_sampler(fields: dict[str, Any]) -> None:
    mean, full = _mean_loss(fields, fields)
    assert mean == pytest.approx(full, rel=0.02)


@pytest.mark.slow
def test_loss_of_pairs_drawn_with_another_share_is_biased() -> None:
    """Negative control."""
    pairs = {"kind": "random_pairs", "n_pairs": 12, "p": 0.3}
    mean, full = _mean_loss(pairs, {**pairs, "p": 0.6})
    assert mean != pytest.approx(full, rel=0.1)

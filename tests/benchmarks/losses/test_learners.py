"""A head on features of which a few directions tell the classes apart, and last stages on maps."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.losses.features import FeatureParts, Features
from benchmarks.losses.learners import DIM, HEAD, measure, measure_held_out, train
from benchmarks.losses.training import Run, training_images
from vicinal.models.similarity import normalize

MULTI_SIMILARITY: dict[str, Any] = {"name": "multi_similarity"}
RUN = Run(
    "set",
    "group",
    "name",
    MULTI_SIMILARITY,
    0,
    {"kind": "class_balanced", "batch_size": 32, "per_class": 4},
    steps=30,
    learning_rate=1e-2,
)


def features(n_classes: int, seed: int, roles: tuple[str, ...] = ("train",)) -> Features:
    """Ten images a class; 4 of 320 directions hold the class, the others are louder noise."""
    rng = np.random.default_rng(seed)
    classes = np.repeat(np.arange(n_classes), 10)
    rows = 0.5 * rng.standard_normal((len(classes), 2, 320)).astype(np.float32)
    rows[..., :4] += 1.5 * rng.standard_normal((n_classes, 4)).astype(np.float32)[classes][:, None]
    views = normalize(rows.reshape(-1, 320)).reshape(rows.shape)
    labels = np.array([f"set:{seed}-{one:02}" for one in classes])
    return Features(views, labels, np.resize(np.array(roles), len(labels)))


@pytest.fixture(scope="module")
def parts() -> FeatureParts:
    calibration, test = (features(8, seed, ("gallery", "query")) for seed in (1, 2))
    for part in (calibration, test):
        part.roles[:20] = "absent"
    return FeatureParts(features(12, 0), calibration, test)


def test_a_head_finds_what_tells_unseen_classes_apart(parts: FeatureParts) -> None:
    head, record = train(RUN, HEAD, parts.train)
    untrained, _ = train(dataclasses.replace(RUN, learning_rate=0.0), HEAD, parts.train)
    assert head(torch.zeros(2, 320)).shape == (2, DIM)
    assert record["backbone"] == "frozen"
    assert measure(head, parts)["map_at_r"] > measure(untrained, parts)["map_at_r"] + 0.02


def test_held_out_classes_are_those_of_the_fold(parts: FeatureParts) -> None:
    run = dataclasses.replace(RUN, fold=(1, 3))
    found = measure_held_out(torch.nn.Identity(), run, parts.train)
    held = parts.train.subset(parts.train.class_ids % 3 == 1)
    similarities = held.plain @ held.plain.T
    pairs = np.triu_indices(len(held.labels), 1)
    same = (held.labels[:, None] == held.labels)[pairs]
    negative = similarities[pairs][~same]
    assert (negative >= found["far_1"]).mean() == pytest.approx(0.01, abs=0.002)
    assert (negative >= found["far_10"]).mean() == pytest.approx(0.1, abs=0.002)
    assert (similarities[pairs][same] >= found["positive_90"]).mean() == pytest.approx(0.1, abs=0.01)


def test_training_leaves_the_fold_out() -> None:
    classes = np.repeat(np.arange(6), 4)
    chosen, own = training_images(dataclasses.replace(RUN, fold=(2, 3)), classes)
    assert set(classes[chosen]) == {0, 1, 3, 4}
    assert own.tolist() == np.repeat(np.arange(4), 4).tolist()

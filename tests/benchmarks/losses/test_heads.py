"""Heads on features of which a few directions tell the classes apart."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.losses.features import FeatureParts, Features
from benchmarks.losses.heads import HEAD_DIM, measure_head, measure_held_out, train_head
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
    head, record = train_head(RUN, parts.train)
    untrained, _ = train_head(dataclasses.replace(RUN, learning_rate=0.0), parts.train)
    assert head.shape == (320, HEAD_DIM)
    assert record["backbone"] == "frozen"
    assert measure_head(head, parts)["map_at_r"] > measure_head(untrained, parts)["map_at_r"] + 0.02


def test_a_seed_gives_the_same_head_again(parts: FeatureParts) -> None:
    short = dataclasses.replace(RUN, steps=2)
    np.testing.assert_array_equal(train_head(short, parts.train)[0], train_head(short, parts.train)[0])


def test_held_out_classes_are_those_of_the_fold(parts: FeatureParts) -> None:
    run = dataclasses.replace(RUN, fold=(1, 3))
    found = measure_held_out(np.eye(320, dtype=np.float32), run, parts.train)
    held = parts.train.subset(parts.train.class_ids % 3 == 1)
    similarities = held.plain @ held.plain.T
    pairs = np.triu_indices(len(held.labels), 1)
    same = (held.labels[:, None] == held.labels)[pairs]
    negative = similarities[pairs][~same]
    assert (negative >= found["far_1"]).mean() == pytest.approx(0.01, abs=0.002)
    assert (negative >= found["far_10"]).mean() == pytest.approx(0.1, abs=0.002)
    assert (similarities[pairs][same] >= found["positive_90"]).mean() == pytest.approx(0.1, abs=0.01)


def test_a_run_without_a_fold_has_no_held_out_classes(parts: FeatureParts) -> None:
    with pytest.raises(ValueError, match="holds no classes out"):
        measure_held_out(np.eye(320, dtype=np.float32), RUN, parts.train)


def test_training_leaves_the_fold_out() -> None:
    classes = np.repeat(np.arange(6), 4)
    chosen, own = training_images(dataclasses.replace(RUN, fold=(2, 3)), classes)
    assert set(classes[chosen]) == {0, 1, 3, 4}
    assert own.tolist() == np.repeat(np.arange(4), 4).tolist()


def test_label_noise_is_the_same_for_every_loss_and_as_large_as_asked() -> None:
    classes = np.repeat(np.arange(100), 20)
    noisy = dataclasses.replace(RUN, label_noise=0.2)
    chosen, own = training_images(noisy, classes)
    other = training_images(dataclasses.replace(noisy, loss={"name": "triplet"}), classes)[1]
    assert (own != classes[chosen]).mean() == pytest.approx(0.2, abs=0.03)
    np.testing.assert_array_equal(own, other)

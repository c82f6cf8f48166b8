"""A head on features of which a few directions tell the classes apart, and last stages on maps."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.losses.features import FeatureParts, Features
from benchmarks.losses.learners import DIM, HEAD, STAGES, Learner, measure, measure_held_out, train
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


@pytest.fixture(scope="module")
def maps() -> Features:
    """Six classes of four images, each a map that is another image's, with noise."""
    rng = np.random.default_rng(0)
    classes = np.repeat(np.arange(6), 4)
    rows = rng.standard_normal((6, 112, 4, 4))[classes][:, None]
    rows = rows + rng.standard_normal((24, 2, 112, 4, 4))
    return Features(rows.astype(np.float16), classes.astype(str), np.full(24, "train"))


def test_a_head_finds_what_tells_unseen_classes_apart(parts: FeatureParts) -> None:
    head, record = train(RUN, HEAD, parts.train)
    untrained, _ = train(dataclasses.replace(RUN, learning_rate=0.0), HEAD, parts.train)
    assert head(torch.zeros(2, 320)).shape == (2, DIM)
    assert record["backbone"] == "frozen"
    assert measure(head, parts)["map_at_r"] > measure(untrained, parts)["map_at_r"] + 0.02


@pytest.mark.parametrize("learner", [HEAD, STAGES])
def test_a_seed_gives_the_same_weights_again(learner: Learner, parts: FeatureParts, maps: Features) -> None:
    short = dataclasses.replace(RUN, steps=2, sampler={**RUN.sampler, "batch_size": 8})
    training = parts.train if learner is HEAD else maps
    first, second = (train(short, learner, training)[0].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_last_stages_and_the_head_learn_and_nothing_before_them(maps: Features) -> None:
    short = dataclasses.replace(RUN, steps=2, sampler={**RUN.sampler, "batch_size": 8})
    trained, record = train(short, STAGES, maps)
    first = STAGES.start(maps).state_dict()
    changed = {name for name, value in trained.state_dict().items() if not torch.equal(value, first[name])}
    assert any(name.startswith("back.") for name in changed)
    assert any(name.startswith("network.head.") for name in changed)
    assert not any(name.startswith("front.") for name in changed)
    assert record["backbone"] == "last two stages learn"


def test_training_starts_with_embeddings_around_the_origin(maps: Features) -> None:
    start = STAGES.start(maps).eval()
    with torch.inference_mode():
        embedded = start(torch.from_numpy(maps.plain.astype(np.float32)))
    np.testing.assert_allclose(embedded.mean(dim=0), 0.0, atol=1e-3)


def test_chunks_of_a_batch_teach_what_the_whole_batch_does(maps: Features) -> None:
    whole = dataclasses.replace(RUN, steps=1, sampler={**RUN.sampler, "batch_size": 16})
    chunked = dataclasses.replace(whole, sampler={**whole.sampler, "chunk_size": 4})
    first, second = (train(run, STAGES, maps)[1]["last_loss"] for run in (whole, chunked))
    assert second == pytest.approx(first, rel=1e-4)


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


def test_a_run_without_a_fold_has_no_held_out_classes(parts: FeatureParts) -> None:
    with pytest.raises(ValueError, match="holds no classes out"):
        measure_held_out(torch.nn.Identity(), RUN, parts.train)


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

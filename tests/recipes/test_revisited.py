"""The landmark protocol against a walk along the ranked list, by hand, and on real features."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipes.revisited import judged_metrics
from vicinal.models.errors import EvaluationError


def _slow_average_precision(ranking: list[int], relevant: set[int], junk: set[int]) -> float:
    """Walks the list, passes over junk, and adds the trapezoid below each step of the recall."""
    area, old_recall, old_precision, n_found, n_seen = 0.0, 0.0, 1.0, 0, 0
    for position in ranking:
        if position in junk:
            continue
        n_seen += 1
        n_found += position in relevant
        recall, precision = n_found / len(relevant), n_found / n_seen
        area += (recall - old_recall) * (old_precision + precision) / 2
        old_recall, old_precision = recall, precision
    return area


def _slow_precision_at(ranking: list[int], relevant: set[int], junk: set[int], k: int) -> float:
    clean = [position for position in ranking if position not in junk]
    last = max(rank for rank, position in enumerate(clean, 1) if position in relevant)
    depth = min(last, k)
    return sum(position in relevant for position in clean[:depth]) / depth


def _judged_sample(seed: int):
    rng = np.random.default_rng(seed)
    queries, gallery = rng.normal(size=(6, 4)), rng.normal(size=(20, 4))
    judged = []
    for _ in queries:
        order = rng.permutation(20)
        n_relevant, n_junk = rng.integers(1, 7), rng.integers(0, 9)
        judged.append((order[:n_relevant], order[n_relevant : n_relevant + n_junk]))
    cosine = queries @ (gallery / np.linalg.norm(gallery, axis=1, keepdims=True)).T
    rankings = [row.tolist() for row in np.argsort(-cosine, axis=1)]
    return queries, gallery, judged, rankings


@given(seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_the_metrics_equal_the_walk_along_the_list(seed: int) -> None:
    queries, gallery, judged, rankings = _judged_sample(seed)
    actual = judged_metrics(queries, gallery, judged=judged, ks=(1, 3, 10))
    cases = [
        (ranking, set(relevant.tolist()), set(junk.tolist()))
        for ranking, (relevant, junk) in zip(rankings, judged, strict=True)
    ]
    expected = np.mean([_slow_average_precision(*case) for case in cases])
    assert actual.mean_average_precision == pytest.approx(expected, rel=1e-9)
    assert list(actual.precision.values()) == pytest.approx(
        [np.mean([_slow_precision_at(*case, k) for case in cases]) for k in (1, 3, 10)], rel=1e-9
    )


def test_junk_that_counts_as_wrong_fails_the_walk() -> None:
    """Negative control."""
    queries, gallery, judged, rankings = _judged_sample(0)
    wrong = judged_metrics(queries, gallery, judged=[(relevant, []) for relevant, _ in judged])
    expected = [
        _slow_average_precision(ranking, set(relevant.tolist()), set(junk.tolist()))
        for ranking, (relevant, junk) in zip(rankings, judged, strict=True)
    ]
    assert wrong.mean_average_precision != pytest.approx(np.mean(expected), rel=1e-3)


@pytest.mark.parametrize(
    ("judged", "reason"),
    [
        ([([], []), ([], [])], "nothing to measure"),
        ([([0], [])], "2 queries, but judgments for 1"),
        ([([0], []), ([7], [])], "beyond the 2 images"),
        ([([0], []), ([0], [-1])], "beyond the 2 images"),
    ],
)
def test_judgments_that_do_not_fit_are_refused(judged: list, reason: str) -> None:
    with pytest.raises(EvaluationError, match=reason):
        judged_metrics(np.eye(2), np.eye(2), judged=judged)


def _read_fvecs(path: Path) -> np.ndarray:
    raw = np.fromfile(path, dtype="<i4")
    return raw.reshape(-1, 1 + raw[0])[:, 1:].view("<f4")


def test_the_published_features_of_oxford_give_their_known_figure(data_dir: Path) -> None:
    """The mean AP over the 55 queries is 0.4029, as the features' description states it."""
    folder = data_dir / "features" / "oxford5k-lopq"
    features = _read_fvecs(folder / "oxford_features.fvecs")
    names = (folder / "names.txt").read_text(encoding="utf-8").split()
    row = {Path(name).stem: position for position, name in enumerate(names)}
    truth = json.loads((folder / "gnd.json").read_text(encoding="utf-8"))
    judged = [
        ([row[name] for name in one["good"] + one["ok"]], [row[name] for name in one["junk"]])
        for one in truth
    ]
    metrics = judged_metrics(features[[one["row"] for one in truth]], features, judged=judged)
    assert metrics.n_queries == 55
    assert metrics.mean_average_precision == pytest.approx(0.4029, abs=5e-5)

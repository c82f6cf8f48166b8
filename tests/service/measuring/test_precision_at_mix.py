"""Precision at the expected mix of searches: how many matches are right depends on who is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from tests.service.pipelines import CONTEXTUAL
from tests.service.types import WriteGallery
from vicinal.calibration import Target, choose_threshold
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.similarity import normalize
from vicinal.service.measuring.calibrator import Calibration, Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.search.pipeline import Group, Pipeline, Rerank

N_LABELS, PER_LABEL = 20, 6
PIPELINES = [
    Pipeline(rerank=Rerank(method="off")),
    CONTEXTUAL,
    Pipeline(rerank=Rerank(method="off"), group=Group(by="label", score="max")),
]
LOOSE = Target(rate="fnir", value=0.05)


def photos(labels: range, seed: int) -> tuple[np.ndarray, list[str]]:
    """Photos of some labels, hard to tell apart; seeds of photos change their noise alone."""
    centers = np.random.default_rng(0).normal(size=(2 * N_LABELS, 12))
    own = np.repeat(np.array(labels), PER_LABEL)
    noise = np.random.default_rng([1, seed]).normal(size=(len(own), 12))
    embeddings = normalize(centers[own] + 0.7 * noise).astype(np.float32)
    return embeddings, [f"label {number}" for number in own]


@pytest.fixture(scope="module")
def snapshot(write_gallery: WriteGallery) -> Snapshot:
    return write_gallery(*photos(range(N_LABELS), 0))


def queries(kind: str, snapshot: Snapshot) -> LabelledQueries:
    if kind == "leave one out":
        return LabelledQueries.leave_one_out(snapshot)
    last = N_LABELS if kind == "known" else N_LABELS + 5
    return LabelledQueries(*photos_of(range(last)))


def photos_of(labels: range) -> tuple[np.ndarray, np.ndarray]:
    embeddings, names = photos(labels, 7)
    return embeddings, np.array(names, dtype=object)


def calibrated(
    snapshot: Snapshot, kind: str, pipeline: Pipeline, absent: float | None, target: Target = LOOSE
) -> Calibration:
    return Calibrator(snapshot, pipeline).measure(queries(kind, snapshot), target, absent=absent)


def slow_precision(found: Calibration, threshold: float, absent: float) -> float:
    """Right matches by all, search by search."""
    trials = found.measured.trials
    n_with, n_without = trials.n_searches
    right = wrong = answered = 0
    for score, is_mate, has_mate in zip(
        trials.answer_scores, trials.answer_is_mate, trials.answer_has_mate, strict=True
    ):
        if score >= threshold:
            right += is_mate
            wrong += has_mate and not is_mate
            answered += not has_mate
    known, unknown = (1.0 - absent) / n_with, absent / n_without
    return known * right / (known * (right + wrong) + unknown * answered)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda one: one.key)
@pytest.mark.parametrize("kind", ["leave one out", "known", "some absent"])
def test_precision_is_that_of_the_expected_mix(snapshot: Snapshot, kind: str, pipeline: Pipeline) -> None:
    rates = []
    for absent in (0.0, 0.2, 0.9):
        found = calibrated(snapshot, kind, pipeline, absent)
        evidence, threshold = found.record.evidence, found.record.threshold
        assert evidence.absent == absent
        rates.append(evidence.rates["precision"].rate)
        assert rates[-1] == pytest.approx(slow_precision(found, threshold, absent))
        kept = found.scores.counts("precision", threshold)
        assert kept.rate == pytest.approx(rates[-1])
        assert (
            evidence.rates["precision"].n_trials == (found.measured.trials.answer_scores >= threshold).sum()
        )
    assert rates == sorted(rates, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda one: one.key)
def test_a_target_for_precision_holds_at_the_expected_mix(snapshot: Snapshot, pipeline: Pipeline) -> None:
    target, thresholds = Target(rate="precision", value=0.8), []
    for absent in (0.1, 0.5, 0.8):
        found = calibrated(snapshot, "leave one out", pipeline, absent, target)
        threshold = found.record.threshold
        assert slow_precision(found, threshold, absent) >= 0.8 - 1e-12
        assert (
            found.scores.choose_threshold(target)
            == threshold
            == choose_threshold(found.measured.trials, target)
        )
        thresholds.append(threshold)
    assert thresholds == sorted(thresholds)
    assert thresholds[0] < thresholds[-1]

"""Precision at the expected mix of searches: how many matches are right depends on who is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from tests.service.pipelines import CONTEXTUAL
from tests.service.types import WriteGallery
from vicinal.calibration import CalibrationError, Target, choose_threshold, label_counts
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.similarity import normalize
from vicinal.service.measuring.calibrator import Calibration, Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.reports.promise import promise
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
@pytest.mark.parametrize(("kind", "expected"), [("leave one out", 0.5), ("known", 0.5), ("some absent", 0.2)])
def test_without_a_word_the_mix_is_that_of_the_searches_that_were_tried(
    snapshot: Snapshot, kind: str, expected: float
) -> None:
    found = calibrated(snapshot, kind, PIPELINES[0], None)
    assert found.record.evidence.absent == pytest.approx(expected)
    rate = found.record.evidence.rates["precision"].rate
    assert rate == pytest.approx(slow_precision(found, found.record.threshold, expected))


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


def test_the_interval_of_a_weighted_precision_is_about_as_wide_as_of_so_many_matches(
    snapshot: Snapshot,
) -> None:
    trials = calibrated(snapshot, "leave one out", PIPELINES[0], None).measured.trials
    plain, same = (label_counts(one, "precision", 0.7) for one in (trials, trials.at_mix(trials.absent)))
    assert np.allclose(plain.trials, same.trials)
    assert (plain.n_trials, plain.n_events) == (same.n_trials, same.n_events)
    assert plain.leave_one_label_out == pytest.approx(same.leave_one_label_out)


def test_a_mix_needs_searches_of_both_kinds(snapshot: Snapshot) -> None:
    strangers = LabelledQueries(*photos_of(range(N_LABELS, N_LABELS + 10)))
    with pytest.raises(CalibrationError, match="no query with a mate was tried"):
        Calibrator(snapshot, PIPELINES[0]).measure(strangers, Target(rate="fpir", value=0.3), absent=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["fnir=5%", "frr=1%", "far=50%", "fpir=50%"])
def test_the_first_sentence_says_how_many_matches_are_right(snapshot: Snapshot, target: str) -> None:
    """Whatever the target holds: that nearly all are found is worth little where few matches are right."""
    record = calibrated(snapshot, "leave one out", PIPELINES[0], 0.8, Target.parse(target)).record
    right = 100 * record.evidence.rates["precision"].rate
    first, second, third = promise(record)[0].split("; ")
    assert first.startswith(f"Of 100 matches that are shown, about {right:.0f} will be right (")
    assert first.endswith("), if 80 of 100 searches are for things you lack")
    assert second.startswith("of 100 photos of things you have, about ")
    assert third.startswith("of 100 photos of things you lack, about ")
    assert right < 50


def test_where_nothing_is_shown_nothing_is_said_to_be_right(snapshot: Snapshot) -> None:
    record = calibrated(snapshot, "leave one out", PIPELINES[0], None).record
    rates = {name: one for name, one in record.evidence.rates.items() if name != "precision"}
    bare = record.model_copy(
        update={"evidence": record.evidence.model_copy(update={"rates": rates, "another_day": {}})}
    )
    assert promise(bare)[0].startswith(
        "How many matches will be right is not known, as none was shown; of 100 "
    )

"""Drift monitor: counts every search that a calibration decided, over restarts and over all processes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.damaged_rows import damage
from tests.service.types import Calibrate
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.state.schema import search_counts
from vicinal.service.galleries.search_counts import DriftMonitor
from vicinal.service.measuring.drift import read_drift
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.measuring.records.store import CalibrationStore


@pytest.fixture
def record(gallery: Gallery, calibrate: Calibrate) -> CalibrationRecord:
    return CalibrationStore(gallery.path).get(calibrate(gallery))


@pytest.fixture
def monitor() -> DriftMonitor:
    return DriftMonitor(seconds=3600.0)


def search(matcher: Matcher, monitor: DriftMonitor, n: int = 60, **options: object) -> list[float]:
    """Search for the first items, and give their top scores."""
    ids = [item["id"] for item in matcher.snapshot.items(range(n))]
    answers = matcher.search(item_ids=ids, **options)
    monitor.record(answers, matcher)
    return [answer.top_score for answer in answers]


def test_the_counts_are_those_of_counting_every_top_score(
    matcher: Matcher, record: CalibrationRecord, monitor: DriftMonitor
) -> None:
    scores = np.array(search(matcher, monitor))
    found = monitor.drift(matcher, record)
    slow = [0] * (len(found.edges) + 1)
    for score in scores:
        slow[sum(1 for edge in found.edges if score >= edge)] += 1
    assert (list(found.counts_now), found.n_queries) == (slow, 60)
    assert found.no_match_now == np.mean(scores < record.threshold)


def test_the_queries_of_the_calibration_show_no_drift_and_others_do(
    matcher: Matcher, record: CalibrationRecord, monitor: DriftMonitor
) -> None:
    """Leave-one-out searched for these very items."""
    search(matcher, monitor)
    same = monitor.drift(matcher, record)
    assert (same.level, same.counts_now) == ("none", same.counts_then)
    rng = np.random.default_rng(1)
    strangers = rng.normal(size=(60, matcher.embedder.bundle.dim))
    for _ in range(5):
        monitor.record(matcher.search(embeddings=strangers), matcher)
    assert monitor.drift(matcher, record).level == "strong"


def test_what_a_process_counted_stays_after_its_end(matcher: Matcher, record: CalibrationRecord) -> None:
    for _ in range(2):
        with DriftMonitor(seconds=3600.0) as monitor:
            search(matcher, monitor, 10)
    assert read_drift(matcher.calibrations, record).n_queries == 20


def test_the_counts_of_all_processes_are_added(matcher: Matcher, record: CalibrationRecord) -> None:
    with (
        DriftMonitor(seconds=3600.0) as first,
        DriftMonitor(seconds=3600.0) as second,
    ):
        search(matcher, first, 10)
        search(matcher, second, 5)
        second.write()
        assert first.drift(matcher, record).n_queries == 15
        search(matcher, second, 5)
        assert second.drift(matcher, record).n_queries == 10
    assert read_drift(matcher.calibrations, record).n_queries == 20


def test_damaged_counts_are_left_out_and_told(
    matcher: Matcher, record: CalibrationRecord, monitor: DriftMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    with DriftMonitor(seconds=3600.0) as other:
        search(matcher, other, 5)
    damage(matcher.gallery.path, search_counts, counter="7")
    search(matcher, monitor, 10)
    assert monitor.drift(matcher, record).n_queries == 10
    assert "counter='7'" in caplog.text

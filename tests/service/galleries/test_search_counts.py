"""Drift monitor: counts every search that a calibration decided, over restarts and over all processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.service.types import Calibrate
from vicinal.indexer.gallery import Gallery
from vicinal.service.galleries.search_counts import DriftMonitor
from vicinal.service.measuring.drift import read_drift
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.measuring.records.store import CalibrationStore


@pytest.fixture
def record(gallery: Gallery, calibrate: Calibrate) -> CalibrationRecord:
    return CalibrationStore(gallery.calibrations_path).get(calibrate(gallery))


@pytest.fixture
def monitor(tmp_path: Path) -> DriftMonitor:
    return DriftMonitor(tmp_path / "replicas", seconds=3600.0)


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


def test_a_restarted_process_goes_on_with_its_counts(
    matcher: Matcher, record: CalibrationRecord, tmp_path: Path
) -> None:
    for _ in range(2):
        with DriftMonitor(tmp_path / "replicas", seconds=3600.0) as monitor:
            search(matcher, monitor, 10)
    assert read_drift(matcher.calibrations, record).n_queries == 20
    assert len(list((matcher.calibrations.path / "drift").iterdir())) == 1


def test_the_counts_of_all_processes_are_added(
    matcher: Matcher, record: CalibrationRecord, tmp_path: Path
) -> None:
    with (
        DriftMonitor(tmp_path / "replicas", seconds=3600.0) as first,
        DriftMonitor(tmp_path / "replicas", seconds=3600.0) as second,
    ):
        search(matcher, first, 10)
        search(matcher, second, 5)
        second.write()
        assert first.drift(matcher, record).n_queries == 15
        search(matcher, second, 5)
        assert second.drift(matcher, record).n_queries == 10
    assert read_drift(matcher.calibrations, record).n_queries == 20


def test_damaged_counts_are_left_out_and_told(
    matcher: Matcher, record: CalibrationRecord, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = matcher.calibrations.path / "drift"
    folder.mkdir()
    (folder / f"{record.id}.7.json").write_text('{"since": null', encoding="utf-8")
    with DriftMonitor(tmp_path / "replicas") as monitor:
        search(matcher, monitor, 10)
        assert monitor.drift(matcher, record).n_queries == 10
    assert f"{record.id}.7.json" in caplog.text

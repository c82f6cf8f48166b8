"""Matcher: one threshold on the final score, and whose calibration it comes from."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.types import Calibrate, View
from vicinal.indexer.errors import BundleMismatchError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source, source_name
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.record import CalibrationRecord, new_calibration_id
from vicinal.service.search.gallery_search import Answer
from vicinal.service.search.pipeline import Pipeline

ITEM = "plain/view 0.png"


def search_item(matcher: Matcher, **options: object) -> Answer:
    return matcher.search(item_ids=[ITEM], **options)[0]


def by_hand(matcher: Matcher, threshold: float, pipeline: Pipeline | None = None, **changes: object) -> None:
    """Put a threshold that was set by hand in force."""
    manifest = matcher.snapshot.manifest
    record = CalibrationRecord(
        id=new_calibration_id(),
        created_at=datetime.now(UTC),
        source="by_hand",
        target=None,
        threshold=threshold,
        rates=None,
        pipeline=pipeline or Pipeline(),
        bundle=manifest.bundle,
        version=manifest.version,
        n_items=manifest.n_items,
    )
    matcher.calibrations.add(record.model_copy(update=changes))


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rank=st.integers(0, 30))
def test_a_score_exactly_at_the_threshold_is_a_match_and_one_bit_below_is_not(
    matcher: Matcher, rank: int
) -> None:
    scored = search_item(matcher, limit=100).candidates
    score = scored[rank].score
    at = search_item(matcher, threshold=score, limit=100)
    above = search_item(matcher, threshold=float(np.nextafter(score, 2.0)), limit=100)
    assert [one.id for one in at.matches] == [one.id for one in scored if one.score >= score]
    assert [one.id for one in above.matches] == [one.id for one in scored if one.score > score]


def test_the_threshold_is_in_full_precision_in_the_stored_calibration(matcher: Matcher) -> None:
    second = search_item(matcher).candidates[1].score
    by_hand(matcher, second)
    assert [one.rank for one in search_item(matcher).matches] == [1, 2]


def test_without_a_calibration_nothing_is_decided(matcher: Matcher) -> None:
    answer = search_item(matcher, limit=3)
    assert answer.no_match is None
    assert answer.matches == []
    assert [one.rank for one in answer.candidates] == [1, 2, 3]
    assert "has no calibration" in str(answer.threshold.reason)


def test_a_calibrated_gallery_decides_and_says_by_what(
    matcher: Matcher, calibrate: Calibrate, view: View
) -> None:
    record_id = calibrate(matcher.gallery)
    answer = matcher.search(images=[view(3, 7)])[0]
    assert answer.no_match is False
    assert {one.label for one in answer.matches} == {"o'brien"}
    threshold = answer.threshold
    assert (threshold.state, threshold.source, threshold.calibration) == ("current", "calibration", record_id)
    assert threshold.target == "FPIR 5 %"


def test_the_calibration_of_another_pipeline_is_never_used(matcher: Matcher, calibrate: Calibrate) -> None:
    calibrate(matcher.gallery)
    answer = search_item(matcher, rerank="contextual")
    assert answer.threshold.value is None
    assert "'rerank=contextual k=8" in str(answer.threshold.reason)


def test_a_calibration_made_with_another_bundle_is_not_used(matcher: Matcher) -> None:
    by_hand(matcher, 0.5, bundle="0123456789abcdef")
    answer = search_item(matcher)
    assert answer.no_match is None
    assert "0123456789abcdef" in str(answer.threshold.reason)


@pytest.mark.slow
@pytest.mark.parametrize(("n_changed", "state"), [(0, "current"), (12, "current"), (13, "stale")])
def test_a_calibration_is_stale_when_more_than_a_fifth_of_the_items_changed(
    matcher: Matcher,
    calibrate: Calibrate,
    catalog: Path,
    view: View,
    tmp_path: Path,
    n_changed: int,
    state: str,
) -> None:
    calibrate(matcher.gallery)
    items = read_source(catalog)
    for number in range(n_changed):
        path = tmp_path / f"{number}.png"
        view(50 + number, 0).save(path)
        items[number] = items[number].__class__(items[number].id, path, items[number].label)
    index_items(matcher.gallery, items, matcher.embedder, source=source_name(catalog), workers=1)
    threshold = search_item(Matcher(matcher.gallery, matcher.embedder)).threshold
    assert threshold.state == state
    assert (threshold.reason is None) == (state == "current")


def test_a_threshold_set_by_hand_decides_and_is_not_called_calibrated(matcher: Matcher) -> None:
    by_hand(matcher, 0.4)
    threshold = search_item(matcher).threshold
    assert (threshold.value, threshold.source, threshold.state) == (0.4, "by_hand", "by_hand")
    assert threshold.target is None


def test_an_item_leaves_itself_out_of_its_own_search(matcher: Matcher) -> None:
    answer = search_item(matcher, limit=100)
    assert len(answer.candidates) == 59
    assert ITEM not in {one.id for one in answer.candidates}


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limit=st.integers(1, 150), threshold=st.floats(0.2, 1.0))
def test_the_limit_cuts_the_matches_and_changes_none(matcher: Matcher, limit: int, threshold: float) -> None:
    everything = search_item(matcher, threshold=threshold, limit=200)
    answer = search_item(matcher, threshold=threshold, limit=limit)
    assert answer.matches == everything.matches[:limit]
    assert answer.no_match == everything.no_match


def test_a_gallery_of_another_bundle_is_refused_with_both_fingerprints(
    gallery: Gallery, tmp_path: Path, tiny_bundle: ModelBundle, write_bundle: Callable[..., ModelBundle]
) -> None:
    other = write_bundle(tmp_path / "other", seed=1)
    with pytest.raises(BundleMismatchError) as caught:
        Matcher(gallery, Embedder(other, device="cpu", threads=1))
    assert tiny_bundle.fingerprint in str(caught.value)
    assert other.fingerprint in str(caught.value)

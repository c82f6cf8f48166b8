"""Two readings of leave-one-out give two thresholds: one between is in force, answers below it are unsure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.service.types import WriteGallery
from vicinal.calibration import Target
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.similarity import normalize
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.measuring.visits import Visits, look_alikes
from vicinal.service.search.pipeline import Pipeline, Rerank

N_LABELS, PER_LABEL = 30, 6
OFF = Pipeline(rerank=Rerank(method="off"))
FPIR = Target(rate="fpir", value=0.1)


@pytest.fixture
def snapshot(write_gallery: WriteGallery) -> Snapshot:
    """Labels on two visits, and pairs of labels that are alike: both readings differ."""
    rng = np.random.default_rng(4)
    families = np.repeat(rng.normal(size=(N_LABELS // 2, 12)), 2, axis=0)
    centers = families + 0.6 * rng.normal(size=families.shape)
    shots = np.repeat(centers, 2, axis=0)
    shots = np.repeat(shots + 0.5 * rng.normal(size=shots.shape), PER_LABEL // 2, axis=0)
    photos = normalize(shots + 0.1 * rng.normal(size=shots.shape))
    return write_gallery(photos, [f"label {i // PER_LABEL}" for i in range(len(photos))])


def calibrate(
    snapshot: Snapshot,
    target: Target = FPIR,
    *,
    are_told: bool = False,
    pipeline: Pipeline = OFF,
    starting: float | None = None,
) -> CalibrationRecord:
    unknown = Visits("auto", np.full(len(snapshot), None, dtype=object), are_told=are_told)
    calibrator = Calibrator(snapshot, pipeline, visits=unknown, starting=starting)
    return calibrator.measure(calibrator.leave_one_out(), target).record


def readings(snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Slow reference: best mate, also without look-alikes; best stranger, and that of the next label."""
    rows, labels = snapshot.embeddings.astype(np.float64), np.array(snapshot.labels)
    unknown = Visits("auto", np.full(len(snapshot), None, dtype=object), are_told=False)
    alike = look_alikes(snapshot, unknown)
    scores = np.exp(2.0 * (rows @ rows.T) - 2.0)
    found = []
    for row, label in enumerate(labels):
        own = [scores[row, i] for i in np.flatnonzero(labels == label) if i != row]
        apart = [
            scores[row, i] for i in np.flatnonzero(labels == label) if i != row and alike[i] != alike[row]
        ]
        others = sorted((scores[row, labels == other].max() for other in set(labels) - {label}), reverse=True)
        found.append((max(own), max(apart, default=-np.inf), others[0], others[1]))
    return tuple(np.array(found).T)


def test_the_band_begins_at_the_threshold_of_the_other_reading_or_at_a_tenth_of_the_strangers(
    snapshot: Snapshot,
) -> None:
    record = calibrate(snapshot)
    band, n = record.evidence.unsure, len(snapshot)
    mates, _, strangers, further = readings(snapshot)
    other = np.sort(further)[n - 1 - int(0.1 * n)]
    tenth = np.sort(strangers)[n - 1 - int(n * (record.rates.fpir + 0.1))]
    assert band.lowest == pytest.approx(max(other, tenth), abs=1e-6)
    assert band.lowest < record.threshold
    is_between = (strangers >= band.lowest) & (strangers < record.threshold)
    # The reference computes in other steps: a score lies on the other side of an end.
    assert band.strangers == pytest.approx(is_between.mean(), abs=2.01 / n)
    assert band.known == pytest.approx(
        ((mates >= band.lowest) & (mates < record.threshold)).mean(), abs=2.01 / n
    )
    assert 0.0 < band.strangers <= 0.1


def ends_for_strangers(snapshot: Snapshot) -> tuple[float, float]:
    """Slow reference: lowest thresholds at which a tenth match, photos together, and in the mean of both."""
    *_, strangers, further = readings(snapshot)
    tried = sorted({*strangers, *further})
    strict = next(t for t in tried if (strangers > t).mean() <= 0.1)
    mean = next(t for t in tried if (strangers > t).mean() + (further > t).mean() <= 0.2)
    return strict, mean


def test_without_a_threshold_of_the_bundle_the_mean_of_both_readings_holds_the_target(
    snapshot: Snapshot,
) -> None:
    record = calibrate(snapshot)
    strict, mean = ends_for_strangers(snapshot)
    chosen = record.evidence.chosen
    assert mean < strict
    assert (chosen.by, chosen.starting) == ("mean", None)
    assert (chosen.strict, chosen.mean) == pytest.approx((strict, mean), abs=1e-6)
    assert record.threshold == chosen.mean
    together, promised = record.rates.fpir, record.evidence.another_day["fpir"]
    assert (together + promised.apart) / 2 <= 0.1 < together
    assert promised.low <= promised.apart < together <= promised.high


@pytest.mark.parametrize(
    ("share", "by", "taken"), [(0.5, "bundle", 0.5), (-1.0, "mean", 0.0), (2.0, "strict", 1.0)]
)
def test_the_threshold_of_the_bundle_is_taken_as_far_as_it_lies_between(
    snapshot: Snapshot, share: float, by: str, taken: float
) -> None:
    ends = calibrate(snapshot).evidence.chosen
    own, expected = (ends.mean + one * (ends.strict - ends.mean) for one in (share, taken))
    record = calibrate(snapshot, starting=own)
    assert (record.evidence.chosen.by, record.evidence.chosen.starting) == (by, own)
    assert record.threshold == pytest.approx(expected, abs=1e-12)


def test_a_target_for_misses_holds_in_the_mean_of_both_readings(snapshot: Snapshot) -> None:
    record = calibrate(snapshot, Target(rate="fnir", value=0.3))
    chosen = record.evidence.chosen
    assert chosen.strict < chosen.mean == record.threshold
    together, apart = record.rates.fnir, record.evidence.another_day["fnir"].apart
    assert together < 0.3 < apart
    assert (together + apart) / 2 == pytest.approx(0.3, abs=0.01)


def test_where_visits_are_told_apart_nothing_is_unsure(snapshot: Snapshot) -> None:
    evidence = calibrate(snapshot, are_told=True, starting=0.5).evidence
    assert (evidence.unsure, evidence.chosen) == (None, None)


@pytest.fixture
def with_band(matcher: Matcher) -> Callable[[float, float], Matcher]:
    """The matcher with a threshold in force, and a band below it."""

    def put(lowest: float, threshold: float) -> Matcher:
        unknown = Visits("auto", np.full(len(matcher.snapshot), None, dtype=object), are_told=False)
        calibrator = Calibrator(matcher.snapshot, matcher.pipeline, visits=unknown)
        found = calibrator.measure(calibrator.leave_one_out(), FPIR)
        evidence = found.record.evidence
        band = {"lowest": lowest, "known": 0.1, "strangers": 0.05}
        changed = type(evidence).model_validate({**evidence.model_dump(), "unsure": band})
        record = found.record.model_copy(update={"threshold": threshold, "evidence": changed})
        matcher.calibrations.add(record, found.scores)
        return matcher

    return put


ITEM = "plain/view 0.png"


def test_an_answer_is_a_match_from_the_threshold_on_and_unsure_from_the_band_on(
    matcher: Matcher, with_band: Callable[[float, float], Matcher]
) -> None:
    top = matcher.search(item_ids=[ITEM])[0].candidates[0].score
    one_bit_above = float(np.nextafter(top, 2.0))
    for lowest, threshold, verdict in (
        (top - 0.1, top, "match"),
        (top, one_bit_above, "unsure"),
        (one_bit_above, one_bit_above + 0.01, "no_match"),
    ):
        answer = with_band(lowest, threshold).search(item_ids=[ITEM])[0]
        assert answer.verdict == verdict
        assert answer.no_match == (verdict != "match")
        assert answer.threshold.unsure_from == lowest
        assert (answer.reason is None) == (verdict != "unsure")


def test_the_p_value_is_the_share_of_strangers_labels_that_score_as_high(
    matcher: Matcher, with_band: Callable[[float, float], Matcher]
) -> None:
    top = matcher.search(item_ids=[ITEM])[0].candidates[0].score
    answer = with_band(top - 0.2, top - 0.1).search(item_ids=[ITEM])[0]
    record = matcher.calibrations.get(answer.threshold.calibration)
    kept = matcher.calibrations.scores(record).trials["fpir"]
    scores, codes = kept.scores, kept.codes[0]
    shares = [(scores[codes == one] >= top).mean() for one in np.unique(codes)]
    assert answer.p_value == pytest.approx((sum(shares) + 1) / (len(shares) + 1))

"""Points of a calibration: its own rates can be counted on them, and they name what a search would show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.service.conftest import overlapping
from tests.service.pipelines import CONTEXTUAL
from tests.service.types import WriteGallery
from vicinal.calibration import Target
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.errors import CalibrationRecordError
from vicinal.service.measuring.calibrator import Calibration, Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.records.points import points_body
from vicinal.service.measuring.records.store import CalibrationStore

N_LABELS, PER_LABEL = 12, 4
N = N_LABELS * PER_LABEL


@pytest.fixture(scope="module")
def snapshot(write_gallery: WriteGallery) -> Snapshot:
    return write_gallery(*overlapping(N_LABELS, PER_LABEL, 0.4))


@pytest.fixture(scope="module")
def found(snapshot: Snapshot) -> Calibration:
    queries = LabelledQueries.leave_one_out(snapshot)
    return Calibrator(snapshot, CONTEXTUAL).measure(queries, Target(rate="fpir", value=0.2))


def test_the_rates_of_the_record_are_counted_on_the_points(found: Calibration) -> None:
    points, record, rates = found.points, found.record, found.record.rates
    assert rates is not None
    assert (points.stranger_score >= record.threshold).mean() == pytest.approx(rates.fpir)
    assert (points.mate_score < record.threshold).mean() == pytest.approx(rates.fnir)


def test_mates_have_the_label_of_the_query_and_strangers_another(
    snapshot: Snapshot, found: Calibration
) -> None:
    points = found.points
    labels = dict(zip(snapshot.item_table["id"].to_pylist(), snapshot.labels, strict=True))
    own = points.labels[points.label]
    assert [labels[one] for one in points.ids[points.query]] == own.tolist()
    assert [labels[one] for one in points.ids[points.mate]] == own.tolist()
    assert (points.mate != points.query).all()
    strangers = [labels[one] for one in points.ids[points.stranger]]
    assert strangers == points.labels[points.stranger_label].tolist()
    assert all(one != other for one, other in zip(strangers, own, strict=True))


def test_the_grid_holds_the_rates_of_the_record_with_their_intervals(found: Calibration) -> None:
    evidence, threshold = found.record.evidence, found.record.threshold
    assert evidence is not None
    body = points_body(found.points, found.scores, threshold, most=N)
    assert body.grid is not None
    place = body.grid.thresholds.index(threshold)
    for name in ("fpir", "fnir", "precision"):
        told, wanted = getattr(body.grid, name), evidence.rates[name]
        shown = told.rate[place], told.low[place], told.high[place]
        assert shown == pytest.approx((wanted.rate, wanted.low, wanted.high))
    assert all(
        low <= rate <= high
        for low, rate, high in zip(body.grid.fpir.low, body.grid.fpir.rate, body.grid.fpir.high, strict=True)
        if low is not None and rate is not None and high is not None
    )


def test_a_sample_is_told_where_there_are_more_queries(found: Calibration) -> None:
    body = points_body(found.points, found.scores, found.record.threshold, most=10)
    assert body.queries is not None
    assert (body.n_queries, len(body.queries.id), len(body.queries.mate_score)) == (N, 10, 10)
    assert points_body(found.points, None, 0.5, most=10).grid is None


def test_queries_from_outside_without_ids(snapshot: Snapshot) -> None:
    """A label that the gallery lacks makes a query without a mate."""
    embeddings = np.asarray(snapshot.embeddings[:25])
    labels = np.array([*snapshot.labels[:24], "lost"], dtype=object)
    made = Calibrator(snapshot, CONTEXTUAL).measure(
        LabelledQueries(embeddings, labels), Target(rate="fnir", value=0.5)
    )
    points = made.points
    assert points.query.tolist() == [-1] * 25
    assert np.isnan(points.mate_score).tolist() == [False] * 24 + [True]
    assert points.mate.tolist()[24] == -1
    assert np.isnan(points.stranger_score).tolist() == [True] * 24 + [False]


def test_they_are_kept_beside_the_record(found: Calibration, tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path / "gallery" / "calibrations")
    record = store.add(found.record, found.scores, found.curves, found.points)
    kept = store.points(record)
    assert kept is not None
    for name, value in vars(found.points).items():
        np.testing.assert_array_equal(getattr(kept, name), value)
    store.file(record.id, ".points.npz").write_bytes(b"no points")
    with pytest.raises(CalibrationRecordError, match=r"the points of calibration .* are damaged"):
        store.points(record)

"""Points of a calibration: its own rates can be counted on them, and they name what a search would show."""

from __future__ import annotations

import pytest

from tests.service.conftest import overlapping
from tests.service.pipelines import CONTEXTUAL
from tests.service.types import WriteGallery
from vicinal.calibration import Target
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.measuring.calibrator import Calibration, Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.records.points import points_body

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

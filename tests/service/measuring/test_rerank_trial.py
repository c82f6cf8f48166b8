"""Rerank trial: taken where it is surely better in both readings of what was taken together, else none."""

from __future__ import annotations

import numpy as np
import pytest

from tests.service.types import WriteGallery
from vicinal.calibration import Target
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.similarity import normalize
from vicinal.service.measuring import rerank_trial
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.rerank_trial import try_reranks
from vicinal.service.measuring.visits import Visits
from vicinal.service.search.pipeline import Pipeline

FPIR = Target(rate="fpir", value=0.1)


def siblings(write_gallery: WriteGallery, n_labels: int = 40, size: int = 10) -> Snapshot:
    """Labels in pairs that are hard to tell, some dense and some loose, which neighborhoods tell of."""
    rng = np.random.default_rng(0)
    pairs = np.repeat(rng.normal(size=(n_labels // 2, 16)), 2, axis=0)
    centers = np.repeat(pairs + 0.5 * rng.normal(size=(n_labels, 16)), size, axis=0)
    spread = rng.uniform(0.05, 1.0, n_labels).reshape(-1, 2).mean(axis=1)
    items = centers + np.repeat(spread, 2 * size)[:, None] * rng.normal(size=centers.shape)
    labels = [f"label {i:02}" for i in range(n_labels) for _ in range(size)]
    return write_gallery(normalize(items.astype(np.float32)), labels)


@pytest.fixture(scope="module")
def snapshot(write_gallery: WriteGallery) -> Snapshot:
    return siblings(write_gallery)


def calibrator(
    snapshot: Snapshot, visits: Visits | None = None, pipeline: Pipeline | None = None
) -> Calibrator:
    return Calibrator(snapshot, pipeline or Pipeline(), visits=visits)


def untold(snapshot: Snapshot, names: list[str] | None = None) -> Visits:
    return Visits("auto", np.array(names or [None] * len(snapshot), dtype=object), are_told=False)


def test_what_is_surely_better_in_both_readings_is_chosen(snapshot: Snapshot) -> None:
    own = calibrator(snapshot, untold(snapshot))
    found = try_reranks(own, own.leave_one_out(), FPIR)
    assert (found.chosen.method, found.chosen.k, found.n_queries) == ("contextual", 16, 400)
    chosen = next(one for one in found.tried if one.rerank == found.chosen)
    assert {*chosen.errors} == {"apart", "together"}
    assert all(one.high < 0 for one in chosen.errors.values())
    assert found.gain == chosen.gain == min(-one.difference for one in chosen.errors.values()) > 0.03


@pytest.mark.slow
def test_what_is_better_for_photos_of_one_visit_alone_is_not(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving one out flatters what looks at neighborhoods."""
    together = calibrator(snapshot)
    assert try_reranks(together, together.leave_one_out(), FPIR).chosen.method == "contextual"
    names = [f"{label} {place % 10 == 0}" for place, label in enumerate(snapshot.labels)]
    monkeypatch.setattr(rerank_trial, "visits_by_likeness", lambda *_: untold(snapshot, names))
    own = calibrator(snapshot, untold(snapshot))
    found = try_reranks(own, own.leave_one_out(), FPIR)
    assert (found.chosen.method, found.gain) == ("off", 0.0)
    assert all("together" not in one.errors for one in found.tried)


@pytest.mark.slow
def test_errors_are_those_of_a_calibration_on_the_same_queries(snapshot: Snapshot) -> None:
    own = calibrator(snapshot)
    found = try_reranks(own, own.leave_one_out(), FPIR)
    for one in found.tried[:2]:
        record = (
            calibrator(snapshot, pipeline=Pipeline(rerank=one.rerank))
            .measure(own.leave_one_out(), FPIR)
            .record
        )
        assert one.errors["apart"].value == pytest.approx(record.rates.fnir)

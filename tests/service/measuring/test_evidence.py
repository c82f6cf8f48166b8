"""Evidence of a calibration: it says what the record says, and what that rests on."""

from __future__ import annotations

import numpy as np
import pytest

from tests.service.conftest import overlapping
from tests.service.pipelines import CONTEXTUAL
from tests.service.types import WriteGallery
from vicinal.calibration import Target
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.similarity import normalize
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.search.pipeline import Pipeline, Rerank

N_LABELS, PER_LABEL = 24, 5
FPIR = Target(rate="fpir", value=0.1)


@pytest.fixture
def snapshot(write_gallery: WriteGallery) -> Snapshot:
    return write_gallery(*overlapping(N_LABELS, PER_LABEL, 0.35))


def calibrate(snapshot: Snapshot, target: Target = FPIR, **options: object) -> CalibrationRecord:
    queries = LabelledQueries.leave_one_out(snapshot)
    return Calibrator(snapshot, CONTEXTUAL).measure(queries, target, **options).record


def test_every_rate_names_its_trials_and_labels(snapshot: Snapshot) -> None:
    record = calibrate(snapshot)
    rates = record.evidence.rates
    counted = {"far": 120 * 115, "frr": 120 * 4, "fpir": 120, "fnir": 120}
    assert {name: rates[name].n_trials for name in counted} == counted
    assert {rates[name].n_labels for name in counted} == {N_LABELS}
    assert {round(rates[name].effective_labels, 9) for name in counted} == {N_LABELS}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_a_label_that_one_threshold_serves_worse_is_named_and_chance_is_not(
    write_gallery: WriteGallery, seed: int, spread: float
) -> None:
    """Of 12 labels of 12 items all have one spread, or the first twice that."""
    rng = np.random.default_rng(seed)
    spreads = np.repeat([spread, *[1.0] * 11], 12)[:, None]
    centers = np.repeat(normalize(rng.normal(size=(12, 32))), 12, axis=0)
    rows = normalize(centers + spreads * rng.normal(size=centers.shape) / np.sqrt(32))
    gallery = write_gallery(rows, [f"label {i // 12}" for i in range(144)])
    pipeline = Pipeline(rerank=Rerank(method="off"))
    found = Calibrator(gallery, pipeline).measure(LabelledQueries.leave_one_out(gallery), FPIR)
    evidence, is_worse = found.record.evidence, spread > 1.0
    assert evidence.opis["final"].is_real == is_worse
    assert [one.label for one in evidence.worst_classes] == ["label 0"] * is_worse
    utilities = found.curves.utilities["final"]
    for one in evidence.worst_classes:
        assert one.mean_utility == pytest.approx(np.mean(utilities.values[0]), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["far=5%", "frr=30%", "fpir=10%", "fnir=30%", "precision=70%"])
def test_every_target_is_held_on_its_trials(snapshot: Snapshot, text: str) -> None:
    target = Target.parse(text)
    found = calibrate(snapshot, target).evidence.rates[target.rate]
    assert found.rate >= target.value if target.rate == "precision" else found.rate <= target.value

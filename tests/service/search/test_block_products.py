"""Pairs compared by GPUs that are none: what is sent where, and that a calibration is the processor's."""

from __future__ import annotations

import logging
from itertools import count

import faiss
import numpy as np
import pytest

from tests.logs import said_by
from tests.service.conftest import overlapping
from tests.service.pipelines import CONTEXTUAL
from tests.service.types import WriteGallery
from tests.stand_in_gpus import stand_in_gpus
from vicinal.calibration import Target
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph import gpu
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.embedder import Embedder
from vicinal.models.similarity import normalize
from vicinal.service.measuring import pairs
from vicinal.service.measuring.calibrator import Calibration, Calibrator
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.operations import calibrate
from vicinal.service.search import item_spaces as module
from vicinal.service.search.item_spaces import block_products, exact_products

N_LABELS, PER_LABEL, DIM = 40, 6, 16
N = N_LABELS * PER_LABEL
# Of float32 sums.
TOLERANCE = 1e-6
TARGET = Target.parse("fpir=5%")


@pytest.fixture
def snapshot(write_gallery: WriteGallery) -> Snapshot:
    return write_gallery(*overlapping(N_LABELS, PER_LABEL, 0.8, dim=DIM, seed=3))


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 50 items for all queries, and a GPU for any number of them."""
    monkeypatch.setattr(module, "_FEWEST_PAIRS", 1)
    monkeypatch.setattr(pairs, "_BLOCK", 50 * N)


def calibrated(snapshot: Snapshot, device: str = "cpu") -> Calibration:
    calibrator = Calibrator(snapshot, CONTEXTUAL, device=device)
    return calibrator.measure(LabelledQueries.leave_one_out(snapshot), TARGET)


def assert_are_equal(found: Calibration, expected: Calibration) -> None:
    one, other = found.measured.trials, expected.measured.trials
    for name in ("mate_scores", "non_mate_scores", "best_mate_scores", "best_scores_without_mate"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=0, atol=TOLERANCE)
    assert found.record.threshold == pytest.approx(expected.record.threshold, abs=TOLERANCE)
    assert found.record.rates == expected.record.rates
    for space, opis in expected.opis.items():
        assert found.opis[space].evidence.opis == pytest.approx(opis.evidence.opis, abs=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize(("device", "number"), [("auto", 1), ("cuda", 0), ("cuda:1", 1)])
def test_a_calibration_is_the_processors(snapshot: Snapshot, device: str, number: int) -> None:
    with stand_in_gpus([2**30, 2**31]) as gpus:
        found = calibrated(snapshot, device)
    assert gpus.compared == [(number, N, 50)] * 4 + [(number, N, 40)]
    assert_are_equal(found, calibrated(snapshot))


@pytest.mark.slow
def test_where_it_fails_auto_goes_on_on_the_processor(
    snapshot: Snapshot, caplog: pytest.LogCaptureFixture
) -> None:
    n_asked = count()

    def fails() -> None:
        if next(n_asked) == 2:
            raise RuntimeError("Error in bfKnn:\nCUDA error 719")

    with stand_in_gpus([2**30]) as gpus, caplog.at_level(logging.WARNING):
        gpus.fails = fails
        found = calibrated(snapshot, "auto")
    assert len(gpus.compared) == 2
    assert said_by(caplog, gpu.__name__) == [
        "pairs are compared on the processor: cuda:0 failed: Error in bfKnn: CUDA error 719"
    ]
    assert_are_equal(found, calibrated(snapshot))


def test_products_are_cosines(embeddings_of_two: tuple[FloatArray, FloatArray]) -> None:
    queries, items = embeddings_of_two
    with stand_in_gpus([2**30]):
        found = block_products("cuda", N)(queries, items)
    expected = exact_products(queries, items)
    assert (found.dtype, found.max() <= 1.0) == (np.float64, True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


@pytest.fixture
def embeddings_of_two() -> tuple[FloatArray, FloatArray]:
    """Queries, and items that are not laid out row by row, with the queries among them."""
    rng = np.random.default_rng(1)
    queries = normalize(rng.normal(size=(5, 384)))
    return queries, np.asfortranarray(np.concatenate([queries, normalize(rng.normal(size=(20, 384)))]))


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(faiss, "StandardGpuResources"), reason="this Faiss has no GPU")
@pytest.mark.parametrize("device", ["auto", "cuda:0"])
def test_a_real_gpu_makes_the_products_of_the_processor(device: str) -> None:
    items = normalize(np.random.default_rng(0).normal(size=(20_000, 512)))
    items[1::7] = items[:-1:7]
    found = block_products(device, 256 * len(items))(items[:256], items)
    np.testing.assert_allclose(found, exact_products(items[:256], items), rtol=0, atol=TOLERANCE)


def test_the_device_is_that_of_the_gallerys_index(gallery: Gallery, embedder: Embedder) -> None:
    gallery.index_device = "cuda:1"
    with stand_in_gpus([2**30, 2**30]) as gpus:
        calibrate.measure(Matcher(gallery, embedder), calibrate.CalibrateRequest(target="fpir=5%"))
    assert {number for number, *_ in gpus.compared} == {1}

"""Calibrator of pipelines that refine: its scores are those of the matcher."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tests.service.types import WriteGallery
from vicinal.calibration import Target
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.views.refined_snapshot import write_refined
from vicinal.indexer.views.refined_view import RefinedView
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.bundle import ModelBundle
from vicinal.models.similarity import normalize
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.service.measuring.calibrator import Calibration, Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.search.item_spaces import open_refiner
from vicinal.service.search.pipeline import Pipeline, Refine, Rerank
from vicinal.service.search.scorer import Scorer

N_LABELS, PER_LABEL, DIM = 10, 5, 24
N = N_LABELS * PER_LABEL
LABELS = [f"label {i // PER_LABEL}" for i in range(N)]


def embeddings() -> FloatArray:
    rng = np.random.default_rng(3)
    centers = np.repeat(rng.normal(size=(N_LABELS, DIM)), PER_LABEL, axis=0)
    return normalize(centers + 1.2 * rng.normal(size=centers.shape))


@pytest.fixture(scope="module")
def refiner(refiner_bundle: ModelBundle) -> ContextRefiner:
    return ContextRefiner(refiner_bundle)


@pytest.fixture(scope="module")
def snapshot(write_gallery: WriteGallery, refiner: ContextRefiner) -> Snapshot:
    written = write_gallery(embeddings(), LABELS, bundle=refiner.bundle.fingerprint)
    write_refined(written, refiner, 3)
    return written


def measure(snapshot: Snapshot, refiner: ContextRefiner, pipeline: Pipeline) -> Calibration:
    refinement = open_refiner(pipeline, refiner, "shoes", snapshot)
    calibrator = Calibrator(snapshot, pipeline, refinement=refinement)
    target = Target(rate="far", value=0.2)
    return calibrator.measure(LabelledQueries.leave_one_out(snapshot), target)


@pytest.mark.slow
@pytest.mark.parametrize("rerank", [Rerank(method="off"), Rerank(k=4, beta=0.4)], ids=["plain", "contextual"])
@pytest.mark.parametrize("sides", ["gallery", "query", "both"])
def test_rates_are_those_of_searching_for_every_item(
    snapshot: Snapshot, refiner: ContextRefiner, sides: str, rerank: Rerank
) -> None:
    pipeline = Pipeline(refine=Refine(sides=sides, steps=3, refiner=refiner.fingerprint), rerank=rerank)
    found = measure(snapshot, refiner, pipeline)
    scorer = Scorer(snapshot, pipeline, open_refiner(pipeline, refiner, "shoes", snapshot))
    negative, best = [], []
    for item in range(N):
        one = slice(item, item + 1)
        scored = scorer.score(
            snapshot.embeddings[one], N, excluded=[np.array([item])], items=np.array([item])
        )
        ranked = list(zip(scored.positions[0], scored.scores[0], strict=True))
        negative += [score for other, score in ranked if other >= 0 and LABELS[other] != LABELS[item]]
        best.append(max(score for other, score in ranked if other >= 0 and LABELS[other] == LABELS[item]))
    record = found.record
    assert record.evidence.rates["far"].n_trials == len(negative)
    assert record.rates.far == pytest.approx(np.mean(np.array(negative) >= record.threshold), abs=1e-9)
    assert record.rates.fnir == pytest.approx(np.mean(np.array(best) < record.threshold), abs=1e-9)


@pytest.mark.slow
def test_a_gallery_without_an_item_is_made_once(
    write_gallery: WriteGallery, refiner: ContextRefiner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All stages of a query ask for it: the search, the scores of its candidates, and those of all pairs."""
    n, made = 600, []
    vectors = np.random.default_rng(4).normal(size=(n, DIM))
    labels = [f"label {i // PER_LABEL}" for i in range(n)]
    written = write_gallery(normalize(vectors), labels, bundle=refiner.bundle.fingerprint)
    write_refined(written, refiner, 3)
    without = RefinedView.without

    def counted(view: RefinedView, positions: npt.NDArray[np.int64]) -> RefinedView:
        made.append(positions.tobytes())
        return without(view, positions)

    monkeypatch.setattr(RefinedView, "without", counted)
    rerank = Rerank(k=4, beta=0.4)
    measure(
        written,
        refiner,
        Pipeline(refine=Refine(sides="gallery", steps=3, refiner=refiner.fingerprint), rerank=rerank),
    )
    # Without itself, and without its label; two threads may make one of them at the same time.
    assert len(set(made)) == n + n // PER_LABEL
    assert len(made) < 1.05 * len(set(made))

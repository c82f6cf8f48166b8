"""Calibrator: its rates are those that the matcher shows, query by query."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.service.pipelines import CONTEXTUAL
from tests.service.types import WriteGallery
from vicinal.calibration import CalibrationError, NotEnoughTrialsError, Target
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.embedder import Embedder
from vicinal.models.similarity import normalize
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.search.pipeline import Pipeline, Rerank
from vicinal.service.search.scorer import Scorer

FPIR = Target(rate="fpir", value=0.1)
OFF = Pipeline(rerank=Rerank(method="off"))
PIPELINES = [CONTEXTUAL, Pipeline(rerank=Rerank(k=4, beta=0.6, eps=0.05)), OFF]


def labelled_gallery(
    n_labels: int = 24, per_label: int = 5, spread: float = 0.35
) -> tuple[FloatArray, list[str]]:
    """Overlapping classes, so that both kinds of errors happen."""
    rng = np.random.default_rng(7)
    centers = np.repeat(rng.normal(size=(n_labels, 8)), per_label, axis=0)
    labels = [f"label {i // per_label}" for i in range(n_labels * per_label)]
    return normalize(centers + spread * rng.normal(size=centers.shape)), labels


def outside_queries(labels: list[str], seed: int = 1) -> LabelledQueries:
    """New views of the gallery's labels and of labels that it lacks, in turn."""
    rng = np.random.default_rng(seed)
    vectors = normalize(rng.normal(size=(len(labels), 8)))
    return LabelledQueries(vectors, np.array(labels, dtype=object))


def calibrate(snapshot: Snapshot, pipeline: Pipeline | None = None, **options: object) -> CalibrationRecord:
    calibrator = Calibrator(snapshot, pipeline or CONTEXTUAL, **options)
    return calibrator.measure(LabelledQueries.leave_one_out(snapshot), FPIR).record


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda one: one.key)
def test_leave_one_out_rates_are_those_of_searching_for_every_item(
    gallery: Gallery, embedder: Embedder, pipeline: Pipeline
) -> None:
    """FAR, FRR, FNIR and R@1, counted slowly over the answers of `Matcher.search` to every item."""
    matcher = Matcher(gallery, embedder, pipeline)
    record = calibrate(matcher.snapshot, pipeline)
    matcher.calibrations.add(record)
    false_accepts, false_rejects, found, hits = 0, 0, [], []
    for item in matcher.snapshot.items(range(60)):
        answer = matcher.search(item_ids=[item["id"]], limit=100, include_candidates=True)[0]
        matches = [one.label == item["label"] for one in answer.matches]
        rejected = [one.label == item["label"] for one in answer.candidates]
        assert len(matches) + len(rejected) == 59
        false_accepts += matches.count(False)
        false_rejects += rejected.count(True)
        found.append(any(matches))
        hits.append([*matches, *rejected][0])
    assert record.rates.far == pytest.approx(false_accepts / (60 * 54), abs=1e-12)
    assert record.rates.frr == pytest.approx(false_rejects / (60 * 5), abs=1e-12)
    assert record.rates.fnir == pytest.approx(1.0 - np.mean(found), abs=1e-12)
    assert record.rates.hit_rate_1 == pytest.approx(np.mean(hits), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda one: one.key)
def test_fpir_is_that_of_galleries_without_the_label_of_the_query(
    write_gallery: WriteGallery, pipeline: Pipeline
) -> None:
    """Each label's gallery is really written without it and searched."""
    embeddings, labels = labelled_gallery(n_labels=12)
    record = calibrate(write_gallery(embeddings, labels), pipeline)
    best = []
    for label in dict.fromkeys(labels):
        is_own = np.array([one == label for one in labels])
        without = write_gallery(embeddings[~is_own], [one for one in labels if one != label])
        best += Scorer(without, pipeline).score(embeddings[is_own], 1).scores[:, 0].tolist()
    assert record.rates.fpir == pytest.approx(np.mean(np.array(best) >= record.threshold), abs=1e-6)
    assert record.n_without_mate == len(best) == 60


def slow_far(snapshot: Snapshot, labels: list[str], threshold: float) -> float:
    """FAR over the scores of all pairs."""
    n = len(snapshot)
    own = [np.array([i]) for i in range(n)]
    scored = Scorer(snapshot, CONTEXTUAL).score(snapshot.embeddings, n - 1, excluded=own)
    names = np.array(labels)
    is_negative = (scored.positions >= 0) & (names[scored.positions] != names[:, None])
    return float(np.mean(scored.scores[is_negative] >= threshold))


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [0.01, 0.5])
def test_pairs_beyond_the_candidates_count_too(write_gallery: WriteGallery, allowed: float) -> None:
    """With 240 items most pairs are no candidates; half of all pairs reaches far into those."""
    embeddings, labels = labelled_gallery(n_labels=48)
    snapshot = write_gallery(embeddings, labels)
    queries = LabelledQueries.leave_one_out(snapshot)
    record = Calibrator(snapshot, CONTEXTUAL).measure(queries, Target(rate="far", value=allowed)).record
    assert record.evidence.rates["far"].n_trials == 240 * 235
    # Pairs beyond the candidates are scored in float32, so that a few at the threshold may tip over.
    assert record.rates.far == pytest.approx(slow_far(snapshot, labels, record.threshold), abs=1e-4)
    assert record.rates.far == pytest.approx(allowed, abs=1e-4)


def test_a_lower_threshold_would_break_the_target(write_gallery: WriteGallery) -> None:
    record = calibrate(write_gallery(*labelled_gallery()))
    assert record.rates.fpir <= 0.1 + 1e-12
    # 120 queries: a threshold just below lets at least one more through.
    assert record.rates.fpir + 1 / 120 > 0.1


def test_queries_from_outside_with_and_without_mates(write_gallery: WriteGallery) -> None:
    embeddings, labels = labelled_gallery()
    snapshot = write_gallery(embeddings, labels)
    queries = outside_queries([f"label {i}" for i in range(20)] + [f"absent {i}" for i in range(40)])
    record = Calibrator(snapshot, CONTEXTUAL).measure(queries, FPIR).record
    scored = Scorer(snapshot, CONTEXTUAL).score(queries.embeddings, 120)
    absent_best = scored.scores[20:, 0]
    assert (record.source, record.n_with_mate, record.n_without_mate) == ("queries", 20, 40)
    assert record.rates.fpir == pytest.approx(np.mean(absent_best >= record.threshold))
    assert record.evidence.rates["frr"].n_trials == 20 * 5
    assert record.evidence.rates["far"].n_trials == 60 * 120 - 20 * 5


@pytest.mark.slow
def test_queries_that_all_have_mates_measure_fpir_with_their_label_taken_out(
    write_gallery: WriteGallery,
) -> None:
    embeddings, labels = labelled_gallery()
    queries = outside_queries([f"label {i % 24}" for i in range(48)])
    record = Calibrator(write_gallery(embeddings, labels), CONTEXTUAL).measure(queries, FPIR).record
    best = []
    for query, label in zip(queries.embeddings, queries.labels, strict=True):
        without = write_gallery(embeddings[[one != label for one in labels]])
        best.append(Scorer(without, CONTEXTUAL).score(query[None], 1).scores[0, 0])
    assert record.n_without_mate == 48
    assert record.rates.fpir == pytest.approx(np.mean(np.array(best) >= record.threshold))


@pytest.mark.parametrize("target", [Target(rate="far", value=1e-6), Target(rate="fpir", value=0.01)], ids=str)
def test_a_rate_that_so_few_trials_cannot_show_is_refused(
    write_gallery: WriteGallery, target: Target
) -> None:
    snapshot = write_gallery(*labelled_gallery())
    with pytest.raises(NotEnoughTrialsError, match="needs at least"):
        Calibrator(snapshot, CONTEXTUAL).measure(LabelledQueries.leave_one_out(snapshot), target)


def test_a_gallery_without_labels_is_refused(write_gallery: WriteGallery) -> None:
    embeddings, _ = labelled_gallery()
    with pytest.raises(CalibrationError, match="has no labels"):
        calibrate(write_gallery(embeddings))


@pytest.mark.slow
def test_a_sample_of_queries_is_the_same_for_the_same_seed(write_gallery: WriteGallery) -> None:
    snapshot = write_gallery(*labelled_gallery())
    first, second, other = (calibrate(snapshot, most_queries=40, seed=seed) for seed in (3, 3, 4))
    unlike = {"id", "created_at"}
    assert first.model_dump(exclude=unlike) == second.model_dump(exclude=unlike)
    assert first.n_with_mate == 40
    assert other.threshold != first.threshold


@pytest.mark.slow
def test_the_threshold_keeps_its_rate_on_the_matcher(
    matcher: Matcher, catalog: Path, embedder: Embedder, tmp_path: Path
) -> None:
    """End to end: a gallery without each label answers "no match" as often as the record says."""
    record = calibrate(matcher.snapshot, matcher.pipeline)
    items = read_source(catalog)
    answered = 0
    for label in sorted({item.label for item in items}):
        gallery = Gallery(tmp_path / "galleries" / "without")
        others = [item for item in items if item.label != label]
        index_items(gallery, others, embedder, source="catalog", delete=True, workers=1)
        absent = [item.path for item in items if item.label == label]
        answers = Matcher(gallery, embedder).search(images=absent, threshold=record.threshold)
        answered += sum(not answer.no_match for answer in answers)
    assert record.rates.fpir == pytest.approx(answered / 60)

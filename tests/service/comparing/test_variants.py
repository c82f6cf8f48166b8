"""Pipelines that are tried on one version: figures of single searches, every side, and shared items."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vicinal.calibration import Target
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.comparing.comparison import ComparisonPlan, compare
from vicinal.service.comparing.record import Comparison, ComparisonRequest, Variant
from vicinal.service.comparing.store import put_in_force
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.visits import find_visits
from vicinal.service.search.item_spaces import refinement_plan
from vicinal.service.search.pipeline import Pipeline, Rerank, starting_threshold
from vicinal.service.search.scorer import Scorer
from vicinal.service.settings import Settings
from vicinal.training.evaluation import auroc

pytestmark = pytest.mark.slow

OFF, FOUR = Pipeline(rerank=Rerank(method="off")), Pipeline(rerank=Rerank(k=4, beta=0.3))


def request(max_queries: int = 1000) -> ComparisonRequest:
    fields = {"target": "fpir=20%", "pipelines": True, "max_queries": max_queries}
    return ComparisonRequest.model_validate(fields)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory, base_dir: Path, embedder: Embedder) -> ComparisonPlan:
    root = tmp_path_factory.mktemp("compared") / "data"
    shutil.copytree(base_dir, root)
    settings = Settings(data_dir=root, bundle=embedder.bundle.path, device="cpu", threads=1)
    gallery = Gallery.open(settings.galleries_path / "shoes")
    return ComparisonPlan(
        gallery,
        ServedBundles(settings, embedder=embedder),
        request(),
    )


@pytest.fixture(scope="module")
def found(plan: ComparisonPlan) -> Comparison:
    return compare(plan, "first")


def variant_of(found: Comparison, pipeline: Pipeline) -> Variant:
    return next(one for one in found.variants if one.pipeline == pipeline)


def slow_figures(plan: ComparisonPlan, pipeline: Pipeline) -> tuple[float, float, list[float]]:
    """R@1, MAP@R and the best score with a mate of each item, one search at a time."""
    snapshot = plan.gallery.snapshot()
    scorer = Scorer(snapshot, pipeline)
    hits, precisions, best = [], [], []
    for query, label in enumerate(snapshot.labels):
        scored = scorer.score(snapshot.embeddings[query][None], 100, excluded=[np.array([query])])
        is_mate = [snapshot.labels[i] == label for i in scored.positions[0]]
        n_mates = sum(other == label for other in snapshot.labels) - 1
        found, total = 0, 0.0
        for rank, mate in enumerate(is_mate[:n_mates], start=1):
            found += mate
            total += mate * found / rank
        hits.append(is_mate[0])
        precisions.append(total / n_mates)
        best.append(max(s for s, mate in zip(scored.scores[0], is_mate, strict=True) if mate))
    return float(np.mean(hits)), float(np.mean(precisions)), best


@pytest.mark.parametrize("pipeline", [OFF, FOUR])
def test_figures_are_those_of_single_searches(
    plan: ComparisonPlan, found: Comparison, pipeline: Pipeline
) -> None:
    one = variant_of(found, pipeline)
    hit_rate, map_at_r, best = slow_figures(plan, pipeline)
    assert one.figures["hit_rate"].value == pytest.approx(hit_rate)
    assert one.figures["map_at_r"].value == pytest.approx(map_at_r)
    missed = float(np.mean([score < one.calibration.threshold for score in best]))
    assert one.figures["error"].value == one.figures["fnir"].value == pytest.approx(missed)


def test_every_variant_gets_the_calibration_that_it_would_get_alone(
    plan: ComparisonPlan, found: Comparison
) -> None:
    snapshot = plan.gallery.snapshot()
    for one in found.variants:
        calibrator = Calibrator(snapshot, one.pipeline, visits=find_visits("auto", plan.gallery, snapshot))
        alone = calibrator.measure(LabelledQueries.leave_one_out(snapshot), Target.parse("fpir=20%"))
        assert (one.calibration.threshold, one.calibration.rates) == (
            alone.record.threshold,
            alone.record.rates,
        )
        trials = alone.measured.trials
        expected = auroc(trials.best_mate_scores, trials.best_scores_without_mate)
        assert one.figures["auroc"].value == pytest.approx(expected)
        opis = alone.record.evidence.opis["final"]
        assert (one.figures["opis"].value, one.opis_floor) == (pytest.approx(opis.opis), opis.floor)


@pytest.fixture(scope="module")
def refined(
    tmp_path_factory: pytest.TempPathFactory, catalog: Path, refiner_bundle: ModelBundle
) -> ComparisonPlan:
    """Of a gallery that is refined as the bundle's validation decided."""
    settings = Settings(data_dir=tmp_path_factory.mktemp("refined"), bundle=refiner_bundle.path)
    made_with = refinement_plan(settings.pipeline_for(refiner_bundle), refiner_bundle)
    embedder = Embedder(refiner_bundle, device="cpu", threads=1)
    gallery = Gallery(settings.galleries_path / "shoes", refinement=made_with)
    index_items(gallery, read_source(catalog), embedder, workers=1)
    return ComparisonPlan(gallery, ServedBundles(settings, embedder=embedder))


def test_every_side_is_tried_and_sharing_changes_no_threshold(refined: ComparisonPlan) -> None:
    found = compare(replace(refined, request=request(max_queries=40)), "sides")
    assert {one.pipeline.refine.sides for one in found.variants} == {"off", "gallery", "query", "both"}
    served = refined.bundles.own
    matcher = Matcher(refined.gallery, served.embedder, served.pipeline)
    snapshot = matcher.snapshot
    queries = LabelledQueries.leave_one_out(snapshot)
    order = np.argsort(queries.ids.astype(str), kind="stable")
    for one in found.variants[-2:]:
        calibrator = Calibrator(
            snapshot,
            one.pipeline,
            most_queries=40,
            refinement=matcher.refinement(one.pipeline),
            visits=find_visits("auto", refined.gallery, snapshot),
            starting=starting_threshold(served.bundle, one.pipeline),
        )
        alone = calibrator.measure(queries.take(order), Target.parse("fpir=20%")).record
        assert one.calibration.threshold == alone.threshold
    present = found.variants[0].pipeline.refine
    number = next(i for i, one in enumerate(found.variants) if one.pipeline.refine != present)
    put_in_force(refined.gallery, refined.bundles, found, number)
    (answer,) = matcher.search(item_ids=["plain/view 0.png"])
    chosen = found.variants[number]
    assert (answer.pipeline, answer.threshold.value) == (chosen.pipeline.key, chosen.calibration.threshold)
    matcher.pipeline_store.clear()

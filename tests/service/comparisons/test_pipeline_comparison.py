"""Pipelines compared: figures of the searches, a careful recommendation, and both in force at once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import ValidationError

from tests.service.types import MakeSettings, Run
from tests.waiting import wait_for_job
from vicinal.calibration import Target
from vicinal.indexer.gallery import Gallery
from vicinal.models.embedder import Embedder
from vicinal.models.evaluation import auroc
from vicinal.service.calibrator.calibrator import Calibrator
from vicinal.service.calibrator.queries import LabelledQueries
from vicinal.service.comparisons.pipeline_comparison import ComparedPipelines, _recommend, compare_pipelines
from vicinal.service.comparisons.pipeline_record import (
    FigureDifference,
    PipelineComparisonOptions,
    PipelineVariant,
)
from vicinal.service.comparisons.pipeline_store import PipelineComparisonStore, activate_pipeline
from vicinal.service.comparisons.pipeline_variants import VariantOptions, variant_pipelines
from vicinal.service.errors import CalibrationRecordError, RequestError
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.jobs import JobWorker
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.pipeline import ActivePipelineFile, Pipeline, Rerank
from vicinal.service.scoring.scorer import Scorer
from vicinal.service.thresholds.store import CalibrationStore

ADMIN = "/v1/admin/galleries/shoes"
SEARCH = "/v1/galleries/shoes/search"
OFF, FOUR = Pipeline(rerank=Rerank(method="off")), Pipeline(rerank=Rerank(k=4, beta=0.3))
VARIANTS = {"rerank": ["off", "contextual"], "k": [4], "beta": [0.3]}
OPTIONS = PipelineComparisonOptions.model_validate({"target": "fpir=20%", "variants": VARIANTS})


@pytest.fixture(scope="module")
def matcher(tmp_path_factory: pytest.TempPathFactory, base_dir: Path, embedder: Embedder) -> Matcher:
    root = tmp_path_factory.mktemp("compared") / "data"
    shutil.copytree(base_dir, root)
    return Matcher(Gallery.open(root / "galleries" / "shoes"), embedder)


@pytest.fixture(scope="module")
def found(matcher: Matcher) -> ComparedPipelines:
    return compare_pipelines(matcher, OPTIONS, name="first")


def slow_figures(matcher: Matcher, pipeline: Pipeline) -> tuple[float, float, list[float]]:
    """R@1, MAP@R and the best score with a mate of each item, one search at a time."""
    snapshot = matcher.snapshot
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


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [OFF, FOUR])
def test_figures_are_those_of_single_searches(
    matcher: Matcher, found: ComparedPipelines, pipeline: Pipeline
) -> None:
    variant = found.comparison.variant(pipeline.key)
    hit_rate, map_at_r, best = slow_figures(matcher, pipeline)
    assert variant.figures.hit_rate.rate == pytest.approx(hit_rate)
    assert variant.figures.map_at_r == pytest.approx(map_at_r)
    missed = float(np.mean([one < variant.figures.threshold for one in best]))
    assert variant.figures.error.rate == pytest.approx(missed)


def test_every_pipeline_gets_the_calibration_that_it_would_get_alone(
    matcher: Matcher, found: ComparedPipelines
) -> None:
    snapshot = matcher.snapshot
    for variant in found.comparison.variants:
        calibrator = Calibrator(snapshot, variant.pipeline)
        alone = calibrator.measure(LabelledQueries.leave_one_out(snapshot), Target.parse("fpir=20%"))
        assert (variant.record.threshold, variant.record.rates) == (
            alone.record.threshold,
            alone.record.rates,
        )
        trials = alone.measured.trials
        expected = auroc(trials.best_mate_scores, trials.best_scores_without_mate)
        assert variant.figures.auroc == pytest.approx(expected)


def test_differences_are_to_the_present_pipeline(found: ComparedPipelines) -> None:
    present, *others = found.comparison.variants
    assert (found.comparison.present, present.key, present.differences) == (
        Pipeline().key,
        Pipeline().key,
        {},
    )
    for one in others:
        assert set(one.differences) == {"error", "auroc", "hit_rate", "map_at_r", "opis"}
        change = one.differences["map_at_r"]
        assert change.difference == pytest.approx(one.figures.map_at_r - present.figures.map_at_r)
        assert all(each.low <= each.high for each in one.differences.values())
        error = one.differences["error"].difference
        assert error == pytest.approx(one.figures.error.rate - present.figures.error.rate)


def test_choosing_among_many_is_called_optimistic(found: ComparedPipelines) -> None:
    comparison = found.comparison
    assert any("looks better than it is" in warning for warning in comparison.warnings)
    assert comparison.optimism.n_pipelines == len(comparison.variants) == 3
    assert comparison.optimism.optimism == pytest.approx(
        comparison.optimism.shown - comparison.optimism.promised
    )


def with_error(variant: PipelineVariant, rate: float, *, high: float) -> PipelineVariant:
    error = variant.figures.error.model_copy(update={"rate": rate})
    figures = variant.figures.model_copy(update={"error": error})
    change = FigureDifference(difference=-0.1, low=-0.3, high=high)
    return variant.model_copy(update={"figures": figures, "differences": {"error": change}})


@pytest.mark.parametrize(
    ("rates", "high", "expected", "why"),
    [
        ((0.5, 0.4, 0.3), -0.01, 2, "it has the lowest FNIR"),
        ((0.5, 0.4, 0.3), 0.0, 0, "does not exclude 0"),
        ((0.5, 0.4, 0.3), 0.02, 0, "does not exclude 0"),
        ((0.3, 0.4, 0.3), -0.01, 0, "no pipeline has a lower FNIR"),
        ((0.5, 0.2, 0.3), -0.01, 1, "it has the lowest FNIR"),
    ],
)
def test_another_pipeline_is_recommended_only_beyond_chance(
    found: ComparedPipelines, rates: tuple[float, ...], high: float, expected: int, why: str
) -> None:
    variants = found.comparison.variants
    tried = [with_error(one, rate, high=high) for one, rate in zip(variants, rates, strict=True)]
    key, reason = _recommend(tried, "fnir")
    assert (key, why in reason) == (tried[expected].key, True)


def test_variants_begin_with_the_present_one_and_come_once(matcher: Matcher) -> None:
    options = VariantOptions.model_validate({"k": [8, 8, 4], "beta": [0.1], "k1": [4], "k2": [2, 6]})
    pipelines, left_out = variant_pipelines(matcher, options)
    keys = [one.key for one in pipelines]
    assert keys[0] == matcher.pipeline.key
    assert len(keys) == len(set(keys)) == 4
    assert left_out == {}


@pytest.mark.parametrize("fields", [{"k": [1]}, {"k": range(2, 30)}, {"rerank": []}, {"k3": [1]}])
def test_what_cannot_be_tried_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        VariantOptions.model_validate(fields)


def test_nothing_to_compare_with_is_said(matcher: Matcher) -> None:
    alone = VariantOptions.model_validate({"rerank": ["contextual"], "k": [8], "beta": [0.1]})
    with pytest.raises(RequestError, match="name more variants"):
        variant_pipelines(matcher, alone)


def test_a_choice_does_not_hold_for_another_bundle(
    data_dir: Path, embedder: Embedder, found: ComparedPipelines
) -> None:
    matcher = Matcher(Gallery.open(data_dir / "galleries" / "shoes"), embedder)
    comparison = PipelineComparisonStore(matcher.calibrations).add(found)
    assert activate_pipeline(matcher, comparison, OFF.key).source == "comparison"
    file = ActivePipelineFile(matcher.calibrations.path)
    file.put_in_force(file.chosen().model_copy(update={"bundle": "0" * 16}))
    assert (matcher.pipeline, matcher.active_pipeline.source) == (Pipeline(), "settings")
    assert "compare again" in matcher.active_pipeline.reason
    file.path.write_text("{}", encoding="utf-8")
    with pytest.raises(CalibrationRecordError, match="damaged"):
        matcher.search(item_ids=["plain/view 0.png"])


def test_comparisons_are_never_changed_and_the_history_of_calibrations_stays_readable(
    gallery: Gallery, found: ComparedPipelines
) -> None:
    calibrations = CalibrationStore(gallery.calibrations_path)
    store = PipelineComparisonStore(calibrations)
    kept = store.add(found)
    assert store.find("first") == kept == found.comparison
    with pytest.raises(CalibrationRecordError, match="never changed"):
        store.add(found)
    recommended = found.comparison.variant(found.comparison.recommended).record
    assert [one.id for one in calibrations.history()] == [recommended.id]
    assert calibrations.scores(calibrations.get(recommended.id)) is not None


@pytest.fixture
def app(data_dir: Path, make_settings: MakeSettings) -> FastAPI:
    return create_app(make_settings(data_dir))


@pytest.fixture
def worker(app: FastAPI) -> Iterator[None]:
    with JobWorker(state_of(app).jobs, state_of(app).kinds.by_name(), heartbeat_seconds=0.5):
        yield
    state_of(app).jobs.queue.close()


def searched(client: TestClient, **options: Any) -> tuple[str, str, float | None]:
    answer = client.post(SEARCH, json={"item_id": "plain/view 0.png", **options}).json()
    return answer["pipeline"], answer["pipeline_source"], answer["threshold"]["value"]


def readiness_of(client: TestClient) -> dict[str, Any]:
    (state,) = client.get("/readyz").json()["galleries"]
    return state


@pytest.mark.slow
def test_a_job_compares_and_an_activation_changes_pipeline_and_threshold_at_once(
    app: FastAPI, worker: None
) -> None:
    client = TestClient(app)
    body = {"target": "fpir=20%", "variants": VARIANTS}
    job = wait_for_job(client, client.post(f"{ADMIN}/calibrations/compare", json=body))
    assert (job["state"], job["problem"]) == ("succeeded", None)
    comparison = client.get(f"{ADMIN}/calibrations/pipelines/{job['id']}").json()
    assert comparison["recommended"] == job["result"]["recommended"]
    assert searched(client) == (Pipeline().key, "settings", None)
    url = f"{ADMIN}/calibrations/pipelines/{job['id']}/activate"
    assert client.post(url, json={"pipeline": "rerank=none"}).status_code == 422
    activated = client.post(url, json={"pipeline": FOUR.key}).json()
    (variant,) = (one for one in comparison["variants"] if one["key"] == FOUR.key)
    threshold = variant["record"]["threshold"]
    assert (activated["pipeline"], activated["threshold"]) == (FOUR.key, threshold)
    assert searched(client) == (FOUR.key, "comparison", threshold)
    assert searched(client, rerank="off") == (OFF.key, "request", None)
    ready = readiness_of(client)
    assert [ready[name] for name in ("pipeline", "pipeline_source", "calibration")] == [
        FOUR.key,
        "comparison",
        "current",
    ]
    assert client.get(f"{ADMIN}/calibrations/{variant['record']['id']}/report").status_code == 200
    assert client.delete(f"{ADMIN}/pipeline").json()["source"] == "settings"
    assert searched(client) == (Pipeline().key, "settings", None)
    assert readiness_of(client)["pipeline_source"] == "settings"


@pytest.mark.slow
def test_the_command_compares_and_uses(run: Run, data_dir: Path, gallery: Gallery) -> None:
    text = run(
        "calibration", "compare-pipelines", "-g", "shoes", "--target", "fpir=20%", "--max-queries", 40
    ).stdout
    assert ("recommended" in text, "use-pipeline" in text) == (True, True)
    (comparison,) = PipelineComparisonStore(CalibrationStore(gallery.calibrations_path)).history()
    key = comparison.variants[1].key
    used = run("calibration", "use-pipeline", comparison.id, "-g", "shoes", "--pipeline", key).stdout
    assert (key in used, "by the comparison" in used) == (True, True)
    assert "by the settings" in run("calibration", "use-pipeline", "--reset", "-g", "shoes").stdout

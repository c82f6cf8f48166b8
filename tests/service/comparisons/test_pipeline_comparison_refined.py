"""Pipelines that refine, compared: every side, with refined items shared and no score changed by that."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from vicinal.calibration import NotEnoughTrialsError, Target
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.calibrator.calibrator import Calibrator
from vicinal.service.calibrator.queries import LabelledQueries
from vicinal.service.comparisons.pipeline_comparison import compare_pipelines
from vicinal.service.comparisons.pipeline_record import PipelineComparisonOptions
from vicinal.service.comparisons.pipeline_store import activate_pipeline
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.opened_refiner import refinement_plan
from vicinal.service.settings import Settings

pytestmark = pytest.mark.slow

VARIANTS = {"rerank": ["off", "k_reciprocal"], "k1": [4], "k2": [2]}


@pytest.fixture(scope="module")
def matcher(tmp_path_factory: pytest.TempPathFactory, catalog: Path, refiner_bundle: ModelBundle) -> Matcher:
    """Of a gallery that is refined as the bundle's validation decided."""
    settings = Settings(data_dir=tmp_path_factory.mktemp("refined"), bundle=refiner_bundle.path)
    pipeline = settings.pipeline_for(refiner_bundle)
    plan = refinement_plan(pipeline, refiner_bundle)
    embedder = Embedder(refiner_bundle, device="cpu", threads=1)
    gallery = Gallery(settings.galleries_path / "shoes", refinement=plan)
    index_items(gallery, read_source(catalog), embedder, workers=1)
    return Matcher(gallery, embedder, pipeline)


def options(**changes: object) -> PipelineComparisonOptions:
    fields = {"target": "fpir=20%", "variants": VARIANTS, "max_queries": 40}
    return PipelineComparisonOptions.model_validate({**fields, **changes})


def test_every_side_is_tried_and_sharing_changes_no_threshold(matcher: Matcher) -> None:
    found = compare_pipelines(matcher, options(), name="sides").comparison
    assert {one.pipeline.refine.sides for one in found.variants} == {"off", "gallery", "query", "both"}
    for one in found.variants[-2:]:
        calibrator = Calibrator(
            matcher.snapshot,
            one.pipeline,
            max_queries=40,
            refinement=matcher.refinement(one.pipeline),
        )
        alone = calibrator.measure(
            LabelledQueries.leave_one_out(matcher.snapshot), Target.parse("fpir=20%")
        ).record
        assert one.record.threshold == alone.threshold
    other = next(one for one in found.variants if one.pipeline.refine != matcher.pipeline.refine)
    activate_pipeline(matcher, found, other.key)
    (answer,) = matcher.search(item_ids=["plain/view 0.png"])
    assert (answer.pipeline, answer.threshold.value) == (other.key, other.record.threshold)
    matcher.pipeline_file.clear()


def test_items_that_were_never_refined_leave_their_sides_out(
    base_dir: Path, tmp_path: Path, refiner_bundle: ModelBundle
) -> None:
    shutil.copytree(base_dir, tmp_path / "data")
    gallery = Gallery.open(tmp_path / "data" / "galleries" / "shoes")
    unrefined = Matcher(gallery, Embedder(refiner_bundle, device="cpu", threads=1), Settings().pipeline)
    found = compare_pipelines(unrefined, options(), name="unrefined").comparison
    assert {one.pipeline.refine.sides for one in found.variants} == {"off", "query"}
    assert sum("was not tried" in warning for warning in found.warnings) == 2


def test_a_target_on_fnir_compares_fpir(matcher: Matcher) -> None:
    found = compare_pipelines(matcher, options(target="fnir=20%"), name="fnir").comparison
    assert found.asked == "fpir"
    for one in found.variants:
        assert one.figures.error.rate == one.record.rates.fpir
        assert one.record.rates.fnir <= 0.2


def test_a_target_that_no_pipeline_can_show_is_an_error(matcher: Matcher) -> None:
    with pytest.raises(NotEnoughTrialsError):
        compare_pipelines(matcher, options(target="fpir=1%"), name="none")
